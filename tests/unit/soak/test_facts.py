"""Pod requests as the soak's checker computes them, which is how Kubernetes does."""

from fractions import Fraction
from typing import Any

import pytest

from e2e.soak.facts import amount, granted, requests

QUANTITIES = {
    "2": Fraction(2),
    "100m": Fraction(1, 10),
    "1.5": Fraction(3, 2),
    "4Gi": Fraction(4 * 2**30),
    "1k": Fraction(1000),
    "3M": Fraction(3 * 10**6),
    "1Ti": Fraction(2**40),
    "5u": Fraction(5, 10**6),
}


@pytest.mark.parametrize(("text", "value"), QUANTITIES.items())
def test_quantities_are_parsed(text: str, value: Fraction) -> None:
    assert amount(text) == value


def container(cpu: str, **fields: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **fields}


PODS = {
    "containers run together": ({"containers": [container("1"), container("2")]}, 3),
    "an init container runs before": (
        {"containers": [container("1")], "initContainers": [container("4")]},
        4,
    ),
    "a sidecar runs beside": (
        {
            "containers": [container("1")],
            "initContainers": [container("2", restartPolicy="Always")],
        },
        3,
    ),
    "a sidecar runs beside the init container after it": (
        {
            "containers": [container("1")],
            "initContainers": [container("2", restartPolicy="Always"), container("3")],
        },
        5,
    ),
    "a limit alone is a request": (
        {"containers": [{"resources": {"limits": {"cpu": "2"}}}]},
        2,
    ),
    "overhead is added": ({"containers": [container("1")], "overhead": {"cpu": "1"}}, 2),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "cpus"), PODS.values(), ids=PODS.keys())
def test_the_requests_of_a_pod_are_summed_like_in_kubernetes(
    spec: dict[str, Any], cpus: int
) -> None:
    assert requests(spec) == {"cpu": cpus, "pods": 1}


RESIZED = {
    "larger, and not carried out yet": ("4", "2", 4),
    "smaller, and not carried out yet": ("1", "2", 2),
    "carried out": ("2", "2", 2),
}


@pytest.mark.parametrize(("requested", "granted_cpu", "cpus"), RESIZED.values(), ids=RESIZED.keys())
def test_a_pod_in_a_resize_occupies_the_larger_amount(
    requested: str, granted_cpu: str, cpus: int
) -> None:
    spec = {"containers": [container(requested, name="main")]}
    status = {"name": "main", "resources": {"requests": {"cpu": granted_cpu}}}
    assert requests(spec, {"containerStatuses": [status]})["cpu"] == cpus
    assert granted(spec, {"containerStatuses": [status]})["cpu"] == int(granted_cpu)
