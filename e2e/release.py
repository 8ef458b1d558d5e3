"""Builds the files of a release from a commit: `make release VERSION=0.4.0`.

Every date in the files is the date of the commit, so that builds are reproducible.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from e2e.testbed import binaries
from e2e.testbed.paths import REPOSITORY

DIST = REPOSITORY / "dist"
SUMS = "SHA256SUMS"
_BRANCH = "main"
_OVERLAY = Path("manifests/overlays/default")
_PACKED = ("manifests", "crds", "examples", "LICENSE", "NOTICE")
"""The content of `kfext-VERSION-manifests.tar.gz`, for users who write their own overlay."""
_VERSION_IN = {
    "pyproject.toml": r'^version = "(.+)"$',
    "kfext/__init__.py": r'^__version__ = "(.+)"$',
    f"{_OVERLAY}/kustomization.yaml": r"^ *newTag: (.+)$",
    "README.md": r"^Status: (\d+\.\d+\.\d+)\.",
    "CHANGELOG.md": r"^## \[(\d.+)\] - \d{4}-\d{2}-\d{2}$",
}
"""File -> the pattern of kfext's version in it; the first match counts, so CHANGELOG's newest."""
_IMAGE = re.compile(r"\bkfext:(\d+\.\d+\.\d+)\b")
"""The image with its version in a page of docs/."""
_NEWS = re.compile(r"^## \[Unreleased\]\n(.*?)^## ", re.MULTILINE | re.DOTALL)
_BUSYBOX = {
    "type": "application",
    "bom-ref": "busybox",
    "name": "busybox",
    "description": "Of Debian's package busybox-static, in the version of the day of the build.",
    "licenses": [{"license": {"id": "GPL-2.0-only"}}],
}


@click.group(help=__doc__)
def main() -> None: ...


@main.command(help="List the reasons against a release of HEAD; exit with 1 if there are any.")
@click.argument("version")
def check(version: str) -> None:
    if reasons := [*problems(version)]:
        sys.exit("\n".join([f"HEAD is not {version} yet:", *(f"  {reason}" for reason in reasons)]))


@main.command(help="Check, write all files into dist/, and tag HEAD.")
@click.argument("version")
@click.option("--image", default="kfext", show_default=True, help="Name in manifests, untagged.")
@click.pass_context
def publish(context: click.Context, version: str, image: str) -> None:
    context.invoke(check, version=version)
    shutil.rmtree(DIST, ignore_errors=True)
    build(DIST, version=version, image=image)
    _git("tag", "--annotate", f"v{version}", f"--message=kfext {version}")
    print((DIST / SUMS).read_text(), end="")
    print(f"dist/ is kfext {version}, and HEAD has the tag v{version}: git push origin v{version}")


def problems(version: str) -> Iterator[str]:
    """Yield each reason why HEAD cannot be released as `version`."""
    if _git("status", "--porcelain"):
        yield "the tree has uncommitted changes"
    if (branch := _git("branch", "--show-current")) != _BRANCH:
        yield f"the branch is {branch or 'none'}, not {_BRANCH}"
    if _git("tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists"
    for file, found in versions():
        if found != version:
            yield f"{file} has version {found}"
    news = _NEWS.search((REPOSITORY / "CHANGELOG.md").read_text())
    if news and news[1].strip():
        yield f"CHANGELOG.md has entries under Unreleased; they belong to {version}"


def versions() -> Iterator[tuple[str, str]]:
    """Yield each file that must name kfext's version, with the version that it names, or "none"."""
    for file, expression in _VERSION_IN.items():
        match = re.search(expression, (REPOSITORY / file).read_text(), re.MULTILINE)
        yield file, match[1] if match else "none"
    for page in sorted((REPOSITORY / "docs").rglob("*.md")):
        for version in sorted({*_IMAGE.findall(page.read_text())}):
            yield str(page.relative_to(REPOSITORY)), version


def build(folder: Path, *, version: str, image: str) -> None:
    """Write the files of HEAD into a new folder. `image`: its name in the manifests, untagged."""
    folder.mkdir()
    seconds = int(_git("show", "--no-patch", "--format=%ct", "HEAD"))
    with TemporaryDirectory() as scratch:
        source = Path(scratch, f"kfext-{version}")
        source.mkdir()
        _run("git", "archive", f"--output={scratch}/HEAD.tar", "HEAD")
        _run("tar", "--extract", f"--file={scratch}/HEAD.tar", f"--directory={source}")
        _name_image(source / _OVERLAY / "kustomization.yaml", image)
        _pack_code(source, folder, seconds)
        _list_packages(source, folder / f"kfext-{version}.cdx.json")
        for name, part in (("install.yaml", _OVERLAY), ("crds.yaml", "crds")):
            rendered = _run(str(binaries.resolve("kubectl")), "kustomize", str(source / part))
            (folder / name).write_bytes(rendered)
        _pack_manifests(source, folder / f"kfext-{version}-manifests.tar.gz", seconds)
    sums = [f"{_sha256(file)}  {file.name}\n" for file in sorted(folder.iterdir())]
    (folder / SUMS).write_text("".join(sums))


def _name_image(overlay: Path, image: str) -> None:
    """Set the image of the overlay to its name in the registry."""
    text, times = re.subn(
        r"(?m)^  - name: kfext$", rf"\g<0>\n    newName: {image}", overlay.read_text()
    )
    assert times == 1, f"{overlay} names no image"
    overlay.write_text(text)


def _pack_code(source: Path, folder: Path, seconds: int) -> None:
    """Build the sdist, and the wheel from the sdist."""
    locked = ["--require-hashes", f"--build-constraints={source / 'requirements-build.lock'}"]
    uv("build", *locked, "--out-dir", str(folder), str(source), SOURCE_DATE_EPOCH=str(seconds))
    (folder / ".gitignore").unlink(missing_ok=True)  # uv writes it


def _list_packages(source: Path, target: Path) -> None:
    """Install the packages of the image in an environment, and write its bill of materials."""
    environment = target.with_suffix(".environment")
    uv("venv", f"--python={sys.executable}", str(environment))
    python = str(environment / "bin" / "python")
    lock = str(source / "requirements.lock")
    uv("pip", "install", f"--python={python}", "--require-hashes", "--requirements", lock)
    project = f"--pyproject={source / 'pyproject.toml'}"
    form = ("--output-format=JSON", "--output-reproducible")
    cyclonedx = (sys.executable, "-m", "cyclonedx_py", "environment", *form, project, python)
    bill = json.loads(_run(*cyclonedx, PYTHONPATH=""))
    shutil.rmtree(environment)
    bill["components"].append(_BUSYBOX)
    target.write_text(json.dumps(bill, indent=2) + "\n")


def _pack_manifests(source: Path, target: Path, seconds: int) -> None:
    def reproducible(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = seconds
        return member

    with (
        gzip.GzipFile(target, "wb", mtime=seconds) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as packed,
    ):
        for part in _PACKED:  # `add` adds the files of a folder in the order of their names
            packed.add(source / part, f"{source.name}/{part}", filter=reproducible)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    return _run("git", *arguments).decode().strip()


def uv(*arguments: str, **environment: str) -> None:
    """Run uv from the development environment."""
    _run(sys.executable, "-m", "uv", arguments[0], "--quiet", *arguments[1:], **environment)


def _run(*command: str, **environment: str) -> bytes:
    """Run a command in the repository; return its output, or exit with its error."""
    completed = subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **environment}, capture_output=True, check=False
    )
    if completed.returncode:
        sys.exit(f"{' '.join(command)} failed: {completed.stderr.decode().strip()}")
    return completed.stdout


if __name__ == "__main__":
    main()
