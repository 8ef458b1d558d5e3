"""kfext as a person installs it: the commands of docs/install.md, a shell, and another version."""

import os
import subprocess
import tarfile
from pathlib import Path

from e2e.harness.install import crds, protection, roles
from e2e.harness.kfext_process import Kfext
from e2e.harness.processes import COMMAND
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY

RELEASED_0_1 = "6b226785aa93c3e6724af5ef0d7a32d1654e2eef"
"""What was released as 0.1, the only version that docs/install.md has people upgrade from."""
_PARTS = ("kfext", "manifests", "crds", "pyproject.toml", "README.md", "LICENSE")


def commands(section: str) -> list[str]:
    """Return the commands of a section, in order."""
    text = (REPOSITORY / "docs" / "install.md").read_text()
    found = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    blocks = found.split("```sh\n")[1:]
    lines = [line for block in blocks for line in block.split("```", 1)[0].splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("#")]


class Shell:
    """A person's shell in a copy of a version's manifests: kubectl, and our plugin for it."""

    def __init__(self, testbed: Testbed, folder: Path, *, version: Path = REPOSITORY) -> None:
        self._folder = folder
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "kubectl").symlink_to(testbed.binary("kubectl"))
        (folder / "bin" / "kubectl-kfext").symlink_to(COMMAND.with_name("kubectl-kfext"))
        for name in ("manifests", "crds"):
            (folder / name).symlink_to(version / name)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(testbed.kubeconfig), "PATH": path}

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout


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
