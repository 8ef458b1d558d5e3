"""A testbed for the fixtures of a session, or the reason why this machine cannot have one."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.testbed.cluster import Testbed
from e2e.testbed.lifecycle import running
from e2e.testbed.preflight import Unavailable


@contextmanager
def running_or_skipped(
    name: str, *, real_nodes: int = 0, fake_nodes: int = 0, fast: bool = False
) -> Iterator[Testbed]:
    """Run a testbed, or skip where the machine cannot have it; one that fails to start fails."""
    try:
        with running(name, real_nodes=real_nodes, fake_nodes=fake_nodes, fast=fast) as bed:
            yield bed
    except Unavailable as missing:
        pytest.skip(f"this machine cannot have the testbed: {missing}")
