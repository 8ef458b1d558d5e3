"""The charge of a pod to the resource quotas of its namespace."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.charge import PodCharge, pod_charge
from tests.unit.objects import json_values, scalars

GI = 2**30


def pod(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "containers": [{"name": f"c{n}", **container} for n, container in enumerate(containers)],
        **fields,
    }


def container(limits: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    return {
        "resources": {
            **({"requests": requests} if requests else {}),
            **({"limits": limits} if limits else {}),
        }
    }


ONE_POD = {"pods": 1, "count/pods": 1}
USAGE: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "a pod without requests is still a pod": (pod({}), ONE_POD),
    "a request counts under two names": (
        pod(container(cpu="500m")),
        {**ONE_POD, "cpu": 500, "requests.cpu": 500},
    ),
    "a limit is a request too": (
        pod(container({"memory": "1Gi"})),
        {**ONE_POD, "memory": GI, "requests.memory": GI, "limits.memory": GI},
    ),
    "requests and limits add up separately": (
        pod(container({"cpu": "4"}, cpu="1"), container(cpu="2")),
        {**ONE_POD, "cpu": 3000, "requests.cpu": 3000, "limits.cpu": 4000},
    ),
    "an init container counts if it is larger": (
        pod(container({"cpu": "1"}), initContainers=[container({"cpu": "3"})]),
        {**ONE_POD, "cpu": 3000, "requests.cpu": 3000, "limits.cpu": 3000},
    ),
    "ephemeral storage has all three names": (
        pod({"resources": {"limits": {"ephemeral-storage": "1Gi"}}}),
        {
            **ONE_POD,
            "ephemeral-storage": GI,
            "requests.ephemeral-storage": GI,
            "limits.ephemeral-storage": GI,
        },
    ),
    "a GPU is counted as a request only": (
        pod({"resources": {"limits": {"nvidia.com/gpu": "2"}}}),
        {**ONE_POD, "requests.nvidia.com/gpu": 2},
    ),
    "huge pages count under two names": (
        pod({"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}),
        {**ONE_POD, "hugepages-2Mi": 4 * 2**20, "requests.hugepages-2Mi": 4 * 2**20},
    ),
    "overhead comes on top of requests, and of existing limits": (
        pod(container({"cpu": "1"}, memory="1Gi"), overhead={"cpu": "100m", "memory": "1Gi"}),
        {
            **ONE_POD,
            "cpu": 1100,
            "requests.cpu": 1100,
            "limits.cpu": 1100,
            "memory": 2 * GI,
            "requests.memory": 2 * GI,
        },
    ),
    "resources of the whole pod replace the sums": (
        pod(container({"cpu": "1"}), resources={"requests": {"cpu": "2"}, "limits": {"cpu": "5"}}),
        {**ONE_POD, "cpu": 2000, "requests.cpu": 2000, "limits.cpu": 5000},
    ),
}


@pytest.mark.parametrize(("spec", "want"), USAGE.values(), ids=USAGE)
def test_the_usage_that_a_pod_is_charged_for(spec: dict[str, Any], want: dict[str, int]) -> None:
    assert dict(pod_charge(spec).usage) == want


ALL = ("limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
UNSTATED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "nothing stated": (pod({}), ALL),
    "requests stated": (pod(container(cpu="1", memory="1Gi")), ALL[:2]),
    "limits stated, so requests follow": (pod(container({"cpu": "1", "memory": "1Gi"})), ()),
    "zero counts as stated": (pod(container({"cpu": "0", "memory": "0"})), ()),
    "one container of two": (pod(container({"cpu": "1", "memory": "1Gi"}), {}), ALL),
    "an init container states only CPU": (
        pod(container({"cpu": "1", "memory": "1Gi"}), initContainers=[container({"cpu": "1"})]),
        ("limits.memory", "requests.memory"),
    ),
    "the pod as a whole states something": (pod({}, resources={"limits": {"cpu": "1"}}), ()),
}


@pytest.mark.parametrize(("spec", "want"), UNSTATED.values(), ids=UNSTATED)
def test_the_amounts_that_are_not_stated(spec: dict[str, Any], want: tuple[str, ...]) -> None:
    assert pod_charge(spec).unstated == want


def affinity(side: str, **term: Any) -> dict[str, Any]:
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {side: {rule: [{"topologyKey": "zone", **term}]}}}


PREFERRED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"namespaces": ["a"]}}
    ]
}
PROPERTIES: dict[str, tuple[dict[str, Any], PodCharge]] = {
    "without requests it is best effort": (pod({}), PodCharge(best_effort=True)),
    "with only a GPU it is best effort": (
        pod({"resources": {"limits": {"nvidia.com/gpu": "1"}}}),
        PodCharge(best_effort=True),
    ),
    "with a request it is not best effort": (pod(container(cpu="1")), PodCharge()),
    "an init container's counts": (pod({}, initContainers=[container(cpu="1")]), PodCharge()),
    "a deadline makes it terminating": (
        pod(container(cpu="1"), activeDeadlineSeconds=60),
        PodCharge(terminating=True),
    ),
    "no deadline, so not terminating": (
        pod(container(cpu="1"), activeDeadlineSeconds=None),
        PodCharge(),
    ),
    "its priority class": (
        pod(container(cpu="1"), priorityClassName="high"),
        PodCharge(priority_class="high"),
    ),
    "affinity in the namespace": (pod(container(cpu="1"), **affinity("podAffinity")), PodCharge()),
    "affinity to another namespace": (
        pod(container(cpu="1"), **affinity("podAntiAffinity", namespaces=["a"])),
        PodCharge(cross_namespace_affinity=True),
    ),
    "affinity to all namespaces": (
        pod(container(cpu="1"), **affinity("podAffinity", namespaceSelector={})),
        PodCharge(cross_namespace_affinity=True),
    ),
    "a preference for pods of another namespace": (
        pod(container(cpu="1"), affinity={"podAffinity": PREFERRED}),
        PodCharge(cross_namespace_affinity=True),
    ),
}


@pytest.mark.parametrize(("spec", "want"), PROPERTIES.values(), ids=PROPERTIES)
def test_the_properties_that_quotas_select(spec: dict[str, Any], want: PodCharge) -> None:
    charge = pod_charge(spec)
    for field in ("best_effort", "terminating", "cross_namespace_affinity", "priority_class"):
        assert getattr(charge, field) == getattr(want, field), field


_FIELDS = ("containers", "initContainers", "resources", "overhead", "affinity", "priorityClassName")
_amounts = scalars | st.dictionaries(st.sampled_from(["cpu", "a/b"]), scalars, max_size=2)
_resources = scalars | st.fixed_dictionaries(
    {}, optional={"requests": _amounts, "limits": _amounts}
)
_container = scalars | st.fixed_dictionaries({}, optional={"resources": _resources})


@given(
    st.dictionaries(st.sampled_from(_FIELDS), json_values, max_size=3),
    st.lists(_container, max_size=2),
    scalars,
)
def test_any_spec_can_be_charged(
    spec: dict[str, Any], containers: list[Any], deadline: object
) -> None:
    charge = pod_charge({"containers": containers, "activeDeadlineSeconds": deadline, **spec})
    assert isinstance(hash(charge), int)
    assert all(number > 0 for _, number in charge.usage)
