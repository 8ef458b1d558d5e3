"""Install Python packages into an image, with this machine's pip and for the image's Python."""

import importlib.util
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.testbed.images import rootfs
from e2e.testbed.preflight import Unavailable

# Debian's Python searches this folder, and pip there would install into it.
_PACKAGES = f"usr/local/lib/python{rootfs.PYTHON}/dist-packages"
_SCRIPTS = "usr/local/bin"
# Wheels name the oldest C library they run with; bookworm has 2.36. 2014 is another name of 2.17.
_OLDEST_LIBC = ("2014", "_2_17", "_2_24", "_2_26", "_2_27", "_2_28", "_2_31", "_2_34")


def install(root: Path, requirements: Sequence[str], *, dependencies: bool = True) -> None:
    """Install into the image whose layer is being made in `root`."""
    packages = root / _PACKAGES
    abi = [f"--platform=manylinux{libc}_{platform.machine()}" for libc in _OLDEST_LIBC]
    _pip(
        "install", "--target", str(packages), f"--python-version={rootfs.PYTHON}", *abi,
        "--implementation=cp", "--only-binary=:all:",
        *([] if dependencies else ["--no-deps"]), *requirements,
    )  # fmt: skip
    _move_scripts(packages / "bin", root / _SCRIPTS)


def wheel(project: Path, folder: Path) -> Path:
    """Build the wheel of `project` in `folder`."""
    # Fetching the build backend takes longer than the build; use the one at hand if there is one.
    isolation = [] if importlib.util.find_spec("hatchling") is None else ["--no-build-isolation"]
    _pip("wheel", "--no-deps", *isolation, "--wheel-dir", str(folder), str(project))
    return next(folder.glob("*.whl"))


def _pip(command: str, *arguments: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", command, "-q", *arguments],
        check=False,
        capture_output=True,
        text=True,
    )
    if ended.returncode != 0:
        said = "\n".join(ended.stderr.splitlines()[-5:])
        raise Unavailable(f"`pip {command}` for an image failed:\n{said}")


def _move_scripts(installed: Path, target: Path) -> None:
    """Move the commands to where PATH finds them, and have the image's own Python run them."""
    if not installed.exists():
        return
    target.mkdir(parents=True, exist_ok=True)
    for script in installed.iterdir():
        first, _, rest = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            (target / script.name).write_bytes(b"#!/usr/bin/python3\n" + rest)
            (target / script.name).chmod(0o755)
        script.unlink()
    installed.rmdir()
