from typing import Any

import pytest

from kfext import names
from kfext.model.gpu import GpuShare
from kfext.model.pod import ReplicaKey, parse_pod
from tests.unit.objects import pod

HERE = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
THERE = {"key": "metadata.name", "operator": "In", "values": ["node-2"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {key: required}}}


PINS = {
    "no affinity": ({}, None),
    "one term names the node": (affinity({"matchFields": [HERE]}), "node-1"),
    "every term names the node": (
        affinity({"matchFields": [HERE]}, {"matchExpressions": [ZONE], "matchFields": [HERE]}),
        "node-1",
    ),
    "one term allows other nodes": (
        affinity({"matchFields": [HERE]}, {"matchExpressions": [ZONE]}),
        None,
    ),
    "terms name different nodes": (
        affinity({"matchFields": [HERE]}, {"matchFields": [THERE]}),
        None,
    ),
    "a term that contradicts itself": (affinity({"matchFields": [HERE, THERE]}), None),
}


@pytest.mark.parametrize(("spec", "want"), PINS.values(), ids=PINS)
def test_the_node_that_a_pod_is_pinned_to(spec: dict[str, Any], want: str | None) -> None:
    assert parse_pod(pod(spec=spec)).pinned_to == want


def test_a_gated_pod_keeps_its_affinity_because_the_pin_is_merged_with_it() -> None:
    spec = {"schedulingGates": [{"name": names.GATE}], **affinity({"matchFields": [HERE]})}
    parsed = parse_pod(pod(spec=spec))
    assert parsed.gated
    assert parsed.pinned_to is None
    assert parsed.affinity == spec["affinity"]


LABELS = {
    "a worker": ({names.REPLICA_TYPE: "worker", names.REPLICA_INDEX: "3"}, ReplicaKey("worker", 3)),
    "a type in upper case": (
        {names.REPLICA_TYPE: "PS", names.REPLICA_INDEX: "0"},
        ReplicaKey("ps", 0),
    ),
    "no index": ({names.REPLICA_TYPE: "worker"}, None),
    "a negative index": ({names.REPLICA_TYPE: "worker", names.REPLICA_INDEX: "-1"}, None),
    "a non-ASCII index": ({names.REPLICA_TYPE: "worker", names.REPLICA_INDEX: "\u0661"}, None),
    "an index that would fill the memory": (
        {names.REPLICA_TYPE: "worker", names.REPLICA_INDEX: "999999999"},
        None,
    ),
}


@pytest.mark.parametrize(("labels", "want"), LABELS.values(), ids=LABELS)
def test_the_replica_of_a_pod(labels: dict[str, str], want: ReplicaKey | None) -> None:
    parsed = parse_pod(pod(labels={names.JOB_NAME: "train", **labels}))
    assert parsed.replica == want


OWNERS = {
    "a training job controls it": ([{"apiVersion": "kubeflow.org/v1", "controller": True}], "u"),
    "a training job only owns it": ([{"apiVersion": "kubeflow.org/v1", "controller": False}], ""),
    "a Job of batch controls it": ([{"apiVersion": "batch/v1", "controller": True}], ""),
    "no owner": ([], ""),
}


@pytest.mark.parametrize(("owners", "want"), OWNERS.values(), ids=OWNERS)
def test_the_job_that_controls_a_pod(owners: list[dict[str, Any]], want: str) -> None:
    references = [{**owner, "kind": "PyTorchJob", "uid": "u"} for owner in owners]
    assert parse_pod(pod(ownerReferences=references)).owner_uid == want


REQUESTS = {
    "no annotations": (None, 0),
    "another annotation": ({"a": "b"}, 0),
    "a number": ({names.CHECKPOINT_REQUEST: "12"}, 12),
    "the largest": ({names.CHECKPOINT_REQUEST: "1000000000"}, 10**9),
    "beyond the largest": ({names.CHECKPOINT_REQUEST: "1000000001"}, 0),
    "a number that is too long to read": ({names.CHECKPOINT_REQUEST: "9" * 200_000}, 0),
    "a negative number": ({names.CHECKPOINT_REQUEST: "-1"}, 0),
    "non-ASCII digits": ({names.CHECKPOINT_REQUEST: "\u0661"}, 0),
    "a string": ({names.CHECKPOINT_REQUEST: "x"}, 0),
    "a number that is not a string": ({names.CHECKPOINT_REQUEST: 3}, 0),
    "annotations as a string": ("x", 0),
}


@pytest.mark.parametrize(("annotations", "want"), REQUESTS.values(), ids=REQUESTS)
def test_the_number_of_the_last_checkpoint_request(annotations: Any, want: int) -> None:
    assert parse_pod(pod(annotations=annotations)).checkpoint_request == want


@pytest.mark.parametrize(
    ("annotations", "want"), [(None, False), ({}, False), ({"a": "b"}, True)], ids=str
)
def test_whether_a_pod_has_annotations(annotations: Any, want: bool) -> None:
    assert parse_pod(pod(annotations=annotations)).annotated is want


RESERVES: dict[str, tuple[str, Any, int | None]] = {
    "a slot": (names.GPU_NAMESPACE, {names.GPU_SLOT: "3"}, 3),
    "the last slot": (names.GPU_NAMESPACE, {names.GPU_SLOT: "63"}, 63),
    "beyond the last slot": (names.GPU_NAMESPACE, {names.GPU_SLOT: "64"}, None),
    "a number with a leading zero": (names.GPU_NAMESPACE, {names.GPU_SLOT: "03"}, None),
    "non-ASCII digits": (names.GPU_NAMESPACE, {names.GPU_SLOT: "\u0663"}, None),
    "a string": (names.GPU_NAMESPACE, {names.GPU_SLOT: "x"}, None),
    "an empty label": (names.GPU_NAMESPACE, {names.GPU_SLOT: ""}, None),
    "no label": (names.GPU_NAMESPACE, {}, None),
    "labels that are a list": (names.GPU_NAMESPACE, [], None),
    "another namespace": ("team", {names.GPU_SLOT: "3"}, None),
}


@pytest.mark.parametrize(("namespace", "labels", "want"), RESERVES.values(), ids=RESERVES)
def test_only_pods_of_kfext_reserve_gpus(namespace: str, labels: Any, want: int | None) -> None:
    assert parse_pod(pod(namespace=namespace, labels=labels)).reserves == want


TERMS: dict[str, tuple[Any, GpuShare | None]] = {
    "no annotation": ({}, None),
    "terms": ({names.GPU_TERMS: '{"units":50,"high":true}'}, GpuShare(50, high=True)),
    "impossible terms": ({names.GPU_TERMS: '{"units":0}'}, None),
    "not JSON": ({names.GPU_TERMS: "{"}, None),
    "brackets that never close": ({names.GPU_TERMS: "[" * 200_000}, None),
    "terms that are too long to read": ({names.GPU_TERMS: '{"units":50}' + " " * 200_000}, None),
}


@pytest.mark.parametrize(("annotations", "want"), TERMS.values(), ids=TERMS)
def test_the_terms_on_which_a_pod_shares_a_gpu(annotations: Any, want: GpuShare | None) -> None:
    assert parse_pod(pod(annotations=annotations)).share == want
