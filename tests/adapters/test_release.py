"""Which commits can be released, and reproducible builds of a commit."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e import release
from e2e.testbed.paths import REPOSITORY
from kfext import __version__

NEXT = "9.9.9"


def _git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


def _commit(folder: Path) -> None:
    _git(folder, "add", "--all")
    _git(folder, "commit", "--allow-empty", "--message=all")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a repository with the files that state a version, all committed on main."""
    for file, _ in release.versions():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / file, tmp_path / file)
    _git(tmp_path, "init", "--initial-branch=main")
    _commit(tmp_path)
    monkeypatch.setattr(release, "REPOSITORY", tmp_path)
    return tmp_path


def _replace_in(file: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        _commit(folder)

    return change


PROBLEMS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "nothing prevents it": (_commit, []),
    "a file is not committed": (
        lambda folder: (folder / "new").touch(),
        ["the tree has uncommitted changes"],
    ),
    "the branch is not main": (
        lambda folder: _git(folder, "switch", "--create", "other"),
        ["the branch is other, not main"],
    ),
    "the head is detached": (
        lambda folder: _git(folder, "switch", "--detach"),
        ["the branch is none, not main"],
    ),
    "the version was released before": (
        lambda folder: _git(folder, "tag", f"v{__version__}"),
        [f"the tag v{__version__} exists"],
    ),
    "the changelog has no such version": (
        _replace_in("CHANGELOG.md", f"## [{__version__}]", f"## [{NEXT}]"),
        [f"CHANGELOG.md has version {NEXT}"],
    ),
    "a version has no date": (
        _replace_in("CHANGELOG.md", f"## [{__version__}] - 20", f"## [{__version__}] - soon 20"),
        ["CHANGELOG.md has version 0.3.0"],
    ),
    "the changelog has newer entries": (
        _replace_in("CHANGELOG.md", "## [Unreleased]", "## [Unreleased]\n\n- More."),
        [f"CHANGELOG.md has entries under Unreleased; they belong to {__version__}"],
    ),
    "the manifests have another version": (
        _replace_in("manifests/overlays/default/kustomization.yaml", __version__, NEXT),
        [f"manifests/overlays/default/kustomization.yaml has version {NEXT}"],
    ),
    "a page has another version": (
        _replace_in("docs/install.md", f"kfext:{__version__}", f"kfext:{NEXT}"),
        [f"docs/install.md has version {NEXT}"],
    ),
    "a file states no version": (
        _replace_in("README.md", f"Status: {__version__}", "Status: new"),
        ["README.md has version none"],
    ),
}


@pytest.mark.parametrize(("change", "problems"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_problems_that_prevent_the_release_of_a_commit(
    repository: Path, change: Callable[[Path], None], problems: list[str]
) -> None:
    change(repository)
    assert [*release.problems(__version__)] == problems


@pytest.mark.long
def test_two_builds_of_a_commit_have_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        release.build(folder, version=__version__, image="registry.example/kfext")
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(
        [
            *("SHA256SUMS", "crds.yaml", "install.yaml", f"kfext-{__version__}-manifests.tar.gz"),
            *(f"kfext-{__version__}{end}" for end in ("-py3-none-any.whl", ".cdx.json", ".tar.gz")),
        ]
    )
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    subprocess.run(["sha256sum", "--check", "--quiet", release.SUMS], cwd=first, check=True)
    assert f"image: registry.example/kfext:{__version__}\n" in (first / "install.yaml").read_text()
    bill = json.loads((first / f"kfext-{__version__}.cdx.json").read_text())
    assert {"aiohttp", "busybox", "kopf"} <= {component["name"] for component in bill["components"]}
