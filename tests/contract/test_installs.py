"""kfext can be installed together with the packages on docs/pipelines.md."""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.contract.manifests import REPOSITORY
from tests.contract.tables import only, table

CLIENTS = ("28.1.0", "29.0.0", "30.1.0", "31.0.0", "32.0.1", "33.1.0", "34.1.0", "35.0.0", "37.0.2")
"""Releases of the Kubernetes client, the oldest first."""
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
WITH_A_CLIENT = ("tests/adapters/kube/test_connection.py", "tests/unit/pipelines")
(KFEXT_RANGE,) = (
    requirement.specifier
    for requirement in map(Requirement, PROJECT["dependencies"])
    if requirement.name == "kubernetes"
)
EXTRAS = {
    extra: list(map(Requirement, requirements))
    for extra, requirements in PROJECT["optional-dependencies"].items()
}
STEP_RANGE = SpecifierSet(
    re.findall(r"'kubernetes([^']+)'", (REPOSITORY / "tests/contract/pipeline.yaml").read_text())[0]
)
"""The Kubernetes clients that a step of a pipeline may install."""
ROWS = {only(row["package"]): row for row in table("docs/pipelines.md", "package")}
KATIB = "kubeflow-katib"
TOGETHER = {
    "where pipelines are written": ("kfp", ".[pipelines]"),
    "with the SDK of PyTorchJobs": ("kfp", ".[sdk]"),
    "with the SDK of TrainJobs": ("kfp", "kubeflow"),
    "both SDKs": ("kubeflow", ".[sdk]"),
    "all three packages": ("kfp", "kubeflow", ".[sdk]"),
    "the packages for a node with GPUs": ("kfp", ".[agent]"),
    "Katib": (KATIB, "."),
}


def _range(package: str) -> SpecifierSet:
    name = "kubeflow-training" if package == ".[sdk]" else package
    return SpecifierSet(only(ROWS[name]["Kubernetes client"]) if name in ROWS else "")


@pytest.mark.parametrize("packages", TOGETHER.values(), ids=TOGETHER)
def test_some_kubernetes_client_suits_all_packages(packages: tuple[str, ...]) -> None:
    suited = [
        client
        for client in CLIENTS
        if client in KFEXT_RANGE and all(client in _range(package) for package in packages)
    ]
    assert suited


@pytest.mark.parametrize("suited", [KFEXT_RANGE, STEP_RANGE], ids=["kfext", "a step"])
def test_the_oldest_and_the_newest_client_suit_both(suited: SpecifierSet) -> None:
    assert (CLIENTS[0] in suited, CLIENTS[-1] in suited) == (True, True)


def test_a_step_installs_no_client_that_was_never_tried() -> None:
    newest = int(CLIENTS[-1].partition(".")[0])
    assert f"{newest + 1}.0.0" not in STEP_RANGE


@pytest.mark.parametrize("extra", ["sdk", "pipelines"])
def test_the_versions_of_the_table_are_those_that_kfext_requires(extra: str) -> None:
    for requirement in EXTRAS[extra]:
        assert ROWS[requirement.name]["Version"] in requirement.specifier


def test_an_older_kfp_is_named_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as 2.13, which pip chooses beside Katib's SDK."""
    older = ModuleType("kfp")
    older.dsl = ModuleType("kfp.dsl")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kfp", older)
    (wanted,) = EXTRAS["pipelines"]
    with pytest.raises(ImportError, match=re.escape(f"pip install '{wanted}'")):
        importlib.import_module("kfext.pipelines.components")


def _resolved(folder: Path, *packages: str) -> dict[str, str] | None:
    """Return the versions that pip would install; None means that no versions suit all."""
    report = folder / "report.json"
    pinned = [
        f"{package}=={ROWS[package]['Version']}" if package in ROWS else package
        for package in packages
    ]
    command = ["-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    done = subprocess.run(
        [sys.executable, *command, f"--report={report}", *pinned],
        cwd=REPOSITORY,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        assert "ResolutionImpossible" in done.stderr, done.stderr
        return None
    chosen = (item["metadata"] for item in json.loads(report.read_text())["install"])
    return {item["name"]: item["version"] for item in chosen}


@pytest.mark.long
@pytest.mark.parametrize("client", [CLIENTS[0], CLIENTS[-1]])
def test_kubeconfigs_and_steps_work_with_the_oldest_and_the_newest_client(
    tmp_path: Path, client: str
) -> None:
    install = ["-m", "pip", "install", "--quiet", "--target", str(tmp_path)]
    subprocess.run([sys.executable, *install, f"kubernetes=={client}"], check=True)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WITH_A_CLIENT],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"},
        check=True,
    )


@pytest.mark.long
@pytest.mark.parametrize("packages", TOGETHER.values(), ids=TOGETHER)
def test_pip_finds_versions_that_suit_all(tmp_path: Path, packages: tuple[str, ...]) -> None:
    result = _resolved(tmp_path, *packages)
    assert result is not None
    assert result["kubernetes"] in KFEXT_RANGE


@pytest.mark.long
@pytest.mark.parametrize("extra", ["sdk", "pipelines"])
def test_the_newest_sdk_of_katib_has_no_solution_beside_the_requirements_of_kfext(
    tmp_path: Path, extra: str
) -> None:
    assert _resolved(tmp_path, KATIB, f".[{extra}]") is None
