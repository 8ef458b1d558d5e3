"""Every bound of a pod or template: at it the pod is handled, beyond it a reason says why not."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from kfext import names
from kfext.model import bounds, quantity
from kfext.model.pod import parse_pod
from kfext.model.pod_bounds import pod_excess, template_excess
from kfext.model.quantity import amount
from tests.unit.objects import Raw, odd_pods

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def containers(number: int, **fields: Any) -> list[Raw]:
    return [{"name": f"c{index}", **fields} for index in range(number)]


def node_affinity(terms: list[Raw]) -> Raw:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def requirement(*values: str) -> Raw:
    return {"key": "k", "operator": "In", "values": list(values)}


Make = Callable[[int], Raw]
BOUNDS: dict[str, tuple[int, Make]] = {
    "containers": (bounds.MOST_CONTAINERS, lambda n: {"containers": containers(n)}),
    "containers, init containers among them": (
        bounds.MOST_CONTAINERS,
        lambda n: {"containers": containers(1), "initContainers": containers(n - 1)},
    ),
    "tolerations": (bounds.MOST_TOLERATIONS, lambda n: {"tolerations": [{}] * n}),
    "volumes": (bounds.MOST_VOLUMES, lambda n: {"volumes": [{"emptyDir": {}}] * n}),
    "topology spread constraints": (
        bounds.MOST_SPREADS,
        lambda n: {"topologySpreadConstraints": [{}] * n},
    ),
    "entries of nodeSelector": (
        bounds.MOST_LABELS,
        lambda n: {"nodeSelector": {f"k{index}": "v" for index in range(n)}},
    ),
    "scheduling gates of others": (
        bounds.MOST_GATES,
        lambda n: {"schedulingGates": [{"name": f"g{index}"} for index in range(n)]},
    ),
    "characters in a name": (
        bounds.LONGEST_NAME,
        lambda n: {"priorityClassName": "p" * n},
    ),
    "terms of required node affinity": (
        bounds.MOST_TERMS,
        lambda n: node_affinity([{"matchExpressions": [requirement("a")]}] * n),
    ),
    "requirements in required node affinity": (
        bounds.MOST_REQUIREMENTS,
        lambda n: node_affinity(
            [{"matchExpressions": [requirement()] * (n - 1), "matchFields": [requirement()]}]
        ),
    ),
    "values in required node affinity": (
        bounds.MOST_VALUES,
        lambda n: node_affinity([{"matchFields": [requirement(*("v" * n))]}]),
    ),
    "values or more in affinity": (
        bounds.MOST_PARTS - 1,
        lambda n: {"affinity": {"podAffinity": [0] * n}},
    ),
    "values or more in tolerations": (
        bounds.MOST_PARTS - 2,
        lambda n: {"tolerations": [{"key": "k" * (64 * n)}]},
    ),
    "values or more in nodeSelector": (
        bounds.MOST_PARTS - 1,
        lambda n: {"nodeSelector": {"k": "v" * (64 * n)}},
    ),
    "resource names": (
        bounds.MOST_RESOURCES,
        lambda n: {
            "containers": containers(2, resources={"limits": {f"x/{at}": 1 for at in range(n)}})
        },
    ),
    "values or more in resources": (
        bounds.MOST_PARTS - 6,  # two lists with three objects of one member each, and the others
        lambda n: {"containers": [{"resources": {"requests": {"x/y": "1" * (64 * n)}}}]},
    ),
    "ports": (
        bounds.MOST_PORTS,
        lambda n: {"containers": [{"ports": [{"containerPort": 1}] * n}]},
    ),
    "values or more in ports": (
        bounds.MOST_PARTS - 3,
        lambda n: {"containers": [{"ports": [{"name": "p" * (64 * n)}]}]},
    ),
}


@pytest.mark.parametrize(("most", "make"), BOUNDS.values(), ids=BOUNDS)
def test_at_a_bound_a_pod_is_handled_and_beyond_it_is_not(most: int, make: Make) -> None:
    assert pod_excess(make(most)) == ""
    assert pod_excess(make(most + 1))


@pytest.mark.parametrize("what", BOUNDS)
def test_the_reason_has_the_field_its_size_and_what_is_allowed(what: str) -> None:
    most, make = BOUNDS[what]
    found = pod_excess(make(most + 1))
    assert what.partition(",")[0] in found
    number, _, _ = found.partition(" ")
    assert int(number) > most
    assert "that kfext handles" in found


TEMPLATES: dict[str, tuple[Raw, str]] = {
    "labels": ({"labels": {f"k{at}": "v" for at in range(129)}}, "129 labels"),
    "annotations of kfext": (
        {"annotations": {f"kfext.dev/{at}": "" for at in range(65)}},
        "65 annotations of kfext",
    ),
}


@pytest.mark.parametrize(("metadata", "want"), TEMPLATES.values(), ids=TEMPLATES)
def test_the_metadata_of_a_template_has_bounds_too(metadata: Raw, want: str) -> None:
    assert want in template_excess({"metadata": metadata})


def test_what_is_in_the_spec_of_a_template_counts() -> None:
    assert "65 containers" in template_excess({"spec": {"containers": containers(65)}})
    assert template_excess({"metadata": {"annotations": {"mine": "x" * 10**6}}, "spec": {}}) == ""


@given(odd_pods)
def test_any_pod_can_be_measured(raw: Raw) -> None:
    spec = raw.get("spec")
    assert isinstance(pod_excess(spec if isinstance(spec, dict) else {}), str)


def test_a_pod_beyond_a_bound_still_takes_what_it_requests() -> None:
    invented = {f"x.y/{at}": "1" for at in range(1000)}
    amounts = {"cpu": "3", "memory": "1Gi", **invented}
    ports = [{"containerPort": at, "hostPort": at} for at in range(1, 2000)]
    made = [{"name": "a", "resources": {"requests": amounts}, "ports": ports}]
    gate = {"name": names.GATE}
    pod = parse_pod({"spec": {"containers": made, "schedulingGates": [gate]}})
    assert (pod.requests["cpu"], pod.requests["memory"]) == (3000, 2**30)
    assert len(pod.requests) == bounds.MOST_RESOURCES
    assert len(pod.host_ports) == bounds.MOST_PORTS
    assert pod.constraints is not None
    assert "1002 resource names" in pod.constraints.excess
    assert pod.affinity == {}


def test_of_a_list_with_many_amounts_only_as_many_are_read_as_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def counted(resource: str, value: object) -> int:
        read.append(resource)
        return amount(resource, value)

    monkeypatch.setattr(quantity, "amount", counted)
    many = {**{f"x.y/{at:05}": "1" for at in range(30_000)}, "memory": "5", "cpu": "3"}
    pod = parse_pod({"spec": {"containers": [{"resources": {"requests": many}}] * 2}})
    assert (pod.requests["cpu"], pod.requests["memory"]) == (6000, 10)
    assert len(pod.requests) == bounds.MOST_RESOURCES
    assert len(read) < 10 * bounds.MOST_RESOURCES


def test_many_sidecars_with_many_resources_are_added_up_entry_by_entry() -> None:
    read = 0

    class Counted(dict[str, str]):
        def items(self) -> Any:
            nonlocal read
            read += len(self)
            return super().items()

    sidecars = [
        {"restartPolicy": "Always", "resources": {"requests": Counted({f"x/{at}": "1"})}}
        for at in range(500)
    ]
    pod = parse_pod({"spec": {"containers": [{}], "initContainers": sidecars}})
    assert len(pod.requests) == bounds.MOST_RESOURCES
    assert read < 10 * len(sidecars)
