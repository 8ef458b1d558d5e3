"""Which nodes are eligible for a pod, for many pods at once, and for a pinned pod."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.fit import (
    Eligibility,
    Misfit,
    Obstacle,
    could_run,
    in_words,
    may_be_bound,
    why_not,
)
from kfext.model.constraints import (
    Constraints,
    Requirement,
    Term,
    VolumeConstraints,
    parse_constraints,
)
from kfext.model.gang_terms import GangTerm
from kfext.model.node import Node, Taint
from kfext.model.pod import Pod, parse_pod
from tests.builders import PINNED, affinity_to, ledger, node

LABELS = {"zone": "a", "generation": "7", "odd": "1_0", "large": "9" * 30, "most": f"{2**63 - 1}"}
GPU_NODE = node(
    "gpu-1", labels=LABELS, taints=[{"key": "team", "value": "vision", "effect": "NoSchedule"}]
)
PLAIN = node("plain", labels=LABELS)


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {PINNED: {"nodeSelectorTerms": list(terms)}}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return affinity({"matchExpressions": [expression(key, operator, *values)]})


def field(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return affinity({"matchFields": [expression(key, operator, *values)]})


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
    "Gt, a number too long to write": (label("generation", "Gt", "9" * 5000), False),
    "Gt, nothing to compare with": (label("generation", "Gt"), False),
    "Gt, two values": (label("generation", "Gt", "1", "2"), False),
    "an unknown operator": (label("zone", "Near", "a"), False),
    "a field, the name is listed": (field("In", "plain"), True),
    "a field, another name": (field("In", "gpu-1"), False),
    "a field, NotIn": (field("NotIn", "gpu-1"), True),
    "a field, NotIn this name": (field("NotIn", "plain"), False),
    "a field with an operator that fields do not have": (field("Exists"), False),
    "a field that nodes do not have": (field("In", "plain", key="metadata.uid"), False),
    "requirements of one term are ANDed": (
        affinity(
            {"matchExpressions": [expression("zone", "In", "a"), expression("rack", "Exists")]}
        ),
        False,
    ),
    "labels and fields of one term are ANDed": (
        affinity(
            {
                "matchExpressions": [expression("zone", "In", "a")],
                "matchFields": [expression("metadata.name", "In", "gpu-1")],
            }
        ),
        False,
    ),
    "terms are ORed": (
        affinity(
            {"matchExpressions": [expression("zone", "In", "b")]},
            {"matchExpressions": [expression("zone", "In", "a")]},
        ),
        True,
    ),
    "an empty term matches nothing": (affinity({}), False),
    "an empty term beside a term that matches": (
        affinity({}, {"matchExpressions": [expression("zone", "Exists")]}),
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
def test_which_affinity_a_node_matches(spec: dict[str, Any], want_fit: bool) -> None:
    assert (why_not(parse_constraints(spec), PLAIN) is None) is want_fit


TOLERATIONS: dict[str, tuple[dict[str, str], bool]] = {
    "equal key, value and effect": (
        {"key": "team", "value": "vision", "effect": "NoSchedule"},
        True,
    ),
    "an explicit Equal": ({"key": "team", "operator": "Equal", "value": "vision"}, True),
    "no effect means every effect": ({"key": "team", "value": "vision"}, True),
    "another effect": ({"key": "team", "value": "vision", "effect": "NoExecute"}, False),
    "another value": ({"key": "team", "value": "speech"}, False),
    "another key": ({"key": "owner", "value": "vision"}, False),
    "Exists needs no value": ({"key": "team", "operator": "Exists"}, True),
    "Exists of another key": ({"key": "owner", "operator": "Exists"}, False),
    "Exists without a key tolerates all": ({"operator": "Exists"}, True),
    "Exists without a key, for one effect": ({"operator": "Exists", "effect": "NoExecute"}, False),
    "neither key nor operator": ({"value": "vision"}, False),
    "an unknown operator": ({"key": "team", "operator": "Near"}, False),
}


@pytest.mark.parametrize(("toleration", "want_fit"), TOLERATIONS.values(), ids=TOLERATIONS.keys())
def test_which_toleration_covers_a_taint(toleration: dict[str, str], want_fit: bool) -> None:
    constraints = parse_constraints({"tolerations": [toleration]})
    assert (why_not(constraints, GPU_NODE) is None) is want_fit


EFFECTS = {"NoSchedule": True, "NoExecute": True, "PreferNoSchedule": False}


@pytest.mark.parametrize(("effect", "want"), EFFECTS.items(), ids=EFFECTS.keys())
def test_which_taints_keep_pods_away(effect: str, *, want: bool) -> None:
    tainted = node("n", taints=[{"key": "team", "effect": effect}])
    assert why_not(parse_constraints({}), tainted) == (Taint("team", "", effect) if want else None)


def test_every_taint_must_be_tolerated() -> None:
    both = node("n", taints=[{"key": key, "effect": "NoSchedule"} for key in ("team", "spot")])
    constraints = parse_constraints({"tolerations": [{"key": "team", "operator": "Exists"}]})
    assert why_not(constraints, both) == Taint("spot")


CORDON: dict[str, tuple[list[dict[str, str]], Misfit | None]] = {
    "nothing tolerated": ([], Misfit.CORDON),
    "another taint tolerated": ([{"key": "team", "operator": "Exists"}], Misfit.CORDON),
    "the cordon tolerated": (
        [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
        None,
    ),
    "everything tolerated": ([{"operator": "Exists"}], None),
}


@pytest.mark.parametrize(("tolerations", "want"), CORDON.values(), ids=CORDON.keys())
def test_a_cordon_excludes_pods_without_a_toleration_for_it(
    tolerations: list[dict[str, str]], want: Misfit | None
) -> None:
    cordoned = node("n", cordoned=True)
    assert why_not(parse_constraints({"tolerations": tolerations}), cordoned) == want


NAMED: dict[str, tuple[dict[str, Any], dict[str, Any], Obstacle | None]] = {
    "its node": ({}, {}, None),
    "another node": ({"nodeName": "b"}, {}, Misfit.NODE_NAME),
    "a cordon is left to kube-scheduler": ({}, {"cordoned": True}, None),
    "a taint against new pods is left to kube-scheduler": (
        {},
        {"taints": [{"key": "team", "effect": "NoSchedule"}]},
        None,
    ),
    "a taint that evicts pods excludes the pod": (
        {},
        {"taints": [{"key": "team", "effect": "NoExecute"}]},
        Taint("team", effect="NoExecute"),
    ),
    "the kubelet checks the labels": ({"nodeSelector": {"rack": "1"}}, {}, ("rack", "1")),
}


@pytest.mark.parametrize(("spec", "state", "want"), NAMED.values(), ids=NAMED)
def test_what_excludes_a_node_for_a_pod_that_names_node_a(
    spec: dict[str, Any], state: dict[str, Any], want: Obstacle | None
) -> None:
    assert why_not(parse_constraints({"nodeName": "a", **spec}), node("a", **state)) == want


def expecting(*devices: str) -> Constraints:
    """The constraints of a template for pods with these devices, but without tolerations."""
    return replace(parse_constraints({}), devices=devices)


TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
DEVICES: dict[str, tuple[tuple[str, ...], dict[str, str], bool]] = {
    "a taint named after what the pod requests": (("nvidia.com/gpu",), TAINT, True),
    "a taint named after something else": (("amd.com/gpu",), TAINT, False),
    "a taint that evicts running pods": (
        ("nvidia.com/gpu",),
        {**TAINT, "effect": "NoExecute"},
        False,
    ),
    "no extended resource": ((), TAINT, False),
}


EXPECTED: dict[str, tuple[dict[str, str], bool]] = {
    "a pool's taint": ({"key": "dedicated", "effect": "NoSchedule"}, True),
    "a pool's taint that evicts pods": ({"key": "example.com/pool", "effect": "NoExecute"}, True),
    "a taint of Kubernetes": (
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        False,
    ),
    "the taint of the control plane": (
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
        False,
    ),
    "an autoscaler's taint": (
        {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"},
        False,
    ),
    "the taint of a device that the pod does not request": (
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        False,
    ),
}


@pytest.mark.parametrize(("taint", "fits"), EXPECTED.values(), ids=EXPECTED)
def test_which_taints_admission_is_expected_to_tolerate(
    taint: dict[str, str], *, fits: bool
) -> None:
    constraints = replace(parse_constraints({}), expects_tolerations=True)
    assert (why_not(constraints, node("n", gpus=8, taints=[taint])) is None) is fits


@pytest.mark.parametrize(("devices", "taint", "fits"), DEVICES.values(), ids=DEVICES)
def test_admission_adds_a_toleration_for_the_taint_of_an_extended_resource(
    devices: tuple[str, ...], taint: dict[str, str], *, fits: bool
) -> None:
    why = why_not(expecting(*devices), node("gpu", taints=[taint]))
    assert why == (None if fits else Taint("nvidia.com/gpu", "present", taint["effect"]))


VOLUMES: dict[str, tuple[tuple[tuple[str, ...], ...], bool]] = {
    "a volume in this zone": ((("a",),), True),
    "a volume in another zone": ((("b",),), False),
    "a volume in both zones": ((("b", "a"),), True),
    "two volumes of this zone": ((("a",), ("a", "b")), True),
    "two volumes of different zones": ((("a",), ("b",)), False),
    "a volume in no zone": (((),), False),
}


@pytest.mark.parametrize(("zones", "fits"), VOLUMES.values(), ids=VOLUMES)
def test_one_term_of_each_bound_volume_must_match(
    zones: tuple[tuple[str, ...], ...], *, fits: bool
) -> None:
    terms = tuple(
        tuple(Term((Requirement("zone", "In", (zone,)),)) for zone in volume) for volume in zones
    )
    constraints = Constraints(volumes=VolumeConstraints(terms=terms))
    assert why_not(constraints, PLAIN) == (None if fits else Misfit.VOLUME)


WORDS: dict[str, tuple[Obstacle, int, str]] = {
    "a taint with a value": (
        Taint("kwok.x-k8s.io/node", "fake"),
        20,
        "20 nodes have taint kwok.x-k8s.io/node=fake:NoSchedule that the pods do not tolerate",
    ),
    "a taint without a value": (
        Taint("spot", effect="NoExecute"),
        1,
        "1 node has taint spot:NoExecute that the pods do not tolerate",
    ),
    "a label": (("zone", "a"), 2, "2 nodes do not have label zone=a, which nodeSelector requires"),
    "a label that no node can have": (
        ("k" * 400, "v" * 10_000),
        1,
        f"1 node does not have label {'k' * 317}={'v' * 63}, which nodeSelector requires",
    ),
    "a cordon": (Misfit.CORDON, 1, "1 node is cordoned"),
    "a name": (Misfit.NODE_NAME, 3, "3 nodes are not the node that the pods name"),
    "an affinity": (Misfit.AFFINITY, 1, "1 node does not match the required node affinity"),
    "the affinity of a volume": (
        Misfit.VOLUME,
        2,
        "2 nodes do not match the required node affinity of a volume",
    ),
}


@pytest.mark.parametrize(("obstacle", "nodes", "want"), WORDS.values(), ids=WORDS)
def test_the_words_for_an_exclusion_of_nodes(obstacle: Obstacle, nodes: int, want: str) -> None:
    assert in_words(obstacle, number=nodes, pods="the pods") == want


WIDTH = 4
ANYWHERE = Constraints()
IN_A = Constraints(node_selector=(("zone", "a"),))
ON_1 = Constraints(node_name="n1")
zones = st.none() | st.sampled_from("ab")


def node_in(row: int, zone: str | None) -> Node | None:
    return None if zone is None else Node(f"n{row}", labels={"zone": zone})


@given(
    at_first=st.lists(zones, max_size=WIDTH),
    changes=st.lists(st.tuples(st.integers(0, WIDTH - 1), zones), max_size=6),
)
def test_a_judgement_agrees_with_why_not_after_any_changes_of_nodes(
    at_first: list[str | None], changes: list[tuple[int, str | None]]
) -> None:
    nodes = [node_in(row, zone) for row, zone in enumerate(at_first)]
    eligibility = Eligibility()
    kinds = (ANYWHERE, IN_A, ON_1)
    for constraints in kinds:
        eligibility.judge(constraints, nodes, width=WIDTH)
    nodes += [None] * (WIDTH - len(nodes))
    for row, zone in changes:
        nodes[row] = node_in(row, zone)
        eligibility.set(row, nodes[row])
    for constraints in kinds:
        judged = eligibility.judge(constraints, nodes, width=WIDTH)
        assert judged.mask.tolist() == [
            node is not None and why_not(constraints, node) is None for node in nodes
        ]
        assert judged.counts == Counter(
            why for node in nodes if node is not None and (why := why_not(constraints, node))
        )
        assert all(judged.counts.values()), "an obstacle that excludes no node is forgotten"


def test_ports_and_gang_terms_do_not_affect_eligibility() -> None:
    eligibility, nodes = Eligibility(), [Node("n0")]
    alone = Constraints(host_ports=(("TCP", 80),), apart=(GangTerm("train"),))
    result = eligibility.judge(alone, nodes, width=WIDTH)
    assert result is eligibility.judge(ANYWHERE, nodes, width=WIDTH)


def test_rows_beyond_the_nodes_are_not_eligible() -> None:
    eligibility = Eligibility()
    assert (
        eligibility.judge(ANYWHERE, [Node("n0"), None], width=4).mask.tolist()
        == [True] + [False] * 3
    )


def test_widening_keeps_the_judgement_of_the_first_rows() -> None:
    eligibility, nodes = Eligibility(), [Node("n0"), Node("n1")]
    eligibility.judge(ON_1, nodes, width=2)
    eligibility.widen(4)
    assert eligibility.judge(ON_1, nodes, width=4).mask.tolist() == [False, True, False, False]
    eligibility.set(3, Node("n1"))
    assert eligibility.judge(ON_1, nodes, width=4).mask.tolist() == [False, True, False, True]


def test_the_cache_of_constraints_is_bounded() -> None:
    capacity = ledger(node("n", labels={"k": "7"}))
    for number in range(2000):
        possible = capacity.eligible(Constraints(node_selector=(("k", str(number)),)))
        assert possible[0] == (number == 7)
    assert len(capacity._eligible._judged) <= 256


def pinned(cpu: str = "1", **spec: Any) -> Pod:
    """A pod of no job that is pinned to node a."""
    containers = [{"resources": {"requests": {"cpu": cpu}}}]
    pod_spec = {"affinity": affinity_to("a"), "containers": containers, **spec}
    return parse_pod({"kind": "Pod", "spec": pod_spec})


A = node("a", cpu="4")
TAINTED = node("a", cpu="4", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
NEVER: dict[str, tuple[Pod, Node | None]] = {
    "larger than its node": (pinned("5"), A),
    "a device that its node lacks": (pinned(overhead={"nvidia.com/gpu": "1"}), A),
    "a gate of another system": (pinned(schedulingGates=[{"name": "example.com/g"}]), A),
    "another scheduler": (pinned(schedulerName="volcano"), A),
    "a selector that its node does not match": (pinned(nodeSelector={"no": "where"}), A),
    "a taint that it does not tolerate": (pinned(), TAINTED),
    "a node that is cordoned": (pinned(), node("a", cpu="4", cordoned=True)),
    "a node that does not exist": (pinned(), None),
    "it is being deleted": (replace(pinned(), deleting=True), A),
}


@pytest.mark.parametrize(("pinned_pod", "home"), NEVER.values(), ids=NEVER)
def test_which_pinned_pods_cannot_be_bound(pinned_pod: Pod, home: Node | None) -> None:
    assert not could_run(pinned_pod, home)
    assert not may_be_bound(pinned_pod, home)


def test_a_pod_that_fills_its_node_may_be_bound() -> None:
    tolerating = [{"key": "team", "operator": "Exists"}]
    assert may_be_bound(pinned("4"), A)
    assert may_be_bound(pinned("4", tolerations=tolerating), TAINTED)


def test_a_pod_that_kube_scheduler_refused_is_not_expected_to_be_bound() -> None:
    assert not may_be_bound(replace(pinned(), unschedulable="0/1 nodes"), A)
