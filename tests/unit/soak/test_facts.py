"""The requests of pods, counted by the soak's checker as Kubernetes counts them."""

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
def test_quantities(text: str, value: Fraction) -> None:
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
def test_requests_of_a_pod(spec: dict[str, Any], cpus: int) -> None:
    assert requests(spec) == {"cpu": cpus, "pods": 1}


RESIZED = {
    "larger, and not carried out yet": ("4", "2", 4),
    "smaller, and not carried out yet": ("1", "2", 2),
    "carried out": ("2", "2", 2),
}


@pytest.mark.parametrize(("asks", "has", "cpus"), RESIZED.values(), ids=RESIZED.keys())
def test_a_pod_that_is_resized_occupies_the_larger_amount(asks: str, has: str, cpus: int) -> None:
    spec = {"containers": [container(asks, name="main")]}
    told = {"name": "main", "resources": {"requests": {"cpu": has}}}
    assert requests(spec, {"containerStatuses": [told]})["cpu"] == cpus
    assert granted(spec, {"containerStatuses": [told]})["cpu"] == int(has)
