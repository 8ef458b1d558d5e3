"""Makes root file systems from Debian packages, as the bases of the images.

The archives are read from apt's configuration files: `apt-get indextargets` lists only archives
that apt has already fetched lists from, and a new container has fetched none.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.testbed.preflight import Unavailable

_COMPONENT = "main"
_SCHEMES = ("http://", "https://", "file:")  # supported by debootstrap
_MIRROR_LIST = "mirror+file:"
_DEBIANS_KEY = "debian-archive"  # the names of Debian's keyrings begin with this
_OFF = {"0", "disable", "false", "no", "off", "without"}
_ONE_LINE = re.compile(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+(.+)")
SUITE = "bookworm"
PYTHON = "3.11"  # the suite's Python, the target of pip's packages
APT = Path("/etc/apt")
MIRROR = "KFEXT_DEBIAN_MIRROR"
# Files that no image needs at run time, nearly a third of the size.
BALLAST = (
    "usr/lib/libtorch-test",
    "usr/share/doc",
    "usr/share/fonts",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
)


@dataclass(frozen=True)
class Source:
    """An archive that apt installs from. `key`: its keyring; empty if apt accepts any key."""

    uri: str
    suite: str
    components: tuple[str, ...]
    key: str


def debian_mirror(suite: str, folder: Path) -> str:
    """Return the URI of Debian's main archive; empty if apt's configuration has none.

    An archive that is listed for `suite` is preferred. A mirror that is listed for a different
    release also has `suite`, but only its keyring shows that it is Debian's.
    """
    known = [
        source
        for source in sources(folder)
        if _COMPONENT in source.components
        and source.uri.startswith(_SCHEMES)
        and source.suite.isalnum()  # excludes bookworm-security and the like
        and (_DEBIANS_KEY in source.key or (source.suite == suite and not source.key))
    ]
    best = min(known, key=lambda source: (source.suite != suite, not source.key), default=None)
    return best.uri if best else ""


def sources(folder: Path) -> Iterator[Source]:
    """Yield the archives in the order in which apt reads them."""
    parts = sorted((folder / "sources.list.d").glob("*"))
    for path in (folder / "sources.list", *parts):
        if path.suffix == ".list" and path.is_file():
            yield from _one_line(path.read_text(errors="replace"))
        elif path.suffix == ".sources":
            yield from _deb822(path.read_text(errors="replace"))


def _one_line(text: str) -> Iterator[Source]:
    for line in text.splitlines():
        match = _ONE_LINE.fullmatch(line.partition("#")[0].strip())
        if match:
            options, uri, suite, components = match.groups(default="")
            key = re.search(r"signed-by\+?=(\S+)", options, re.IGNORECASE)
            yield Source(_plain(uri), suite, tuple(components.split()), key[1] if key else "")


def _deb822(text: str) -> Iterator[Source]:
    for fields in _stanzas(text):
        if "deb" not in fields.get("types", "").split():
            continue
        if fields.get("enabled", "yes").strip().lower() in _OFF:
            continue
        components = tuple(fields.get("components", "").split())
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield Source(_plain(uri), suite, components, fields.get("signed-by", "").strip())


def _stanzas(text: str) -> Iterator[Mapping[str, str]]:
    """Yield the fields of each paragraph; an indented line continues a field."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for paragraph in re.split(r"\n\s*\n", lines):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.splitlines():
            if line[:1].isspace():
                fields[name] = fields.get(name, "") + " " + line.strip()
            else:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        yield fields


def _plain(uri: str) -> str:
    """Return a URI without a final slash; if it names a list of mirrors, the first mirror."""
    if uri.startswith(_MIRROR_LIST):
        listed = Path("/" + uri.removeprefix(_MIRROR_LIST).lstrip("/"))
        lines = listed.read_text(errors="replace").splitlines() if listed.is_file() else []
        uri = next((line.split()[0] for line in lines if line.strip() and line[0] != "#"), "")
    return uri.rstrip("/")


def mirror(suite: str = SUITE) -> str:
    """Return the Debian archive's URI: KFEXT_DEBIAN_MIRROR, else apt's. Raises Unavailable."""
    uri = os.environ.get(MIRROR) or debian_mirror(suite, APT)
    if not uri:
        raise Unavailable(
            f"no mirror of Debian is known: apt on this machine ({APT}) has none. Set "
            f"{MIRROR}=http://HOST/PATH, the folder with dists/{suite}/Release"
        )
    return uri


def bootstrap(folder: Path, packages: Sequence[str], *, suite: str = SUITE) -> None:
    """Install a minimal Debian and `packages` in `folder`."""
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    ended = subprocess.run(
        [*command, suite, str(folder), mirror(suite)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    if ended.returncode != 0:
        output = "\n".join((ended.stderr or ended.stdout).splitlines()[-5:])
        raise Unavailable(
            f"debootstrap failed: {output}\nIs {mirror(suite)} reachable? {MIRROR} names another."
        )
    trim(folder)


def trim(folder: Path) -> None:
    """Remove files that no container needs, and the device nodes: containers get their own."""
    for path in (*BALLAST, "dev"):
        shutil.rmtree(folder / path, ignore_errors=True)
    for path in ("dev", "var/cache", "var/log"):
        (folder / path).mkdir(exist_ok=True)


def repair_torchrun(folder: Path) -> None:
    """Make Debian's torchrun work with Debian's Python.

    PyTorch 1.13 iterates over a flag type and expects its zero member, which Python 3.11 omits;
    torchrun then fails with "'NoneType' object has no attribute 'get'".
    """
    package = "usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing"
    file = folder / package / "api.py"
    source = file.read_text()
    faulty, repaired = "for s in Std:", "for s in Std.__members__.values():"
    if source.count(faulty) != 1:
        raise Unavailable(
            f"{file.name} of Debian's python3-torch has unknown content and cannot be repaired"
        )
    file.write_text(source.replace(faulty, repaired))
    for compiled in file.parent.glob("__pycache__/api.*.pyc"):
        compiled.unlink()
