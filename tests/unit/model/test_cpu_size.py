"""The CPU of a pod's training container, by its spec and by the status from the kubelet."""

from typing import Any

import pytest

from kfext.model.cpu_size import TrainerCpu, resize_problem, trainer_cpu
from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.registered import KINDS
from kfext.model.pod import parse_pod
from kfext.model.qos import QoS
from kfext.model.verdict import Verdict
from tests.builders import WITH_TEMPLATES
from tests.unit.objects import pod

Raw = dict[str, Any]
FULL = {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "1500m"}}
POLICY = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]


def trainer(name: str = "pytorch", **fields: Any) -> Raw:
    return {"containers": [{"name": name, **fields}]}


def status_of(cpu: str | None, name: str = "pytorch") -> Raw:
    limits = {} if cpu is None else {"limits": {"cpu": cpu}}
    return {
        "containerStatuses": [{"name": name, "resources": {"requests": {"cpu": "250m"}, **limits}}]
    }


CPU: dict[str, tuple[Raw, Raw, TrainerCpu | None]] = {
    "a request and a limit": (trainer(resources=FULL), {}, TrainerCpu(250, 1500)),
    "no resources": (trainer(), {}, TrainerCpu(0, None)),
    "only a request": (trainer(resources={"requests": {"cpu": "2"}}), {}, TrainerCpu(2000, None)),
    "only a limit, which is the request too": (
        trainer(resources={"limits": {"cpu": "2"}}), {}, TrainerCpu(2000, 2000)
    ),
    "a request of zero": (
        trainer(resources={"requests": {"cpu": "0"}, "limits": {"cpu": "2"}}), {},
        TrainerCpu(0, 2000),
    ),
    "only memory": (trainer(resources={"limits": {"memory": "1Gi"}}), {}, TrainerCpu(0, None)),
    "the values that the kubelet has set": (
        trainer(resources=FULL), status_of("700m"), TrainerCpu(250, 1500, given=700, allocated=250)
    ),
    "a kubelet that has set no limit": (
        trainer(resources=FULL), status_of(None), TrainerCpu(250, 1500, allocated=250)
    ),
    "the request that the kubelet has allocated": (
        trainer(resources=FULL),
        {"containerStatuses": [{"name": "pytorch", "allocatedResources": {"cpu": "370m"}}]},
        TrainerCpu(250, 1500, allocated=370),
    ),
    "the values of another container": (
        trainer(resources=FULL), status_of("700m", name="sidecar"), TrainerCpu(250, 1500)
    ),
    "a resize restarts it": (
        trainer(resources=FULL, resizePolicy=POLICY), {}, TrainerCpu(250, 1500, restarts=True)
    ),
    "only a resize of its memory restarts it": (
        trainer(resources=FULL, resizePolicy=[{**POLICY[0], "resourceName": "memory"}]), {},
        TrainerCpu(250, 1500),
    ),
    "a sidecar beside it": (
        {
            "containers": [
                {"name": "proxy", "resources": {"requests": {"cpu": "50m"}}},
                {"name": "pytorch", "resources": FULL},
            ]
        },
        {},
        TrainerCpu(250, 1500, beside=50),
    ),
    "no training container": (trainer("main", resources=FULL), {}, None),
    "a sidecar with the name of another kind's training container": (
        {"containers": [{"name": "tensorflow"}, {"name": "pytorch", "resources": FULL}]}, {},
        TrainerCpu(250, 1500),
    ),
    "only the training container of another kind": (
        trainer("tensorflow", resources=FULL), {}, None
    ),
    "a sidecar with the name of the training container": (
        {"initContainers": [{"name": "pytorch", "restartPolicy": "Always", "resources": FULL}]},
        {}, None,
    ),
    "resources of the pod itself": (
        {**trainer(resources=FULL), "resources": {"limits": {"cpu": "2"}}}, {}, None
    ),
    "no containers": ({}, {}, None),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "status", "want"), CPU.values(), ids=CPU)
def test_the_cpu_of_the_training_container(spec: Raw, status: Raw, want: TrainerCpu | None) -> None:
    assert trainer_cpu(spec, status, container="pytorch") == want
    assert parse_pod({**pod(), "spec": spec, "status": status}).trainer == want
    assert parse_pod({"spec": spec, "status": status}).trainer is None, "a pod of no job"


@pytest.mark.parametrize("kind", WITH_TEMPLATES.values(), ids=WITH_TEMPLATES)
def test_the_training_container_is_found_by_the_kind_of_the_job(kind: JobKind) -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": kind.name, "uid": "u", "controller": True}
    containers = [{"name": other.container, "resources": FULL} for other in KINDS.values()]
    for container in containers:
        spec = {"containers": [container]}
        result = parse_pod(pod(ownerReferences=[owner], spec=spec)).trainer
        trains = container["name"] == kind.container
        assert result == (TrainerCpu(250, 1500) if trains else None)
    with_all = parse_pod(pod(ownerReferences=[owner], spec={"containers": containers}))
    assert with_all.trainer == TrainerCpu(250, 1500, beside=250 * (len(KINDS) - 1))


def test_the_cpu_of_a_pod_beyond_the_bounds_is_not_read() -> None:
    spec = trainer(resources=FULL) | {"tolerations": [{"operator": "Exists"}] * 65}
    assert parse_pod({"spec": spec}).trainer is None


def conditions(*reasons: tuple[str, str]) -> Raw:
    return {
        "conditions": [
            {"type": type_, "status": "True", "reason": reason, "message": f"of {type_}"}
            for type_, reason in reasons
        ]
    }


READY = ("Ready", "Error")
DEFERRED = ("PodResizePending", "Deferred")
INFEASIBLE = ("PodResizePending", "Infeasible")
FAILED = ("PodResizeInProgress", "Error")
RUNNING_RESIZE = ("PodResizeInProgress", "")
PENDING, IN_PROGRESS = "of PodResizePending", "of PodResizeInProgress"
PROBLEMS: dict[str, tuple[Raw, Verdict | None]] = {
    "no conditions": ({}, None),
    "conditions of other kinds": (conditions(READY), None),
    "the node has no capacity now": (conditions(READY, DEFERRED), Verdict("Deferred", PENDING)),
    "the node never has capacity": (conditions(INFEASIBLE), Verdict("Infeasible", PENDING)),
    "a condition with a malformed type": (
        {"conditions": [{"type": ["PodResizePending"], "reason": "Deferred"}]}, None
    ),
    "it failed": (conditions(FAILED), Verdict("Error", IN_PROGRESS)),
    "it is in progress": (conditions(RUNNING_RESIZE), None),
    "it failed, and a newer resize waits": (
        conditions(FAILED, DEFERRED), Verdict("Deferred", PENDING)
    ),
    "it is in progress, and a newer resize waits": (
        conditions(DEFERRED, RUNNING_RESIZE), Verdict("Deferred", PENDING)
    ),
}  # fmt: skip


@pytest.mark.parametrize(("status", "want"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_reason_why_a_resize_is_not_carried_out(status: Raw, want: Verdict | None) -> None:
    assert resize_problem(status) == want
    assert parse_pod({"status": status}).resize_problem == want


def test_a_long_message_about_a_resize_is_cut() -> None:
    (condition,) = conditions(DEFERRED)["conditions"]
    result = resize_problem({"conditions": [condition | {"message": "x" * 100_000}]})
    assert result == Verdict("Deferred", "x" * 512)


QOS: dict[str, tuple[Raw, QoS]] = {
    "all requests are limits": ({"limits": {"cpu": "1", "memory": "1Gi"}}, QoS.GUARANTEED),
    "a limit above the request": (FULL, QoS.BURSTABLE),
    "nothing requested": ({}, QoS.BEST_EFFORT),
    "only a GPU": ({"limits": {"nvidia.com/gpu": "1"}}, QoS.BEST_EFFORT),
}


@pytest.mark.parametrize(("resources", "want"), QOS.values(), ids=QOS)
def test_the_qos_class_of_a_pod(resources: Raw, want: QoS) -> None:
    assert parse_pod(pod(spec=trainer(resources=resources))).qos is want
