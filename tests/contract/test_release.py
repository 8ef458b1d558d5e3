"""A release has one version everywhere, packages pinned by hashes, and correct pages."""

import re
import tomllib
from fnmatch import fnmatch

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from e2e import release
from e2e.testbed import paths
from e2e.testbed.images import rootfs
from kfext import __version__
from tests.contract.manifests import REPOSITORY
from tests.contract.tables import only, quoted, table
from tests.contract.test_installs import CLIENTS, EXTRAS, PROJECT, ROWS

BACKEND = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["build-system"]["requires"]
LOCKED = {
    "requirements.lock": [*map(Requirement, PROJECT["dependencies"]), *EXTRAS["agent"]],
    "requirements-build.lock": [*map(Requirement, BACKEND)],
}
"""Lock file that the Dockerfile installs -> the requirements of kfext that it must pin."""
PIN = re.compile(r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()


def test_every_file_that_states_a_version_states_the_same() -> None:
    versions = dict(release.versions())
    assert {"CHANGELOG.md", "README.md", "docs/install.md"} <= versions.keys()
    assert {*versions.values()} == {__version__}


@pytest.mark.parametrize("file", LOCKED)
def test_a_lock_has_a_version_with_hashes_of_each_package_that_kfext_requires(file: str) -> None:
    text = (REPOSITORY / file).read_text()
    pins = {canonicalize_name(name): version for name, version, _ in PIN.findall(text)}
    assert len(pins) == len(re.findall("^[^# ]", text, re.MULTILINE))
    for requirement in LOCKED[file]:
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


@pytest.mark.parametrize("file", LOCKED)
def test_a_lock_names_no_registry_and_the_image_installs_it(file: str) -> None:
    assert "://" not in (REPOSITORY / file).read_text()
    (line,) = (line for line in DOCKERFILE.splitlines() if line.endswith(f"--requirement {file}"))
    assert {"--require-hashes", "--only-binary=:all:"} <= {*line.split()}


def test_every_file_that_the_image_copies_exists_and_is_sent_to_the_builder() -> None:
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
        for name in line.split()
    }
    sent = [
        line[1:]
        for line in (REPOSITORY / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert {"kfext", "NOTICE", *LOCKED} <= copied
    for name in copied:
        assert (REPOSITORY / name).exists(), name
        assert any(fnmatch(name, pattern) for pattern in sent), name


ROWS_OF_PARTS = {row["part"]: row for row in table("docs/supported.md", "part")}
PINNED = {
    "Kubernetes": {*paths.RELEASES.values()},
    "Kubeflow training-operator": {paths.TRAINING_OPERATOR},
    "Kubeflow Trainer": {paths.TRAINER},
    "JobSet": {paths.JOBSET},
    "Karpenter": {paths.KARPENTER},
    "metrics-server": {paths.METRICS_SERVER},
    "Python": {*re.findall(r"^FROM python:([\d.]+)", DOCKERFILE, re.MULTILINE), rootfs.PYTHON},
    "`kubernetes`": {CLIENTS[0], CLIENTS[-1]},
    **{f"`{package}`": {row["Version"]} for package, row in ROWS.items()},
}
"""The name of a part, or its package, on the page -> the versions that the tests run."""


@pytest.mark.parametrize("part", PINNED)
def test_the_page_of_supported_versions_has_those_that_the_tests_run(part: str) -> None:
    (row,) = (row for name, row in ROWS_OF_PARTS.items() if name == part or f"({part})" in name)
    tested = {cell for cell in quoted(row["tested"]) if re.fullmatch(r"[\d.]+", cell)}
    assert tested == {version.removeprefix("v") for version in PINNED[part]}
    assert (REPOSITORY / only(row["pinned in"])).is_file()


def test_each_part_of_the_page_has_a_pin() -> None:
    assert len(ROWS_OF_PARTS) == len(PINNED) + 1  # the packages in the image
