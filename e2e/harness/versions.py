"""Another version of kfext in place of this one: its code, its manifests and its rights."""

import subprocess
import tarfile
from pathlib import Path

from e2e.harness.installed import crds, protection, roles
from e2e.harness.kfext_process import Kfext
from e2e.testbed.paths import REPOSITORY

RELEASED_0_1 = "6b226785aa93c3e6724af5ef0d7a32d1654e2eef"
"""What was released as 0.1, the only version that docs/install.md has people upgrade from."""
_PARTS = ("kfext", "manifests", "crds", "pyproject.toml", "README.md", "LICENSE")


def unpack_0_1(folder: Path) -> Path:
    """Unpack version 0.1 from this repository's history; return its folder.

    Raises LookupError if this copy of the history does not go back so far.
    """
    packed, unpacked = folder / "0.1.tar", folder / "0.1"
    with packed.open("wb") as output:
        done = subprocess.run(
            ["git", "archive", RELEASED_0_1, *_PARTS],
            cwd=REPOSITORY,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        raise LookupError(f"0.1 is not in this copy of the history: {done.stderr.strip()}")
    with tarfile.open(packed) as content:
        content.extractall(unpacked, filter="data")
    return unpacked


def running(version: Path) -> dict[str, str]:
    """Return the environment in which processes run the code in a folder."""
    return {"PYTHONPATH": str(version)} if version != REPOSITORY else {}


def apply_manifests_of(kfext: Kfext, version: Path) -> None:
    """Apply what `kubectl apply -k` would of a version, without Deployments and webhooks.

    As it does, this leaves in place what the version does not have.
    """
    api = kfext.testbed.api
    for manifest in (*crds(version), *roles(version)):
        api.apply(manifest)
    if version == REPOSITORY:
        for guard in protection():
            api.apply(guard)
