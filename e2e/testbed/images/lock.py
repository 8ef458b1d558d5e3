"""Let one process at a time make a thing of the cache that all use."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusively(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`; another process waits, and then finds the thing made."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
