"""The patches of a pod: pin, ungate, resize, and request a checkpoint."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.ledger.fit import why_not
from kfext.core.patches.pod import pin, request_patch, resize, ungate
from kfext.model.constraints import parse_constraints
from kfext.model.cpu_size import CpuSize, TrainerCpu
from kfext.model.pod import parse_pod
from tests.builders import PINNED, Raw, job, node, pod, raw_pod

ON_A = {"key": "metadata.name", "operator": "In", "values": ["a"]}
ZONE = {"key": "zone", "operator": "In", "values": ["x"]}
RACK = {"key": "rack", "operator": "Exists"}
NOT_BAD = {"key": "metadata.name", "operator": "NotIn", "values": ["bad"]}
APART = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
JOB = job().worker(cpu="1").build()


def required(*terms: Raw) -> Raw:
    return {"nodeAffinity": {PINNED: {"nodeSelectorTerms": list(terms)}}}


def gated(affinity: Raw | None, *, gates: tuple[str, ...] = ()) -> Raw:
    spec = {} if affinity is None else {"affinity": affinity}
    return raw_pod(JOB, "worker", 0, gated=True, gates=gates, spec=spec)


def pinned(raw: Raw, node_name: str = "a") -> Raw:
    result: Raw = jsonpatch.apply_patch(deepcopy(raw), pin(parse_pod(raw), node_name))
    return result


def required_terms(raw: Raw) -> list[Raw]:
    results: list[Raw] = raw["spec"]["affinity"]["nodeAffinity"][PINNED]["nodeSelectorTerms"]
    return results


CASES: dict[str, tuple[Raw | None, list[Raw]]] = {
    "no affinity": (None, [{"matchFields": [ON_A]}]),
    "empty affinity": ({}, [{"matchFields": [ON_A]}]),
    "affinity of another kind": (APART, [{"matchFields": [ON_A]}]),
    "empty node affinity": ({"nodeAffinity": {}}, [{"matchFields": [ON_A]}]),
    "preferred node affinity only": (
        {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9}]}},
        [{"matchFields": [ON_A]}],
    ),
    "required without terms": ({"nodeAffinity": {PINNED: {}}}, [{"matchFields": [ON_A]}]),
    "one term": (
        required({"matchExpressions": [ZONE]}),
        [{"matchExpressions": [ZONE], "matchFields": [ON_A]}],
    ),
    "several terms": (
        required({"matchExpressions": [ZONE]}, {"matchExpressions": [RACK]}),
        [
            {"matchExpressions": [ZONE], "matchFields": [ON_A]},
            {"matchExpressions": [RACK], "matchFields": [ON_A]},
        ],
    ),
    "a term with fields": (
        required({"matchFields": [NOT_BAD]}),
        [{"matchFields": [NOT_BAD, ON_A]}],
    ),
    "an empty term stays empty": (
        required({}, {"matchExpressions": [ZONE]}),
        [{}, {"matchExpressions": [ZONE], "matchFields": [ON_A]}],
    ),
    "a term of empty lists is empty too": (
        required({"matchExpressions": []}, {"matchExpressions": [ZONE]}),
        [{"matchExpressions": []}, {"matchExpressions": [ZONE], "matchFields": [ON_A]}],
    ),
}


@pytest.mark.parametrize(("affinity", "want_terms"), CASES.values(), ids=CASES.keys())
def test_a_pin_requires_the_node_in_each_term(affinity: Raw | None, want_terms: list[Raw]) -> None:
    before = gated(affinity)
    after = pinned(before)
    assert required_terms(after) == want_terms
    assert not after["spec"]["schedulingGates"]
    parsed = parse_pod(after)
    assert parsed.home == "a" or {} in want_terms or {"matchExpressions": []} in want_terms
    assert not parsed.gated


@pytest.mark.parametrize(("affinity", "_"), CASES.values(), ids=CASES.keys())
def test_a_pin_keeps_all_but_terms_and_gate(affinity: Raw | None, _: list[Raw]) -> None:
    before = gated(affinity)
    after = pinned(before)
    for raw in (before, after):
        raw["spec"].pop("schedulingGates")
        raw["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {}).pop(PINNED, None)
    assert after == before


def tightened_only(old: Raw, new: Raw) -> bool:
    """Whether terms only gained requirements, which the API server allows of a gated pod.

    Source: validateNodeAffinityMutation of Kubernetes.
    """
    before = old["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PINNED, {})
    if not before.get("nodeSelectorTerms"):
        return True
    pairs = zip(before["nodeSelectorTerms"], required_terms(new), strict=True)
    for old_term, new_term in pairs:
        for field in ("matchExpressions", "matchFields"):
            kept = new_term.get(field, [])[: len(old_term.get(field, []))]
            if kept != old_term.get(field, []):
                return False
        empty = not old_term.get("matchExpressions") and not old_term.get("matchFields")
        if empty and (new_term.get("matchExpressions") or new_term.get("matchFields")):
            return False
    return True


some_terms = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(st.sampled_from([ZONE, RACK]), max_size=2),
            "matchFields": st.lists(st.just(NOT_BAD), max_size=1),
        },
    ),
    max_size=3,
)


@given(terms=some_terms)
def test_a_pin_is_valid_and_excludes_all_other_nodes(terms: list[Raw]) -> None:
    before = gated(required(*terms))
    after = pinned(before)
    assert tightened_only(before, after)
    old = parse_constraints(before["spec"])
    new = parse_constraints(after["spec"])
    fitting = node("a", labels={"zone": "x", "rack": "1"})
    if terms:
        assert (why_not(new, fitting) is None) == (why_not(old, fitting) is None)
    assert why_not(new, node("b", labels={"zone": "x", "rack": "1"})) is not None


MEANWHILE: dict[str, Any] = {
    "another pod of that name": lambda raw: raw["metadata"].update(uid="other"),
    "kfext's gate is gone": lambda raw: raw["spec"].pop("schedulingGates"),
    "the gates changed their order": lambda raw: raw["spec"]["schedulingGates"].reverse(),
}


@pytest.mark.parametrize("change", MEANWHILE.values(), ids=MEANWHILE.keys())
@pytest.mark.parametrize("write", [lambda body: pin(body, "a"), ungate], ids=["pin", "ungate"])
def test_a_patch_fails_if_the_pod_has_changed(write: Any, change: Any) -> None:
    raw = gated(None, gates=("other/gate",))
    operations = write(parse_pod(raw))
    change(raw)
    with pytest.raises((jsonpatch.JsonPatchException, jsonpatch.JsonPointerException)):
        jsonpatch.apply_patch(raw, operations)


def test_ungate_removes_the_gate_of_kfext_and_nothing_else() -> None:
    raw = gated(required({"matchExpressions": [ZONE]}), gates=("other/gate",))
    after = jsonpatch.apply_patch(deepcopy(raw), ungate(parse_pod(raw)))
    assert after["spec"].pop("schedulingGates") == [{"name": "other/gate"}]
    raw["spec"].pop("schedulingGates")
    assert after == raw


def test_a_pin_removes_only_the_gate_of_kfext() -> None:
    raw = gated(None)
    raw["spec"]["schedulingGates"] = [{"name": "x/y"}, {"name": names.GATE}, {"name": "z/w"}]
    after = pinned(raw)
    assert after["spec"]["schedulingGates"] == [{"name": "x/y"}, {"name": "z/w"}]


def test_C3_the_pin_is_the_only_hard_constraint() -> None:
    gated = pod(job().worker(cpu="1").build(), "worker", 0, gated=True)
    paths = [operation["path"] for operation in pin(gated, "a") if operation["op"] != "test"]
    assert paths == ["/spec/affinity", "/spec/schedulingGates/0"]


POD = pod(job().worker(cpu="1").build(), "worker", 0, version=7)
SIZES: dict[str, tuple[TrainerCpu | None, CpuSize, dict[str, Any]]] = {
    "only the limit": (TrainerCpu(20, None), CpuSize(150), {"limits": {"cpu": "150m"}}),
    "whole cores": (TrainerCpu(20, 900), CpuSize(2000), {"limits": {"cpu": "2000m"}}),
    "the limit and the request": (
        TrainerCpu(900, 900), CpuSize(500, 500),
        {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}},
    ),
    "a pod that requests no CPU gets a request of 0": (
        TrainerCpu(0, None), CpuSize(500), {"limits": {"cpu": "500m"}, "requests": {"cpu": "0m"}}
    ),
    "a pod without a known training container": (None, CpuSize(500), {"limits": {"cpu": "500m"}}),
}  # fmt: skip


@pytest.mark.parametrize(("trainer", "size", "want"), SIZES.values(), ids=SIZES)
def test_a_resize_writes_only_the_cpu_of_the_training_container(
    trainer: TrainerCpu | None, size: CpuSize, want: dict[str, Any]
) -> None:
    assert resize(replace(POD, trainer=trainer), size, container="pytorch")["spec"] == {
        "containers": [{"name": "pytorch", "resources": want}]
    }


def test_a_resize_has_the_resource_version_of_the_pod() -> None:
    body = resize(POD, CpuSize(150), container="pytorch")
    assert body["metadata"] == {"resourceVersion": "7"}


REQUEST = names.CHECKPOINT_REQUEST
BEFORE: dict[str, tuple[Any, dict[str, str]]] = {
    "no annotations": (None, {REQUEST: "3"}),
    "empty annotations, which the API server drops": ({}, {REQUEST: "3"}),
    "others": ({"a": "b"}, {"a": "b", REQUEST: "3"}),
    "an earlier request": ({REQUEST: "2"}, {REQUEST: "3"}),
}


def running(annotations: Any) -> Raw:
    raw = raw_pod(JOB, "worker", 0, bound="a", phase="Running")
    if annotations is not None:
        raw["metadata"]["annotations"] = annotations
    return raw


@pytest.mark.parametrize(("annotations", "want"), BEFORE.values(), ids=BEFORE)
def test_a_checkpoint_request_writes_its_number(annotations: Any, want: dict[str, str]) -> None:
    raw = running(annotations)
    patched = jsonpatch.apply_patch(deepcopy(raw), request_patch(parse_pod(raw), 3))
    assert patched == running(want)
    assert parse_pod(patched).checkpoint_request == 3


@pytest.mark.parametrize("annotations", [None, {"a": "b"}], ids=["without", "with annotations"])
def test_a_checkpoint_request_fails_for_another_pod_of_the_same_name(annotations: Any) -> None:
    operations = request_patch(parse_pod(running(annotations)), 3)
    other = running(annotations)
    other["metadata"]["uid"] = "another"
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(other, operations)


def test_annotations_that_were_added_meanwhile_are_not_lost() -> None:
    operations = request_patch(parse_pod(running(None)), 3)
    edited = running({"a": "b"})
    edited["metadata"]["resourceVersion"] = "2"
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(edited, operations)
