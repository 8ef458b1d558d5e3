"""Decoding from the wire gives the same values as the parsers of the model, for any object."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.kube.wire import Shared, decode_limit_range, decode_node, decode_pod, decode_rendered
from kfext.model.bounds import MAX_RENDERED
from kfext.model.cpu_size import TrainerCpu
from kfext.model.node import parse_node
from kfext.model.pod import parse_pod
from kfext.model.rendered import parse_rendered
from kfext.model.unmodelled import JUDGED_VOLUMES
from kfext.model.verdict import Verdict
from tests.trainjobs import jobset, replicated_job

TERM = {
    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}],
}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "job-worker-3",
        "namespace": "team",
        "uid": "u-1",
        "resourceVersion": "77",
        "creationTimestamp": "2026-11-21T12:00:00Z",
        "deletionTimestamp": "2026-11-21T13:00:00Z",
        "labels": {
            "training.kubeflow.org/job-name": "job",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "3",
        },
        "annotations": {
            "kfext.dev/released": "NoRoom",
            "kfext.dev/plan-generation": "4",
            "kfext.dev/checkpoint-request": "2",
        },
        "ownerReferences": [
            {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "uid": "j", "controller": True}
        ],
        "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "nodeName": "node-1",
        "nodeSelector": {"disk": "ssd"},
        "hostNetwork": True,
        "schedulerName": "volcano",
        "overhead": {"memory": "16Mi"},
        "resources": {"requests": {"cpu": "3"}},
        "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}],
        "resourceClaims": [{"name": "card"}],
        "workloadRef": {"name": "w"},
        "schedulingGroup": {"podGroupName": "g"},
        "volumes": [
            {"name": "token-x", "projected": {"sources": []}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            *({"name": type_, type_: {"some": "field"}} for type_ in JUDGED_VOLUMES),
        ],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}
            }
        },
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"resources": {"requests": {"memory": "4Gi"}}},
        ],
        "containers": [
            {
                "name": "pytorch",
                "env": [{"name": "A", "value": "B"}],
                "ports": [{"containerPort": 23456, "protocol": "TCP"}],
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                "resources": {
                    "requests": {"cpu": "1500m", "memory": "2Gi"},
                    "limits": {"nvidia.com/gpu": "2"},
                },
            }
        ],
    },
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"},
            {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "busy"},
        ],
        "containerStatuses": [
            {
                "name": "pytorch",
                "image": "i",
                "allocatedResources": {"memory": "6Gi"},
                "resources": {"requests": {"memory": "2Gi"}, "limits": {"cpu": "700m"}},
            }
        ],
        "initContainerStatuses": [{"name": "side", "resources": {"requests": {"cpu": "300m"}}}],
    },
}
# Pod-level resources replace container resources, so the pod above has no trainer.
RESIZED = copy.deepcopy(POD)
del RESIZED["spec"]["resources"]
GATED = copy.deepcopy(POD)
GATED["spec"]["schedulingGates"] = [{"name": "kfext.dev/placement"}]
NODE: dict[str, Any] = {
    "metadata": {"name": "node-1", "uid": "n", "labels": {"zone": "a"}},
    "spec": {
        "unschedulable": True,
        "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
    },
    "status": {
        "allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"},
        "images": [{"names": ["large"]}],
    },
}


def paths_in(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    children: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return [at, *(path for key, child in children for path in paths_in(child, (*at, key)))]


def changed(base: Any, path: tuple[str | int, ...], value: Any) -> Any:
    result = copy.deepcopy(base)
    parent = result
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return result


MALFORMED = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.integers(), st.text(max_size=3))),
)


PODS = {"full": POD, "resized": RESIZED, "gated": GATED, "empty": {}, "{}": {"metadata": {}}}


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_a_pod_is_read_as_by_the_model(pod: dict[str, Any]) -> None:
    assert decode_pod(json.dumps(pod).encode()) == parse_pod(pod)


def test_every_field_that_the_model_reads_is_decoded() -> None:
    pod, gated = (decode_pod(json.dumps(raw).encode()) for raw in (POD, GATED))

    assert pod.owner_uid == "j"
    assert pod.replica is not None
    assert (pod.replica.type, pod.replica.index) == ("worker", 3)
    assert (pod.node_name, pod.pinned_to, pod.phase, pod.deleting) == (
        "node-1",
        "node-1",
        "Running",
        True,
    )
    assert pod.requests == {
        "cpu": 3000,
        "memory": 6 * 2**30 + 16 * 2**20,
        "nvidia.com/gpu": 2,
        "pods": 1,
    }
    assert pod.host_ports == (("TCP", 23456),)
    assert pod.scheduler == "volcano"
    assert pod.unschedulable == "no"
    assert (pod.annotated, pod.checkpoint_request) == (True, 2)
    assert pod.created > 0
    assert gated.gated
    assert gated.affinity == POD["spec"]["affinity"]
    assert gated.constraints is not None
    assert gated.constraints.node_selector == (("disk", "ssd"),)
    assert len(gated.constraints.tolerations) == 1
    assert gated.constraints.claims == ("data",)
    # Besides the volumes: a spread constraint, a resource claim and two fields of gangs.
    assert len(gated.constraints.unmodelled) == 4 + len(JUDGED_VOLUMES)
    resized = decode_pod(json.dumps(RESIZED).encode())
    assert resized.trainer == TrainerCpu(1500, None, given=700, restarts=True, beside=100)
    assert resized.resize_problem == Verdict("Deferred", "busy")


@given(
    at=st.sampled_from(
        [(base, path) for base in (POD, RESIZED, GATED) for path in paths_in(base)[1:]]
    ),
    value=MALFORMED,
)
def test_a_malformed_field_of_a_pod_is_read_as_by_the_model(
    at: tuple[Any, tuple[str | int, ...]], value: object
) -> None:
    odd = changed(*at, value)

    assert decode_pod(json.dumps(odd).encode()) == parse_pod(odd)


@given(path=st.sampled_from(paths_in(NODE)[1:]), value=MALFORMED)
def test_a_malformed_field_of_a_node_is_read_as_by_the_model(
    path: tuple[str | int, ...], value: object
) -> None:
    odd = changed(NODE, path, value)

    assert decode_node(json.dumps(odd).encode()) == parse_node(odd)


def test_equal_parts_of_different_objects_are_the_same_object() -> None:
    pod = decode_pod(json.dumps(GATED).encode())
    other = decode_pod(json.dumps(changed(GATED, ("metadata", "uid"), "u-2")).encode())

    assert pod != other
    for part in ("requests", "constraints", "host_ports", "replica", "node_name"):
        assert getattr(pod, part) is getattr(other, part), part
    assert (
        decode_node(json.dumps(NODE).encode()).allocatable
        is decode_node(json.dumps(changed(NODE, ("metadata", "name"), "b")).encode()).allocatable
    )


def test_pods_that_differ_only_in_the_name_of_their_token_share_their_requests() -> None:
    pod = decode_pod(json.dumps(GATED).encode())
    renamed = changed(GATED, ("spec", "volumes", 0, "name"), "token-y")

    assert pod.constraints is decode_pod(json.dumps(renamed).encode()).constraints


def test_pods_that_differ_only_in_their_node_share_their_requests() -> None:
    pod = decode_pod(json.dumps(POD).encode())
    other = decode_pod(json.dumps(changed(POD, ("spec", "nodeName"), "node-2")).encode())

    assert (pod.node_name, other.node_name) == ("node-1", "node-2")
    assert pod.requests is other.requests
    assert pod.host_ports is other.host_ports


def test_pods_with_equal_cpu_share_the_value() -> None:
    pod = decode_pod(json.dumps(RESIZED).encode())
    other = decode_pod(json.dumps(changed(RESIZED, ("metadata", "uid"), "u-2")).encode())

    assert pod.trainer is other.trainer


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'"text"'])
def test_a_malformed_object_is_refused_with_an_error_that_the_informer_skips(raw: bytes) -> None:
    for decode in (decode_pod, decode_node):
        with pytest.raises((ValueError, TypeError)):
            decode(raw)


def test_an_edited_limit_range_differs_from_the_old_value() -> None:
    """If not, the informer would not report it, and refused jobs would never be tried again."""
    metadata = {"name": "l", "namespace": "team", "uid": "u"}
    first, second = (
        decode_limit_range(json.dumps({"metadata": {**metadata, "resourceVersion": v}}).encode())
        for v in ("1", "2")
    )
    assert first.namespace == second.namespace == "team"
    assert first != second


# --- objects that operators render from jobs ------------------------------------------------------

JOBSET = jobset(replicated_job("first", pods=1), replicated_job(after={"first": "Complete"}))


@given(at=st.sampled_from(paths_in(JOBSET)[1:]), value=MALFORMED)
def test_a_malformed_field_of_a_jobset_is_read_as_by_the_model(
    at: tuple[str | int, ...], value: object
) -> None:
    odd = changed(JOBSET, at, value)
    if isinstance(odd.get("metadata"), dict):
        assert decode_rendered(json.dumps(odd).encode()) == parse_rendered(odd)


def with_env(number: int) -> Any:
    result = replicated_job()
    (container,) = result["template"]["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": f"V{at}"} for at in range(number)]
    return result


def with_annotations(number: int) -> Any:
    return replicated_job(annotations={f"kfext.dev/{at}": "" for at in range(number)})


LARGE: dict[str, list[Any]] = {
    "28,000 replicated jobs": [{"name": f"n{at}", "template": {}} for at in range(28_000)],
    "environment variables": [with_env(MAX_RENDERED)],
    "annotations of a template": [with_annotations(MAX_RENDERED)],
    "many dependencies": [{"name": "a", "dependsOn": [{"name": "x"}] * MAX_RENDERED}],
}


@pytest.mark.parametrize("replicated", LARGE.values(), ids=LARGE)
def test_a_jobset_with_too_many_values_is_not_read(replicated: list[Any]) -> None:
    rendered = decode_rendered(json.dumps(jobset(*replicated)).encode())
    assert rendered is not None
    assert rendered.job_uid == "uid-of-the-job"
    assert rendered.templates.groups == ()
    assert f"values, more than the {MAX_RENDERED} that kfext handles" in rendered.templates.beyond


def test_a_jobset_with_the_allowed_number_of_large_templates_is_read() -> None:
    rendered = decode_rendered(
        json.dumps(jobset(*[{**with_env(1000), "name": f"n{at}"} for at in range(16)])).encode()
    )
    assert rendered is not None
    assert len(rendered.templates.groups) == 16
    assert not rendered.templates.beyond


# --- the cache of equal parts, bounded by bytes --------------------------------------------------


def test_equal_texts_are_decoded_once() -> None:
    cache: Shared[list[int]] = Shared()
    assert cache.get_or_decode(b"text", list) is cache.get_or_decode(b"text", list)


def test_the_cached_texts_have_a_bounded_size_and_the_oldest_are_dropped() -> None:
    cache: Shared[bytes] = Shared(most=100, longest=50)
    for number in range(1000):
        cache.get_or_decode(b"%08d" % number, bytes)
        assert cache.bytes <= 100
    assert cache.get_or_decode(b"%08d" % 999, lambda text: b"decoded again") == b"00000999"
    assert cache.get_or_decode(b"%08d" % 0, lambda text: b"decoded again") == b"decoded again"


def test_a_long_text_is_not_cached() -> None:
    cache: Shared[int] = Shared(most=100, longest=50)
    assert cache.get_or_decode(b"x" * 51, len) == 51
    assert cache.bytes == 0
