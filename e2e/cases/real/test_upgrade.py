"""Upgrade and rollback by the commands of docs/install.md, with real Deployments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.install import install_kfext, uninstall_kfext, wait_installed
from e2e.harness.manual import Shell, commands, unpack_0_1
from e2e.harness.training import pods_of, pytorch_job, submit, trained
from e2e.testbed.cluster import Testbed
from e2e.testbed.images.recipes import kfext_image
from e2e.testbed.realnodes import give_image
from kfext import names

_SECRET = f"/api/v1/namespaces/{names.NAMESPACE}/secrets/{names.CA_SECRET}"
_ROLLED_OUT = (
    f"kubectl -n {names.NAMESPACE} rollout status --timeout=300s"
    " deployment/kfext-webhook deployment/kfext-controller"
)


@pytest.fixture
def version_0_1(bed: Testbed, tmp_path: Path) -> Iterator[Shell]:
    """A shell in version 0.1, which is installed; afterwards this version is again."""
    try:
        folder = unpack_0_1(tmp_path)
    except LookupError as error:
        pytest.skip(str(error))
    give_image(bed, kfext_image(folder, name="kfext:0.1.0"))
    uninstall_kfext(bed)
    shell = Shell(bed, tmp_path / "shell-0.1", version=folder)
    shell.run("kubectl apply --server-side -k manifests/overlays/default")
    wait_installed(bed)
    yield shell
    uninstall_kfext(bed)
    install_kfext(bed)


def training(name: str, *, steps: int) -> Any:
    """Return a job so small that two fit beside kfext's pods, old and new."""
    arguments = ("--model", "cnn", "--steps", str(steps))
    return pytorch_job(name, cpu="100m", memory="400Mi", arguments=arguments)


def ran_on_one_node(bed: Testbed, namespace: str, name: str) -> None:
    """Train a short job, which kfext is to place."""
    job = training(name, steps=5)
    assert len(set(trained(submit(bed, job, namespace), job, namespace).values())) == 1
    stored = bed.api.get(f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/{name}")
    assert names.PLAN in stored["metadata"]["annotations"]


def running(bed: Testbed, namespace: str) -> dict[str, str]:
    """Return the uids of the pods of the long job that run."""
    pods = pods_of(bed, namespace, "long").values()
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in pods
        if pod["status"]["phase"] == "Running"
    }


@pytest.mark.long
def test_a_cluster_is_upgraded_from_0_1_and_rolled_back_while_a_job_trains(
    bed: Testbed, managed: str, version_0_1: Shell, tmp_path: Path
) -> None:
    submit(bed, training("long", steps=100_000), managed)
    bed.wait_for(lambda: len(running(bed, managed)) == 2, what="the job runs", seconds=180)
    pods, authority = running(bed, managed), bed.api.get(_SECRET)["data"]

    here = Shell(bed, tmp_path / "shell")
    for command in commands("Upgrade"):
        here.run(command.replace("overlays/default", "overlays/testbed"))
    ran_on_one_node(bed, managed, "between-up")
    here.run(_ROLLED_OUT)
    wait_installed(bed)
    ran_on_one_node(bed, managed, "upgraded")

    for command in commands("Roll back to 0.1"):
        version_0_1.run(command)
    ran_on_one_node(bed, managed, "between-down")
    version_0_1.run(_ROLLED_OUT)
    wait_installed(bed)
    ran_on_one_node(bed, managed, "rolled-back")

    assert running(bed, managed) == pods
    assert bed.api.get(_SECRET)["data"] == authority
