"""`kubectl kfext explain` and `release` on a true API server, without a controller."""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.testbed.cluster import Testbed
from kfext import names
from tests.unit.objects import Raw, job, pod, replica

JOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
PODS = "/api/v1/namespaces/{}/pods"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def namespace(testbed: Testbed) -> Iterator[str]:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    testbed.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    testbed.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def kfext(testbed: Testbed) -> Run:
    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [
                *(sys.executable, "-c", "from kfext.cli.main import main; main()"),
                *(*arguments, "--kubeconfig", str(testbed.kubeconfig)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def create_queued_job(testbed: Testbed, namespace: str, name: str = "train") -> Raw:
    """Create a job as the webhook leaves it: suspended and marked."""
    fields: dict[str, Any] = {"annotations": {names.HELD: "true"}, "run_policy": {"suspend": True}}
    specs = {"Master": replica(1), "Worker": replica(2)}
    raw = job(specs=specs, **fields)
    raw["metadata"] |= {"name": name, "namespace": namespace}
    created: Raw = testbed.api.create(JOBS.format(namespace), raw)
    return created


def create_gated_pod(testbed: Testbed, owner: Raw) -> str:
    """Create a pod of a job with kfext's gate and a foreign gate; return its path."""
    namespace = owner["metadata"]["namespace"]
    reference = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    raw = pod(
        name=f"{reference['name']}-extra-0",
        labels={names.JOB_NAME: reference["name"]},
        ownerReferences=[reference],
        spec={
            "containers": [{"name": "pytorch", "image": "trainer"}],
            "schedulingGates": [{"name": "other.example/gate"}, {"name": names.GATE}],
        },
    )
    testbed.api.create(PODS.format(namespace), raw)
    return f"{PODS.format(namespace)}/{raw['metadata']['name']}"


def test_release_starts_a_queued_job_and_prints_that(
    testbed: Testbed, namespace: str, kfext: Run
) -> None:
    create_queued_job(testbed, namespace)
    done = kfext("release", "train", "-n", namespace)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (f"PyTorchJob {namespace}/train: unsuspended and marked as released\n")
    after = testbed.api.get(f"{JOBS.format(namespace)}/train")
    assert after["spec"]["runPolicy"]["suspend"] is False
    assert after["metadata"]["annotations"][names.RELEASED] == names.REASON_RELEASED_BY_USER
    for spec in after["spec"]["pytorchReplicaSpecs"].values():
        assert names.RELEASED in spec["template"]["metadata"]["annotations"]


def test_release_leaves_a_job_suspended_that_a_person_has_suspended(
    testbed: Testbed, namespace: str, kfext: Run
) -> None:
    create_queued_job(testbed, namespace)
    path = f"{JOBS.format(namespace)}/train"
    testbed.api.patch(path, {"metadata": {"annotations": {names.HELD: None}}})
    done = kfext("release", "train", "-n", namespace)
    assert done.stdout == f"PyTorchJob {namespace}/train: marked as released\n", done.stderr
    assert testbed.api.get(path)["spec"]["runPolicy"]["suspend"] is True


def test_release_removes_only_the_gate_of_kfext_from_existing_pods(
    testbed: Testbed, namespace: str, kfext: Run
) -> None:
    path = create_gated_pod(testbed, create_queued_job(testbed, namespace))
    done = kfext("release", "train", "-n", namespace)
    assert "pods ungated: 1\n" in done.stdout, done.stderr
    results = [gate["name"] for gate in testbed.api.get(path)["spec"]["schedulingGates"]]
    assert results == ["other.example/gate"]


def test_a_second_release_changes_nothing(testbed: Testbed, namespace: str, kfext: Run) -> None:
    create_queued_job(testbed, namespace)
    kfext("release", "train", "-n", namespace)
    before = testbed.api.get(f"{JOBS.format(namespace)}/train")
    done = kfext("release", "train", "-n", namespace)
    assert done.returncode == 0
    assert "already released, nothing to do" in done.stdout
    after = testbed.api.get(f"{JOBS.format(namespace)}/train")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


def test_release_all_releases_waiting_jobs_and_nothing_else(
    testbed: Testbed, namespace: str, kfext: Run
) -> None:
    create_queued_job(testbed, namespace, "one")
    create_queued_job(testbed, namespace, "two")
    suspended = job(
        run_policy={"suspend": True}, specs={"Master": replica(1), "Worker": replica(1)}
    )
    suspended["metadata"] |= {"name": "suspended", "namespace": namespace}
    testbed.api.create(JOBS.format(namespace), suspended)
    done = kfext("release", "--all", "-n", namespace)
    assert done.returncode == 0, done.stderr
    assert sorted(line.split(":")[0] for line in done.stdout.splitlines()) == [
        f"PyTorchJob {namespace}/{name}" for name in ("one", "two")
    ]
    after = testbed.api.get(f"{JOBS.format(namespace)}/suspended")
    assert after["spec"]["runPolicy"]["suspend"] is True
    assert kfext("release", "--all", "-n", namespace).stdout == "no job waits for kfext\n"


def test_explain_shows_a_queued_job(testbed: Testbed, namespace: str, kfext: Run) -> None:
    create_gated_pod(testbed, create_queued_job(testbed, namespace))
    done = kfext("explain", "train", "-n", namespace)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"PyTorchJob {namespace}/train: Queued for ")
    assert ["train-extra-0", "gated"] in [line.split() for line in done.stdout.splitlines()]
    assert "changed  1 on the job; --changes lists them" in done.stdout


def test_explain_prints_json(testbed: Testbed, namespace: str, kfext: Run) -> None:
    create_queued_job(testbed, namespace)
    content = json.loads(kfext("explain", "train", "-n", namespace, "-o", "json").stdout)
    assert (content["kind"], content["name"], content["phase"]) == ("PyTorchJob", "train", "Queued")


@pytest.mark.parametrize("command", ["explain", "release"])
def test_a_missing_job_is_reported_in_one_line(namespace: str, kfext: Run, command: str) -> None:
    done = kfext(command, "nothing", "-n", namespace)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: there is no PyTorchJob or TFJob 'nothing' in namespace '{namespace}'\n"
    )


def test_the_namespace_of_the_context_is_used(testbed: Testbed, namespace: str, kfext: Run) -> None:
    done = kfext("explain", "nothing")
    assert "in namespace 'default'" in done.stderr
