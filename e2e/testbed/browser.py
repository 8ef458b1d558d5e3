"""The programs of the browser tests: Debian's Chromium, and axe-core, an accessibility checker."""

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from e2e.testbed import paths, progress
from e2e.testbed.debian import apt_get
from e2e.testbed.preflight import Unavailable

CHROMIUM = "chromium"
AXE = "axe-core@4.14.1"
_INTEGRITY = (
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)
"""The package's integrity in npm's registry: base64 of its SHA-512."""
_INSTALL = progress.Planned(f"installing Debian's package {CHROMIUM}", 60)
_FETCH = progress.Planned(f"fetching {AXE} from npm", 5)


def prepare() -> None:
    """Install or fetch the missing programs. Raises Unavailable."""
    steps = [step for step, missing in _missing().items() if missing]
    with progress.agenda(steps):
        chromium()
        axe()


def _missing() -> dict[progress.Planned, bool]:
    return {_INSTALL: shutil.which(CHROMIUM) is None, _FETCH: not _script().exists()}


def chromium() -> str:
    """Return the path of the browser, installed if missing. Raises Unavailable."""
    if _missing()[_INSTALL]:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            raise Unavailable(
                f"tests in a browser need {CHROMIUM}: sudo apt-get install {CHROMIUM}"
            )
        with progress.step(_INSTALL):
            apt_get("update")
            apt_get("install", "--yes", "--no-install-recommends", "--no-remove", CHROMIUM)
    return shutil.which(CHROMIUM) or CHROMIUM


def axe() -> str:
    """Return the script of axe-core, fetched if missing. Raises Unavailable."""
    script = _script()
    if not script.exists():
        with paths.exclusively(script.parent), progress.step(_FETCH):
            _fetch(script)
    return script.read_text()


def _script() -> Path:
    return paths.cache() / AXE / "axe.min.js"


def _fetch(script: Path) -> None:
    if shutil.which("npm") is None:
        raise Unavailable(f"fetching {AXE} needs npm: apt-get install npm")
    packed = subprocess.run(
        ["npm", "pack", AXE, "--pack-destination", str(script.parent), "--silent"],
        check=False,
        capture_output=True,
        text=True,
    )
    if packed.returncode != 0:
        raise Unavailable(f"`npm pack {AXE}` failed:\n{packed.stderr.strip()}")
    archive = script.parent / packed.stdout.split()[-1]
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != _INTEGRITY:
        raise Unavailable(f"{archive} has the wrong checksum: sha512-{digest}")
    with tarfile.open(archive) as package:
        member = package.extractfile("package/axe.min.js")
        assert member is not None
        unfinished = script.with_suffix(".part")
        unfinished.write_bytes(member.read())
        unfinished.rename(script)
    archive.unlink()
