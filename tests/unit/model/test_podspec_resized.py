"""The requests that count while a pod is resized in place."""

from typing import Any

import pytest

from kfext.model.podspec import pod_requests

SIDECAR = {"restartPolicy": "Always"}


def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def allocated(name: str, cpu: str, *, effective: str | None = None) -> dict[str, Any]:
    resources = {"requests": {"cpu": effective or cpu}}
    return {"name": name, "allocatedResources": {"cpu": cpu}, "resources": resources}


def pending(reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}


ONE = {"containers": [container("main", "2")]}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "no status yet": (ONE, {}, 2000),
    "all are equal": (ONE, {"containerStatuses": [allocated("main", "2")]}, 2000),
    "it shrinks, and the old request is still allocated": (
        ONE,
        {"containerStatuses": [allocated("main", "3")]},
        3000,
    ),
    "it shrinks, and more is still in effect than allocated": (
        ONE,
        {"containerStatuses": [allocated("main", "2", effective="3")]},
        3000,
    ),
    "it grows, and the kubelet has not agreed yet": (
        ONE,
        {"containerStatuses": [allocated("main", "1")], **pending("Deferred")},
        2000,
    ),
    "it would grow beyond its node": (
        ONE,
        {"containerStatuses": [allocated("main", "1")], **pending("Infeasible")},
        1000,
    ),
    "a kubelet that reports no resources": (
        ONE,
        {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "3"}}]},
        2000,
    ),
    "a sidecar": (
        {**ONE, "initContainers": [container("side", "1", **SIDECAR)]},
        {"initContainerStatuses": [allocated("side", "2")]},
        4000,
    ),
    "an init container that has ended": (
        {**ONE, "initContainers": [container("init", "1")]},
        {"initContainerStatuses": [allocated("init", "9")]},
        2000,
    ),
    "odd values count as absent": (
        ONE,
        {"containerStatuses": [7, {"name": "main", "resources": 7}], "conditions": 7},
        2000,
    ),
}


@pytest.mark.parametrize(("spec", "status", "want"), CASES.values(), ids=CASES)
def test_a_resize_counts_as_kube_scheduler_counts_it(
    spec: dict[str, Any], status: dict[str, Any], want: int
) -> None:
    assert pod_requests(spec, status)["cpu"] == want
