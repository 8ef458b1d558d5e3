"""The true API server for tests of the adapters."""

import os
from collections.abc import Iterator

import pytest

from e2e.harness.standing import running_or_skipped
from e2e.testbed.cluster import Testbed


@pytest.fixture(scope="session")
def testbed() -> Iterator[Testbed]:
    """A control plane without nodes, shared by all tests of the session."""
    with running_or_skipped(f"adapters-{os.getpid()}") as bed:
        yield bed
