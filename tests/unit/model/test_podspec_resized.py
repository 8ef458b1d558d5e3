"""The requests that count while a pod is resized in place."""

from typing import Any

import pytest

from kfext.model.podspec import pod_requests

SIDECAR = {"restartPolicy": "Always"}


def container(name: str, cpu: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **fields}


def allocated(name: str, cpu: str, *, effective: str | None = None) -> dict[str, Any]:
    resources = {"requests": {"cpu": effective or cpu}}
    return {"name": name, "allocatedResources": {"cpu": cpu}, "resources": resources}


def pending(reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}


POD = {"containers": [container("main", "2")]}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "no status yet": (POD, {}, 2000),
    "all three are equal": (POD, {"containerStatuses": [allocated("main", "2")]}, 2000),
    "it shrinks, and the old request is still allocated": (
        POD,
        {"containerStatuses": [allocated("main", "3")]},
        3000,
    ),
    "it shrinks, and more is still in effect than allocated": (
        POD,
        {"containerStatuses": [allocated("main", "2", effective="3")]},
        3000,
    ),
    "it grows, and the kubelet has not agreed yet": (
        POD,
        {"containerStatuses": [allocated("main", "1")], **pending("Deferred")},
        2000,
    ),
    "it would grow beyond its node": (
        POD,
        {"containerStatuses": [allocated("main", "1")], **pending("Infeasible")},
        1000,
    ),
    "a kubelet that reports no resources": (
        POD,
        {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "3"}}]},
        2000,
    ),
    "a sidecar": (
        {**POD, "initContainers": [container("side", "1", **SIDECAR)]},
        {"initContainerStatuses": [allocated("side", "2")]},
        4000,
    ),
    "an init container that has ended": (
        {**POD, "initContainers": [container("init", "1")]},
        {"initContainerStatuses": [allocated("init", "9")]},
        2000,
    ),
    "malformed values count as absent": (
        POD,
        {"containerStatuses": [7, {"name": "main", "resources": 7}], "conditions": 7},
        2000,
    ),
}


@pytest.mark.parametrize(("spec", "status", "want"), CASES.values(), ids=CASES)
def test_a_resize_counts_as_kube_scheduler_counts_it(
    spec: dict[str, Any], status: dict[str, Any], want: int
) -> None:
    assert pod_requests(spec, status)["cpu"] == want
