from dataclasses import replace
from typing import Any

import pytest

from kfext.core.ledger.fit import why_not
from kfext.model.constraints import (
    Constraints,
    Requirement,
    Term,
    VolumeConstraints,
    parse_constraints,
)
from tests.builders import PINNED, node

LABELS = {
    "zone": "a",
    "generation": "7",
    "odd": "1_0",
    "large": "9" * 30,
    "most": f"{2**63 - 1}",
}
GPU_NODE = node(
    "gpu-1",
    labels=LABELS,
    taints=[{"key": "team", "value": "vision", "effect": "NoSchedule"}],
)
PLAIN = node("plain", labels=LABELS)


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {PINNED: {"nodeSelectorTerms": list(terms)}}}}


def line(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return affinity({"matchExpressions": [line(key, operator, *values)]})


def field(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return affinity({"matchFields": [line(key, operator, *values)]})


AFFINITY: dict[str, tuple[dict[str, Any], bool]] = {
    "no constraint": ({}, True),
    "In, the value is listed": (label("zone", "In", "b", "a"), True),
    "In, the value is not listed": (label("zone", "In", "b"), False),
    "In, the label is absent": (label("rack", "In", "a"), False),
    "NotIn, the value is listed": (label("zone", "NotIn", "a"), False),
    "NotIn, the value is not listed": (label("zone", "NotIn", "b"), True),
    "NotIn, the label is absent": (label("rack", "NotIn", "a"), True),
    "Exists": (label("zone", "Exists"), True),
    "Exists, absent": (label("rack", "Exists"), False),
    "DoesNotExist": (label("rack", "DoesNotExist"), True),
    "DoesNotExist, present": (label("zone", "DoesNotExist"), False),
    "Gt, greater": (label("generation", "Gt", "6"), True),
    "Gt, equal": (label("generation", "Gt", "7"), False),
    "Lt, less": (label("generation", "Lt", "8"), True),
    "Lt, equal": (label("generation", "Lt", "7"), False),
    "Gt, the label is absent": (label("rack", "Gt", "-1"), False),
    "Gt, the label is no number": (label("zone", "Gt", "1"), False),
    "Gt, the label is a number for Python only": (label("odd", "Gt", "1"), False),
    "Gt, the label does not fit 64 bits": (label("large", "Gt", "1"), False),
    "Gt, the last number of 64 bits": (label("most", "Gt", f"{2**63 - 2}"), True),
    "Lt, one beyond 64 bits": (label("generation", "Lt", f"{2**63}"), False),
    "Gt, leading zeros": (label("generation", "Gt", "0" * 30 + "6"), True),
    "Gt, a number as long as nobody can write it": (label("generation", "Gt", "9" * 5000), False),
    "Gt, nothing to compare with": (label("generation", "Gt"), False),
    "Gt, two values": (label("generation", "Gt", "1", "2"), False),
    "an operator that nobody knows": (label("zone", "Near", "a"), False),
    "a field, the name is listed": (field("In", "plain"), True),
    "a field, another name": (field("In", "gpu-1"), False),
    "a field, NotIn": (field("NotIn", "gpu-1"), True),
    "a field, NotIn this name": (field("NotIn", "plain"), False),
    "a field with an operator that fields have not": (field("Exists"), False),
    "a field that nodes do not have": (field("In", "plain", key="metadata.uid"), False),
    "requirements of one term are ANDed": (
        affinity({"matchExpressions": [line("zone", "In", "a"), line("rack", "Exists")]}),
        False,
    ),
    "labels and fields of one term are ANDed": (
        affinity(
            {
                "matchExpressions": [line("zone", "In", "a")],
                "matchFields": [line("metadata.name", "In", "gpu-1")],
            }
        ),
        False,
    ),
    "terms are ORed": (
        affinity(
            {"matchExpressions": [line("zone", "In", "b")]},
            {"matchExpressions": [line("zone", "In", "a")]},
        ),
        True,
    ),
    "an empty term matches nothing": (affinity({}), False),
    "an empty term beside one that matches": (
        affinity({}, {"matchExpressions": [line("zone", "Exists")]}),
        True,
    ),
    "a term of empty lists matches nothing": (
        affinity({"matchExpressions": [], "matchFields": []}),
        False,
    ),
    "required affinity without a term matches nothing": (affinity(), False),
    "nodeSelector, equal": ({"nodeSelector": {"zone": "a"}}, True),
    "nodeSelector, other value": ({"nodeSelector": {"zone": "b"}}, False),
    "nodeSelector, absent": ({"nodeSelector": {"rack": ""}}, False),
    "nodeSelector and affinity both hold": (
        {"nodeSelector": {"zone": "b"}, **label("zone", "In", "a")},
        False,
    ),
}


@pytest.mark.parametrize(("spec", "want_fit"), AFFINITY.values(), ids=AFFINITY.keys())
def test_affinity(spec: dict[str, Any], want_fit: bool) -> None:
    assert (why_not(parse_constraints(spec), PLAIN) is None) is want_fit


TOLERATIONS: dict[str, tuple[dict[str, str], bool]] = {
    "equal key, value and effect": (
        {"key": "team", "value": "vision", "effect": "NoSchedule"},
        True,
    ),
    "Equal said aloud": ({"key": "team", "operator": "Equal", "value": "vision"}, True),
    "no effect means every effect": ({"key": "team", "value": "vision"}, True),
    "another effect": ({"key": "team", "value": "vision", "effect": "NoExecute"}, False),
    "another value": ({"key": "team", "value": "speech"}, False),
    "another key": ({"key": "owner", "value": "vision"}, False),
    "Exists needs no value": ({"key": "team", "operator": "Exists"}, True),
    "Exists of another key": ({"key": "owner", "operator": "Exists"}, False),
    "Exists without a key tolerates all": ({"operator": "Exists"}, True),
    "Exists without a key, for one effect": (
        {"operator": "Exists", "effect": "NoExecute"},
        False,
    ),
    "neither key nor operator": ({"value": "vision"}, False),
    "an operator that nobody knows": ({"key": "team", "operator": "Near"}, False),
}


@pytest.mark.parametrize(("toleration", "want_fit"), TOLERATIONS.values(), ids=TOLERATIONS.keys())
def test_tolerations(toleration: dict[str, str], want_fit: bool) -> None:
    constraints = parse_constraints({"tolerations": [toleration]})
    assert (why_not(constraints, GPU_NODE) is None) is want_fit


EFFECTS = {"NoSchedule": "taint team", "NoExecute": "taint team", "PreferNoSchedule": None}


@pytest.mark.parametrize(("effect", "want"), EFFECTS.items(), ids=EFFECTS.keys())
def test_which_taints_keep_pods_away(effect: str, want: str | None) -> None:
    tainted = node("n", taints=[{"key": "team", "effect": effect}])
    assert why_not(parse_constraints({}), tainted) == want


def test_every_taint_must_be_tolerated() -> None:
    both = node("n", taints=[{"key": key, "effect": "NoSchedule"} for key in ("team", "spot")])
    one = parse_constraints({"tolerations": [{"key": "team", "operator": "Exists"}]})
    assert why_not(one, both) == "taint spot"


CORDON: dict[str, tuple[list[dict[str, str]], str | None]] = {
    "nothing tolerated": ([], "cordon"),
    "another taint tolerated": ([{"key": "team", "operator": "Exists"}], "cordon"),
    "the cordon tolerated": (
        [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
        None,
    ),
    "everything tolerated": ([{"operator": "Exists"}], None),
}


@pytest.mark.parametrize(("tolerations", "want"), CORDON.values(), ids=CORDON.keys())
def test_cordon(tolerations: list[dict[str, str]], want: str | None) -> None:
    cordoned = node("n", cordoned=True)
    assert why_not(parse_constraints({"tolerations": tolerations}), cordoned) == want


NAMED: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "its node": ({}, {}, None),
    "another node": ({"nodeName": "b"}, {}, "nodeName"),
    "a cordon is kube-scheduler's affair": ({}, {"cordoned": True}, None),
    "so is a taint that keeps new pods away": (
        {},
        {"taints": [{"key": "team", "effect": "NoSchedule"}]},
        None,
    ),
    "a taint that drives pods away does so here too": (
        {},
        {"taints": [{"key": "team", "effect": "NoExecute"}]},
        "taint team",
    ),
    "the kubelet asks for the labels": ({"nodeSelector": {"rack": "1"}}, {}, "nodeSelector"),
}


@pytest.mark.parametrize(("spec", "state", "want"), NAMED.values(), ids=NAMED)
def test_a_pod_that_names_its_node(
    spec: dict[str, Any], state: dict[str, Any], want: str | None
) -> None:
    assert why_not(parse_constraints({"nodeName": "a", **spec}), node("a", **state)) == want


def expecting(*devices: str) -> Constraints:
    """A template for whose pods admission is expected to add tolerations."""
    return replace(parse_constraints({}), devices=devices)


TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
DEVICES: dict[str, tuple[tuple[str, ...], dict[str, str], str | None]] = {
    "a taint named after what the pod requests": (("nvidia.com/gpu",), TAINT, None),
    "a taint named after something else": (("amd.com/gpu",), TAINT, "taint nvidia.com/gpu"),
    "it evicts what runs": (
        ("nvidia.com/gpu",),
        {**TAINT, "effect": "NoExecute"},
        "taint nvidia.com/gpu",
    ),
    "no extended resource": ((), TAINT, "taint nvidia.com/gpu"),
}


EXPECTED: dict[str, tuple[dict[str, str], str | None]] = {
    "of a pool": ({"key": "dedicated", "effect": "NoSchedule"}, None),
    "that drives pods away": ({"key": "example.com/pool", "effect": "NoExecute"}, None),
    "of Kubernetes": (
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        "taint node.kubernetes.io/not-ready",
    ),
    "of the control plane": (
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
        "taint node-role.kubernetes.io/control-plane",
    ),
    "of an autoscaler": (
        {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"},
        "taint ToBeDeletedByClusterAutoscaler",
    ),
    "of a device that the pod does not request": (
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        "taint nvidia.com/gpu",
    ),
}


@pytest.mark.parametrize(("taint", "why"), EXPECTED.values(), ids=EXPECTED)
def test_which_taints_admission_is_expected_to_tolerate(
    taint: dict[str, str], why: str | None
) -> None:
    of = replace(parse_constraints({}), expects_tolerations=True)
    assert why_not(of, node("n", gpus=8, taints=[taint])) == why


@pytest.mark.parametrize(("devices", "taint", "why"), DEVICES.values(), ids=DEVICES)
def test_admission_adds_a_toleration_for_the_taint_of_an_extended_resource(
    devices: tuple[str, ...], taint: dict[str, str], why: str | None
) -> None:
    assert why_not(expecting(*devices), node("gpu", taints=[taint])) == why


VOLUMES: dict[str, tuple[tuple[tuple[str, ...], ...], bool]] = {
    "a volume that this zone has": ((("a",),), True),
    "a volume that another zone has": ((("b",),), False),
    "a volume that both zones have": ((("b", "a"),), True),
    "two volumes of this zone": ((("a",), ("a", "b")), True),
    "two volumes of different zones": ((("a",), ("b",)), False),
    "a volume without any place": (((),), False),
}


@pytest.mark.parametrize(("zones", "fits"), VOLUMES.values(), ids=VOLUMES)
def test_one_term_of_each_bound_volume_must_match(
    zones: tuple[tuple[str, ...], ...], *, fits: bool
) -> None:
    terms = tuple(
        tuple(Term((Requirement("zone", "In", (zone,)),)) for zone in volume) for volume in zones
    )
    constraints = Constraints(volumes=VolumeConstraints(terms=terms))
    assert why_not(constraints, PLAIN) == (None if fits else "node affinity of a volume")
