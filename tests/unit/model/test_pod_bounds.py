"""The bounds on pods and templates: kfext handles a pod at a bound, and names an exceeded bound."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given

from kfext import names
from kfext.model import bounds, quantity
from kfext.model.job import parse_job
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
VALUES = "values that matter for its placement"
TERMS = "terms of node affinity and topology spread"


class Bound(NamedTuple):
    """A bound on pods: `make(n)` is a pod spec with n things; `what`: their name in messages."""

    make: Make
    most: int = bounds.MAX_VALUES
    what: str = VALUES


BOUNDS: dict[str, Bound] = {
    "containers": Bound(lambda n: {"containers": containers(n)}),
    "containers and init containers together": Bound(
        lambda n: {"containers": containers(1), "initContainers": containers(n - 1)}
    ),
    "volumes": Bound(lambda n: {"volumes": [{"emptyDir": {}}] * n}),
    "a node selector": Bound(lambda n: {"nodeSelector": {f"k{index}": "v" for index in range(n)}}),
    "other gates": Bound(lambda n: {"schedulingGates": [0] * n + [{"name": names.GATE}]}),
    "a long name": Bound(lambda n: {"priorityClassName": "p" * (bounds.LONGEST_NAME + n)}),
    "affinity": Bound(lambda n: {"affinity": {"podAffinity": [0] * n}}, bounds.MAX_VALUES - 1),
    "values of a requirement": Bound(
        lambda n: node_affinity([{"matchFields": [requirement(*("v" * n))]}]),
        bounds.MAX_VALUES - 9,  # six objects and lists around the values, and three fields
    ),
    "a long key of a toleration": Bound(
        lambda n: {"tolerations": [{"key": "k" * (64 * n)}]}, bounds.MAX_VALUES - 2
    ),
    "a long value of a selector": Bound(
        lambda n: {"nodeSelector": {"k": "v" * (64 * n)}}, bounds.MAX_VALUES - 1
    ),
    "a long amount of a resource": Bound(
        lambda n: {"containers": [{"resources": {"requests": {"x/y": "1" * (64 * n)}}}]},
        bounds.MAX_VALUES - 3,
    ),
    "a long name of a port": Bound(
        lambda n: {"containers": [{"ports": [{"name": "p" * (64 * n)}]}]}, bounds.MAX_VALUES - 3
    ),
    "lists that are each within the bound": Bound(
        lambda n: {"volumes": [{}] * n, "containers": containers(n)}, bounds.MAX_VALUES // 2
    ),
    "resource names": Bound(
        lambda n: {
            "containers": containers(2, resources={"limits": {f"x/{at}": 1 for at in range(n)}})
        },
        bounds.MAX_RESOURCES,
        "resource names",
    ),
    "tolerations": Bound(
        lambda n: {"tolerations": [{}] * n}, bounds.MAX_TOLERATIONS, "tolerations"
    ),
    "terms of node affinity": Bound(
        lambda n: node_affinity([{"matchExpressions": [requirement("a")]}] * n),
        bounds.MAX_TERMS // 2,
        TERMS,
    ),
    "requirements of node affinity": Bound(
        lambda n: node_affinity(
            [{"matchExpressions": [requirement()] * (n - 1), "matchFields": [requirement()]}]
        ),
        bounds.MAX_TERMS - 1,
        TERMS,
    ),
    "topology spread constraints": Bound(
        lambda n: {"topologySpreadConstraints": [{}] * n}, bounds.MAX_TERMS, TERMS
    ),
    "ports": Bound(
        lambda n: {"containers": [{"ports": [{"containerPort": 1}] * n}]},
        bounds.MAX_PORTS,
        "ports",
    ),
}


@pytest.mark.parametrize(("make", "most", "what"), BOUNDS.values(), ids=BOUNDS)
def test_a_pod_is_handled_at_a_bound_and_not_beyond(what: str, most: int, make: Make) -> None:
    assert pod_excess(make(most)) == ""
    result = pod_excess(make(most + 1))
    assert what in result
    number, _, _ = result.partition(" ")
    assert int(number) > most
    assert "that kfext handles" in result


TEMPLATES: dict[str, tuple[Raw, str]] = {
    "labels": ({"labels": {f"k{at}": "v" for at in range(1001)}}, "1001 values in labels"),
    "annotations of kfext": (
        {"annotations": {f"kfext.dev/{at}": "" for at in range(65)}},
        "more than 64 annotations of kfext",
    ),
}


@pytest.mark.parametrize(("metadata", "want"), TEMPLATES.values(), ids=TEMPLATES)
def test_the_metadata_of_a_template_has_bounds_too(metadata: Raw, want: str) -> None:
    assert want in template_excess({"metadata": metadata})


def test_the_pod_spec_of_a_template_has_the_bounds_of_a_pod() -> None:
    assert f"1001 {VALUES}" in template_excess({"spec": {"containers": containers(1001)}})
    assert template_excess({"metadata": {"annotations": {"mine": "x" * 10**6}}, "spec": {}}) == ""


@given(odd_pods)
def test_any_pod_can_be_compared_with_the_bounds(raw: Raw) -> None:
    spec = raw.get("spec")
    assert isinstance(pod_excess(spec if isinstance(spec, dict) else {}), str)


def test_the_gate_of_kfext_is_found_after_any_number_of_other_gates() -> None:
    others = [{"name": f"other.example/{at}"} for at in range(300)]
    pod = parse_pod({"spec": {"schedulingGates": [*others, {"name": names.GATE}]}})
    assert pod.gated
    assert (pod.gates, pod.gate) == (301, 300)
    assert not parse_pod({"spec": {"schedulingGates": others}}).gated


def test_a_pod_beyond_a_bound_still_counts_with_its_requests_and_ports() -> None:
    invented = {f"x.y/{at}": "1" for at in range(1000)}
    amounts = {"cpu": "3", "memory": "1Gi", **invented}
    ports = [{"containerPort": at, "hostPort": at} for at in range(1, 2000)]
    trainers = [{"name": "a", "resources": {"requests": amounts}, "ports": ports}]
    gate = {"name": names.GATE}
    pod = parse_pod({"spec": {"containers": trainers, "schedulingGates": [gate]}})
    assert (pod.requests["cpu"], pod.requests["memory"]) == (3000, 2**30)
    assert len(pod.requests) == bounds.MAX_RESOURCES
    assert len(pod.host_ports) == bounds.MAX_PORTS
    assert pod.constraints is not None
    assert VALUES in pod.constraints.excess
    assert pod.affinity == {}


def test_no_more_amounts_of_a_list_are_read_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def record(resource: str, value: object) -> int:
        read.append(resource)
        return amount(resource, value)

    monkeypatch.setattr(quantity, "amount", record)
    many = {**{f"x.y/{at:05}": "1" for at in range(30_000)}, "memory": "5", "cpu": "3"}
    pod = parse_pod({"spec": {"containers": [{"resources": {"requests": many}}] * 2}})
    assert (pod.requests["cpu"], pod.requests["memory"]) == (6000, 10)
    assert len(pod.requests) == bounds.MAX_RESOURCES
    assert len(read) < 10 * bounds.MAX_RESOURCES


def test_many_sidecars_with_many_resources_are_added_up_entry_by_entry() -> None:
    read = 0

    class CountedReads(dict[str, str]):
        def items(self) -> Any:
            nonlocal read
            read += len(self)
            return super().items()

    sidecars = [
        {"restartPolicy": "Always", "resources": {"requests": CountedReads({f"x/{at}": "1"})}}
        for at in range(500)
    ]
    pod = parse_pod({"spec": {"containers": [{}], "initContainers": sidecars}})
    assert len(pod.requests) == bounds.MAX_RESOURCES
    assert read < 10 * len(sidecars)


# Every field of a pod spec that kfext reads, and some that it does not.
TERM: Raw = {"key": "k", "operator": "In", "values": ["a"]}
SELECTED: Raw = {"matchLabels": {"a": "b"}, "matchExpressions": [TERM]}
POD_TERM: Raw = {
    "labelSelector": SELECTED,
    "namespaces": ["n"],
    "topologyKey": "kubernetes.io/hostname",
}
FULL: Raw = {
    "nodeName": "n",
    "nodeSelector": {"a": "b"},
    "priorityClassName": "p",
    "schedulerName": "s",
    "hostNetwork": True,
    "overhead": {"cpu": "1m"},
    "resources": {"requests": {"cpu": "1"}},
    "schedulingGates": [{"name": "g"}],
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "labelSelector": SELECTED}
    ],
    "resourceClaims": [{"name": "c"}],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    "affinity": {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [TERM], "matchFields": [TERM]}]}
        },
        "podAffinity": {REQUIRED: [POD_TERM]},
        "podAntiAffinity": {REQUIRED: [POD_TERM]},
    },
    "containers": [
        {
            "name": "pytorch",
            "image": "i",
            "command": ["torchrun"],
            "args": ["x"],
            "env": [{"name": "A", "value": "b"}],
            "ports": [{"name": "p", "containerPort": 1, "hostPort": 1, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "1", "x/y": "1"}, "limits": {"cpu": "1"}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        }
    ],
    "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}],
}
Path = tuple[str | int, ...]


def paths_in(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the paths of the values inside a JSON value."""
    if at:
        yield at
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths_in(value[key], (*at, key))


def enlarged(value: Any) -> Any:
    """Return a value as large as a user can make it."""
    if isinstance(value, list):
        return value * 20_000
    if isinstance(value, dict):
        return {**value, **{f"k{at}": "v" for at in range(20_000)}}
    return "x" * 500_000 if isinstance(value, str) else value


def with_enlarged(value: Any, at: Path) -> Any:
    """Return a JSON value with the value at a path enlarged."""
    if not at:
        return enlarged(value)
    copied: Any = dict(value) if isinstance(value, dict) else list(value)
    copied[at[0]] = with_enlarged(value[at[0]], at[1:])
    return copied


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("at", list(paths_in(FULL)), ids=lambda at: ".".join(map(str, at)))
def test_little_is_kept_of_a_pod_whatever_a_user_makes_large(at: Path, *, gated: bool) -> None:
    spec = with_enlarged(FULL, at)
    if gated:
        spec = {**spec, "schedulingGates": [*spec["schedulingGates"], {"name": names.GATE}]}
    pod = parse_pod({"metadata": {"name": "p", "uid": "u"}, "spec": spec})
    assert len(repr(pod)) < 64 * 1024
    assert pod.gated is gated


@pytest.mark.parametrize("at", list(paths_in(FULL)), ids=lambda at: ".".join(map(str, at)))
def test_little_is_kept_of_a_job_whatever_a_user_makes_large(at: Path) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": with_enlarged(FULL, at)}
    worker = {"replicas": 2, "template": template}
    raw = {
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }
    assert len(repr(parse_job(raw))) < 64 * 1024
