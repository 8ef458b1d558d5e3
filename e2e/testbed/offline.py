"""Packs a testbed of one real node with GPUs for a machine without a network.

`pack` runs on a machine with a network. It writes one compressed archive, in parts that are small
enough to carry to the other machine: the cluster's programs and image layers from the cache, the
Debian packages that real nodes need, and Python packages. A script unpacks them there, and sets the
testbed's paths.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from e2e.testbed import binaries, controlplane, gpus, paths, realnodes, training_operator
from e2e.testbed.images import recipes
from e2e.testbed.images.rootfs import MIRROR, mirror
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import step
from e2e.testbed.realnodes.containerd import PACKAGES

_PART = "part-"
_MIB = 2**20
_CACHE, _DEBIAN, _WHEELS = "cache", "debian", "python"
_NOT_PACKED = {"libc6", "libcrypt1", "libgcc-s1", "perl-base", "debconf", "dpkg", "tar", "zlib1g"}
"""Packages that every Debian has; programs must not use two releases' versions of them."""
_PYTHON = (
    "cryptography", "google-re2", "msgspec", "orjson", "structlog", "kopf", "urllib3", "rich",
)  # fmt: skip
"""What the testbed and the bench import, except the dependencies of PyTorch for CUDA."""
_SCRIPT = f"""\
# Read this with `.` in the bash that runs the testbed. Needs root, xz and a folder for 1 GB.
into="${{KFEXT_OFFLINE:-/var/tmp/kfext-offline}}"
mkdir -p "$into"
cat "$(dirname "${{BASH_SOURCE[0]}}")"/{_PART}* | tar --extract --xz --file=- --directory="$into"
[ -e /opt/cni/bin ] || {{ mkdir -p /opt/cni && ln -s "$into/{_DEBIAN}/usr/lib/cni" /opt/cni/bin; }}
for folder in usr/sbin usr/bin sbin bin; do PATH="$PATH:$into/{_DEBIAN}/$folder"; done
export PATH KFEXT_CACHE="$into/{_CACHE}" PYTHONPATH="$PWD:$into/{_WHEELS}"
libraries="$into/{_DEBIAN}/usr/lib/x86_64-linux-gnu"
export LD_LIBRARY_PATH="$libraries${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export XTABLES_LIBDIR="$libraries/xtables" {gpus.VARIABLE}=1
"""
"""It appends to PATH, so the other machine's own programs take precedence."""


def pack(folder: Path, *, most: int, python: str) -> list[Path]:
    """Write the script and the parts of the archive; return the parts. Raises Unavailable.

    `most`: the maximum MiB of a part. `python`: the other machine's Python, such as 3.12.
    """
    os.environ[gpus.VARIABLE] = "1"
    programs = (*controlplane.BINARIES, *training_operator.BINARIES, *realnodes.BINARIES)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{_PART}*"):
        old.unlink()
    with TemporaryDirectory() as scratch:
        debian, wheels = Path(scratch, _DEBIAN), Path(scratch, _WHEELS)
        with step("fetching Debian and Python packages"):
            _fetch_debian(debian)
            _fetch_python(wheels, python)
        with step("packing"):
            contents = [*_cached(programs), (debian, _DEBIAN), (wheels, _WHEELS)]
            _write(contents, folder / _PART, most)
    # The other machine needs the same mirror, because the keys of layers depend on it.
    (folder / "unpack.sh").write_text(f"{_SCRIPT}export {MIRROR}={mirror()}\n")
    return sorted(folder.glob(f"{_PART}*"))


def _cached(programs: Iterable[str]) -> list[tuple[Path, str]]:
    """Return the files of the cache, each with its name in the archive."""
    cache = paths.cache()
    built = [binaries.resolve(program) for program in programs]
    files_beside = [path.parent / "files" for path in built if (path.parent / "files").is_dir()]
    layers = [layer.path for image in recipes.all_images() for layer in image.layers]
    digests = [path.with_suffix(".sha256") for path in layers]
    files = dict.fromkeys([*built, *files_beside, *layers, *digests])
    outside = [path for path in files if not path.is_relative_to(cache)]
    if outside:
        listed = ", ".join(map(str, outside))
        raise Unavailable(f"not built by the testbed, so not packed: {listed}")
    return [(path, f"{_CACHE}/{path.relative_to(cache)}") for path in files]


def _fetch_debian(target: Path) -> None:
    """Unpack the packages that real nodes need, with all dependencies, into a folder."""
    target.mkdir()
    options = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks",
                                           "replaces", "enhances")]  # fmt: skip
    listed = _output(["apt-cache", "depends", "--recurse", *options, *PACKAGES])
    names = {line for line in listed.splitlines() if line and not line.startswith((" ", "<"))}
    with TemporaryDirectory() as folder:
        # apt fetches as another user, who must not have access to root's folder.
        fetch = ["apt-get", "-o=APT::Sandbox::User=root", "download", *sorted(names - _NOT_PACKED)]
        _output(fetch, folder=Path(folder))
        for package in Path(folder).glob("*.deb"):
            _output(["dpkg-deb", "--extract", str(package), str(target)])


def _fetch_python(target: Path, version: str) -> None:
    platforms = [f"--platform=manylinux{libc}_x86_64" for libc in ("2014", "_2_17", "_2_28")]
    only = ["--only-binary=:all:", f"--python-version={version}", "--implementation=cp"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *only, *platforms]
    _output([*pip, "--target", str(target), *_PYTHON])


def _output(command: Sequence[str], *, folder: Path | None = None) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if ended.returncode:
        output = "\n".join(ended.stderr.splitlines()[-5:])
        raise Unavailable(f"`{' '.join(command[:4])}` failed:\n{output}")
    return ended.stdout


def _write(contents: Iterable[tuple[Path, str]], stem: Path, most: int) -> None:
    split = ["split", f"--bytes={most * _MIB}", "-", str(stem)]
    with (
        subprocess.Popen(
            ["xz", "--threads=0", "-6"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as packed,
        subprocess.Popen(split, stdin=packed.stdout),
    ):
        assert packed.stdin is not None
        with tarfile.open(fileobj=packed.stdin, mode="w|") as archive:
            for path, name in contents:
                archive.add(path, name)
        packed.stdin.close()
