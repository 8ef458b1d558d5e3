from typing import Any

import pytest

from kfext import names
from kfext.model.job import parse_job
from tests.unit.objects import job, replica

TYPES = {
    "PyTorch keys in lower case": ("PyTorchJob", ["master", "worker"], ["Master", "Worker"]),
    "TensorFlow keys in upper case": ("TFJob", ["WORKER", "PS"], ["PS", "Worker"]),
    "rank order, not the order of the manifest": (
        "TFJob",
        ["Evaluator", "Worker", "PS", "Chief"],
        ["Chief", "PS", "Worker", "Evaluator"],
    ),
    "a type of a different kind is not run": ("PyTorchJob", ["PS", "Worker"], ["Worker"]),
    "an unknown type is not run": ("TFJob", ["Launcher"], []),
}


@pytest.mark.parametrize(("kind", "keys", "want"), TYPES.values(), ids=TYPES)
def test_replica_types(kind: str, keys: list[str], want: list[str]) -> None:
    parsed = parse_job(job(kind, specs={key: replica(1) for key in keys}))
    assert parsed is not None
    assert [group.type for group in parsed.groups] == want
    assert sorted(group.key for group in parsed.groups) == sorted(
        key for key in keys if key.lower() in map(str.lower, want)
    )


REPLICAS = {
    "unset is 1, as for the operator": (None, 1),
    "zero": (0, 0),
    "five hundred": (500, 500),
    "a string": ("3", 1),
    "negative": (-2, 1),
    "a boolean": (True, 1),
    "a fraction": (1.5, 1),
}


@pytest.mark.parametrize(("written", "want"), REPLICAS.values(), ids=REPLICAS)
def test_number_of_replicas(written: Any, want: int) -> None:
    parsed = parse_job(job(specs={"Worker": replica(written)}))
    assert parsed is not None
    assert parsed.pods == want == len(list(parsed.replicas()))


def test_replicas_come_in_rank_order() -> None:
    parsed = parse_job(job())
    assert parsed is not None
    keys = [(key.type, key.index) for key, _ in parsed.replicas()]
    assert keys == [("master", 0), ("worker", 0), ("worker", 1)]


def test_the_requests_of_a_job_are_the_sum_over_all_pods() -> None:
    requests = {"requests": {"cpu": "500m", "nvidia.com/gpu": 1}}
    containers = [{"name": "pytorch", "resources": requests}]
    parsed = parse_job(job(specs={"Worker": replica(3, containers=containers)}))
    assert parsed is not None
    assert parsed.requests == {"cpu": 1500, "nvidia.com/gpu": 3, "pods": 3}


def owned_by(kind: str, api_version: str, *, controller: object = True) -> dict[str, Any]:
    """Return the metadata of a job with an owner, after an owner that is not its controller."""
    owner = {"apiVersion": api_version, "kind": kind, "name": "sweep", "controller": controller}
    return {"ownerReferences": [{"apiVersion": "a/v1", "kind": "Other", "name": "o"}, owner]}


WRAPPED = owned_by("AppWrapper", "workload.codeflare.dev/v1beta2")
OWNERS = {
    "no other system": ({}, {}, True, ""),
    "the operator by name": ({}, {"managedBy": names.TRAINING_OPERATOR}, True, ""),
    "MultiKueue": ({}, {"managedBy": "kueue.x-k8s.io/multikueue"}, False, ""),
    "Kueue": ({"labels": {names.KUEUE_QUEUE: "q"}}, {}, True, "Kueue"),
    "an AppWrapper": (WRAPPED, {}, True, "AppWrapper sweep"),
    "an AppWrapper that Kueue started": (
        {**WRAPPED, "labels": {names.KUEUE_QUEUE: "q"}}, {}, True, "Kueue",
    ),
    "an AppWrapper, held by an earlier version of kfext": (
        {**WRAPPED, "annotations": {names.HELD: "true"}}, {}, True, "",
    ),
    "an unknown controller": (owned_by("Sweep", "x.dev/v1"), {}, True, "Sweep sweep"),
    "a trial of Katib": (owned_by("Trial", "kubeflow.org/v1beta1"), {}, True, ""),
    "a workflow of Argo": (owned_by("Workflow", "argoproj.io/v1alpha1"), {}, True, ""),
    "a CronJob": (owned_by("CronJob", "batch/v1"), {}, True, ""),
    "the pod of a step": (owned_by("Pod", "v1"), {}, True, ""),
    "an owner that is not the controller": (
        owned_by("Sweep", "x.dev/v1", controller=None), {}, True, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("metadata", "policy", "operator", "starts"), OWNERS.values(), ids=OWNERS)
def test_the_system_that_runs_a_job(
    metadata: dict[str, Any], policy: dict[str, Any], *, operator: bool, starts: str
) -> None:
    parsed = parse_job(job(run_policy=policy, **metadata))
    assert parsed is not None
    assert (parsed.run_by_operator, parsed.started_by) == (operator, starts)


def test_an_object_of_an_unknown_kind_is_not_a_training_job() -> None:
    assert parse_job({"kind": "Job"}) is None


def test_a_template_expects_tolerations_for_the_extended_resources_that_it_requests() -> None:
    limits = {"cpu": "1", "nvidia.com/gpu": "1", "rdma/hca": "1", "x.kubernetes.io/y": "1"}
    container = {"name": "pytorch", "resources": {"limits": limits}}
    parsed = parse_job(job(specs={"Worker": replica(1, containers=[container])}))
    assert parsed is not None
    assert parsed.groups[0].constraints.devices == ("nvidia.com/gpu", "rdma/hca")


def test_the_number_of_a_template_changes_with_what_it_requires_of_a_node() -> None:
    def number(**spec: Any) -> int:
        parsed = parse_job(job(specs={"Worker": replica(1, **spec)}))
        assert parsed is not None
        return parsed.groups[0].template

    assert number() == number(hostNetwork=True, containers=[{"ports": [{"containerPort": 1}]}])
    assert number() != number(nodeSelector={"pool": "x"})
    assert number() != number(containers=[{"resources": {"requests": {"cpu": "1"}}}])


RESTARTS = {
    "PyTorch's default": ("PyTorchJob", None, True),
    "TensorFlow's default": ("TFJob", None, False),
    "never": ("PyTorchJob", "Never", False),
    "by the exit code": ("TFJob", "ExitCode", True),
}


@pytest.mark.parametrize(("kind", "policy", "want"), RESTARTS.values(), ids=RESTARTS)
def test_whether_failed_pods_are_replaced(kind: str, policy: str | None, want: bool) -> None:
    worker = replica(1) | ({"restartPolicy": policy} if policy else {})
    parsed = parse_job(job(kind, specs={"Worker": worker}))
    assert parsed is not None
    assert parsed.groups[0].restarts is want


FAILS = {
    "PyTorch's default": ("PyTorchJob", None, False),
    "TensorFlow's default": ("TFJob", None, True),
    "never": ("PyTorchJob", "Never", True),
    "by the exit code": ("PyTorchJob", "ExitCode", True),
    "on failure": ("TFJob", "OnFailure", False),
    "always": ("TFJob", "Always", False),
    "not a string": ("TFJob", 3, True),
}


@pytest.mark.parametrize(("kind", "policy", "want"), FAILS.values(), ids=FAILS)
def test_whether_a_failed_pod_fails_its_job(kind: str, policy: object, want: bool) -> None:
    worker = replica(1) | ({"restartPolicy": policy} if policy else {})
    parsed = parse_job(job(kind, specs={"Worker": worker}))
    assert parsed is not None
    assert parsed.groups[0].fails is want


GRACES: dict[str, tuple[object, int]] = {
    "Kubernetes' default": (None, 30),
    "its own grace period": (5, 5),
    "none": (0, 0),
    "negative": (-1, 30),
    "a boolean": (True, 30),
    "a string": ("5", 30),
    "longer than a day": (10**400, 86_400),
}


@pytest.mark.parametrize(("written", "want"), GRACES.values(), ids=GRACES)
def test_the_grace_period_of_its_pods(written: object, want: int) -> None:
    worker = replica(1)
    worker["template"]["spec"]["terminationGracePeriodSeconds"] = written
    parsed = parse_job(job(specs={"Worker": worker}))
    assert parsed is not None
    assert parsed.groups[0].grace == want
