"""The folders of the testbed, and the versions of the programs that it runs."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.testbed.progress import step

RELEASES = {"1.35": "v1.35.4", "1.37": "v1.37.2"}
"""The releases of Kubernetes that the testbed can run."""
KUBERNETES = RELEASES[os.environ.get("KFEXT_KUBERNETES", "1.37")]
ETCD = "v3.6.16"
TRAINING_OPERATOR = "v1.9.4"
KWOK = "v0.8.0"
COREDNS = "v1.14.7"
METRICS_SERVER = "v0.9.0"
TRAINER = "v2.3.0"
JOBSET = "v0.12.0"
KARPENTER = "v1.14.0"

# A testbed's name becomes part of paths that `down` deletes.
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")

REPOSITORY = Path(__file__).resolve().parents[2]
MODULES = Path(__file__).resolve().parent / "modules"


def cache() -> Path:
    """Return the folder for everything that is built once and used by all testbeds."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kfext"
    return Path(os.environ.get("KFEXT_CACHE", default))


@contextmanager
def exclusively(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder` during a `with` block; other processes wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"waiting for another process that builds in {folder}"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def states() -> Path:
    """Return the folder with a folder for each running testbed."""
    default = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state")) / "kfext"
    return Path(os.environ.get("KFEXT_STATE", default))


def state(name: str) -> Path:
    """Return the folder of one running testbed; `down` removes it."""
    if not NAME.fullmatch(name):
        raise ValueError(f"a testbed's name is made of a-z, 0-9 and -, not {name!r}")
    return states() / name
