"""Requests are counted as kube-scheduler counts them."""

from typing import Any

import pytest

from kfext.model.podspec import is_guaranteed, pod_requests


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
    "a sidecar started later is not there yet": (
        {
            "containers": [container("1")],
            "initContainers": [container("4"), container("2", **SIDECAR)],
        },
        4000,
    ),
    "a limit alone is also the request": ({"containers": [container(limit="2")]}, 2000),
    "pod-level requests replace the sum": (
        {"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}},
        4000,
    ),
    "overhead comes on top": (
        {"containers": [container("1")], "overhead": {"cpu": "250m"}},
        1250,
    ),
}


@pytest.mark.parametrize(("spec", "want"), REQUESTS.values(), ids=REQUESTS)
def test_cpu_requests(spec: dict[str, Any], want: int) -> None:
    assert pod_requests(spec) == {"cpu": want, "pods": 1}


FULL = {"cpu": "1", "memory": "1Gi"}
CLASSES = {
    "requests equal limits": ({"requests": FULL, "limits": FULL}, True),
    "the same amount in other words": (
        {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": FULL},
        True,
    ),
    "limits alone": ({"limits": FULL}, True),
    "requests below limits": ({"requests": {"cpu": "500m"}, "limits": FULL}, False),
    "no limit on memory": ({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, False),
    "nothing": ({}, False),
}


@pytest.mark.parametrize(("resources", "want"), CLASSES.values(), ids=CLASSES)
def test_quality_of_service(resources: dict[str, Any], *, want: bool) -> None:
    assert is_guaranteed({"containers": [{"resources": resources}]}) is want


def test_a_pod_without_containers_is_not_guaranteed() -> None:
    assert not is_guaranteed({})
