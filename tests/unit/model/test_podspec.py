"""Requests, limits and QoS class of a pod spec, as kube-scheduler and the kubelet compute them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.podspec import cpu_limit, is_best_effort, is_guaranteed, pod_limits, pod_requests


def container(cpu: str | None = None, *, limit: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "resources": {
            **({"requests": {"cpu": cpu}} if cpu else {}),
            **({"limits": {"cpu": limit}} if limit else {}),
        },
        **fields,
    }


SIDECAR = {"restartPolicy": "Always"}
REQUESTS = {
    "containers add up": ({"containers": [container("1"), container("500m")]}, 1500),
    "the largest init container counts if it is larger": (
        {"containers": [container("1")], "initContainers": [container("3"), container("2")]},
        3000,
    ),
    "a sidecar runs beside the containers": (
        {"containers": [container("1")], "initContainers": [container("2", **SIDECAR)]},
        3000,
    ),
    "an init container runs beside the sidecars started before it": (
        {
            "containers": [container("1")],
            "initContainers": [container("2", **SIDECAR), container("4")],
        },
        6000,
    ),
    "a sidecar started later does not count yet": (
        {
            "containers": [container("1")],
            "initContainers": [container("4"), container("2", **SIDECAR)],
        },
        4000,
    ),
    "a limit alone is also the request": ({"containers": [container(limit="2")]}, 2000),
    "a request of 0 counts, whatever the limit": (
        {"containers": [container("0", limit="2"), container("1")]},
        1000,
    ),
    "pod-level requests replace the sum": (
        {"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}},
        4000,
    ),
    "a pod-level limit is the request if no container requests any": (
        {"containers": [{}], "resources": {"limits": {"cpu": "4"}}},
        4000,
    ),
    "a pod-level request of 0 counts, whatever the limit": (
        {
            "containers": [{}],
            "resources": {"requests": {"cpu": "0"}, "limits": {"cpu": "4"}},
            "overhead": {"cpu": "250m"},
        },
        250,
    ),
    "a pod-level limit is not the request if a container has a request": (
        {"containers": [container("1")], "resources": {"limits": {"cpu": "4"}}},
        1000,
    ),
    "a pod-level limit is not the request if a container requests 0": (
        {
            "containers": [container("0"), {}],
            "resources": {"limits": {"cpu": "4"}},
            "overhead": {"cpu": "250m"},
        },
        250,
    ),
    "a pod-level request replaces the init containers too": (
        {
            "containers": [container("1")],
            "initContainers": [container("3")],
            "resources": {"requests": {"cpu": "2"}},
        },
        2000,
    ),
    "overhead comes on top of pod-level requests": (
        {
            "containers": [container("1")],
            "resources": {"requests": {"cpu": "2"}},
            "overhead": {"cpu": "250m"},
        },
        2250,
    ),
    "overhead comes on top": ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
}


@pytest.mark.parametrize(("spec", "want"), REQUESTS.values(), ids=REQUESTS)
def test_the_cpu_request_of_a_pod(spec: dict[str, Any], want: int) -> None:
    assert pod_requests(spec) == {"cpu": want, "pods": 1}


LIMITS = {
    "containers add up": ({"containers": [container(limit="1"), container(limit="2")]}, 3000),
    "a container without a limit adds nothing": (
        {"containers": [container(limit="1"), container("2")]},
        1000,
    ),
    "init containers and sidecars count as with requests": (
        {
            "containers": [container(limit="1")],
            "initContainers": [container(limit="2", **SIDECAR), container(limit="4")],
        },
        6000,
    ),
    "a pod-level limit replaces the sum": (
        {"containers": [container(limit="1")], "resources": {"limits": {"cpu": "4"}}},
        4000,
    ),
    "overhead comes on top": (
        {"containers": [container(limit="1")], "overhead": {"cpu": "250m"}},
        1250,
    ),
}


@pytest.mark.parametrize(("spec", "want"), LIMITS.values(), ids=LIMITS)
def test_the_sum_of_the_cpu_limits_of_a_pod(spec: dict[str, Any], want: int) -> None:
    assert pod_limits(spec) == {"cpu": want}


def test_overhead_alone_sets_no_limit() -> None:
    assert pod_limits({"containers": [container("1")], "overhead": {"cpu": "250m"}}) == {}


CPU_LIMITS: dict[str, tuple[dict[str, Any], int | None]] = {
    "containers add up": ({"containers": [container(limit="1"), container(limit="2")]}, 3000),
    "one container without a limit may use all CPU": (
        {"containers": [container(limit="1"), container("2")]},
        None,
    ),
    "a sidecar without a limit may use all CPU": (
        {"containers": [container(limit="1")], "initContainers": [container(**SIDECAR)]},
        None,
    ),
    "an init container has ended when the pod works": (
        {"containers": [container(limit="1")], "initContainers": [container()]},
        1000,
    ),
    "a limit of 0 is no limit": ({"containers": [container(limit="0")]}, None),
    "a pod-level limit holds for all containers": (
        {
            "containers": [container("1"), {}],
            "resources": {"limits": {"cpu": "4"}},
            "overhead": {"cpu": "250m"},
        },
        4250,
    ),
    "overhead comes on top": (
        {"containers": [container(limit="1")], "overhead": {"cpu": "250m"}},
        1250,
    ),
    "no containers": ({}, None),
}


@pytest.mark.parametrize(("spec", "want"), CPU_LIMITS.values(), ids=CPU_LIMITS)
def test_how_much_cpu_a_pod_can_use(spec: dict[str, Any], want: int | None) -> None:
    assert cpu_limit(spec) == want


def test_extended_resources_huge_pages_and_local_disk_are_resources_like_others() -> None:
    wanted = {"nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"}
    spec = {"containers": [{"resources": {"limits": wanted}}]}
    assert pod_requests(spec) == {
        "nvidia.com/gpu": 2,
        "hugepages-2Mi": 4 * 2**20,
        "ephemeral-storage": 2**30,
        "pods": 1,
    }


FULL = {"cpu": "1", "memory": "1Gi"}
GUARANTEED = {
    "requests equal limits": ({"requests": FULL, "limits": FULL}, True),
    "the same amount in another form": (
        {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": FULL},
        True,
    ),
    "limits alone": ({"limits": FULL}, True),
    "requests below limits": ({"requests": {"cpu": "500m"}, "limits": FULL}, False),
    "a request of zero": ({"requests": {**FULL, "cpu": "0"}, "limits": FULL}, False),
    "no limit on memory": ({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, False),
    "nothing": ({}, False),
}


@pytest.mark.parametrize(("resources", "want"), GUARANTEED.values(), ids=GUARANTEED)
def test_which_pods_are_guaranteed(resources: dict[str, Any], *, want: bool) -> None:
    assert is_guaranteed({"containers": [{"resources": resources}]}) is want


def test_a_pod_without_containers_is_not_guaranteed() -> None:
    assert not is_guaranteed({})


POD_LEVEL = {
    "the whole pod is limited to what it requests": ({"requests": FULL, "limits": FULL}, True),
    "limits of the whole pod alone": ({"limits": FULL}, True),
    "the whole pod may use more than it requests": (
        {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": FULL},
        False,
    ),
    "no limit on memory": ({"limits": {"cpu": "1"}}, False),
    "requests alone": ({"requests": FULL}, False),
}


@pytest.mark.parametrize(("resources", "want"), POD_LEVEL.values(), ids=POD_LEVEL)
def test_whether_pod_level_resources_make_a_pod_guaranteed(
    resources: dict[str, Any], *, want: bool
) -> None:
    assert is_guaranteed({"containers": [{}], "resources": resources}) is want


def test_containers_that_request_less_than_the_whole_pod_may_use_are_not_guaranteed() -> None:
    spec = {"containers": [{"resources": {"requests": FULL}}], "resources": {"limits": FULL}}
    assert is_guaranteed(spec)
    spec["containers"] = [{"resources": {"requests": {"cpu": "500m"}}}]
    assert not is_guaranteed(spec)


BEST_EFFORT = {
    "nothing": ({"containers": [{}]}, True),
    "a GPU and local disk": (
        {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        True,
    ),
    "a request of zero": ({"containers": [container("0")]}, True),
    "a request": ({"containers": [{}, container("1")]}, False),
    "a limit": ({"containers": [container(limit="1")]}, False),
    "an init container's request": (
        {"containers": [{}], "initContainers": [container("1")]},
        False,
    ),
    "a request of the whole pod": (
        {"containers": [{}], "resources": {"requests": {"cpu": "1"}}},
        False,
    ),
}


@pytest.mark.parametrize(("spec", "want"), BEST_EFFORT.values(), ids=BEST_EFFORT)
def test_whether_a_pod_is_best_effort(spec: dict[str, Any], want: bool) -> None:
    assert is_best_effort(spec) is want


# --- compared with a simulated life of a pod ------------------------------------------------------

cpus = st.integers(0, 4000).map(lambda number: f"{number}m")
containers = st.lists(st.builds(container, cpus), max_size=3)
init_containers = st.lists(
    st.builds(container, cpus) | st.builds(container, cpus, restartPolicy=st.just("Always")),
    max_size=5,
)


@given(containers, init_containers)
def test_a_pod_requests_the_most_that_ever_runs_at_once(
    main: list[dict[str, Any]], inits: list[dict[str, Any]]
) -> None:
    def cpu(container: dict[str, Any]) -> int:
        return int(container["resources"]["requests"]["cpu"].removesuffix("m"))

    sidecars, moments = 0, []
    for container in inits:
        moments.append(sidecars + cpu(container))
        sidecars += cpu(container) if "restartPolicy" in container else 0
    moments.append(sidecars + sum(map(cpu, main)))
    spec = {"containers": main, "initContainers": inits}
    assert pod_requests(spec).get("cpu", 0) == max(moments)
