"""The true API server that the adapters are tried on."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from e2e.testbed.cluster import NotReadyError, Testbed
from e2e.testbed.lifecycle import running
from e2e.testbed.preflight import Unavailable


@pytest.fixture(scope="session")
def testbed() -> Iterator[Testbed]:
    """A control plane without nodes, shared by all tests of the session."""
    try:
        context = running(f"adapters-{os.getpid()}")
        cluster = context.__enter__()
    except (Unavailable, NotReadyError, OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no testbed on this machine: {error}")
    try:
        yield cluster
    finally:
        context.__exit__(None, None, None)
