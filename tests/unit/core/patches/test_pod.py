"""The patches of a pod: pinned and ungated, resized, asked for a checkpoint."""

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

HERE = {"key": "metadata.name", "operator": "In", "values": ["a"]}
ZONE = {"key": "zone", "operator": "In", "values": ["x"]}
RACK = {"key": "rack", "operator": "Exists"}
NOT_BAD = {"key": "metadata.name", "operator": "NotIn", "values": ["bad"]}
ANTI = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
OF = job().worker(cpu="1").build()


def required(*terms: Raw) -> Raw:
    return {"nodeAffinity": {PINNED: {"nodeSelectorTerms": list(terms)}}}


def gated(affinity: Raw | None, *, gates: tuple[str, ...] = ()) -> Raw:
    spec = {} if affinity is None else {"affinity": affinity}
    return raw_pod(OF, "worker", 0, gated=True, gates=gates, spec=spec)


def pinned(raw: Raw, where: str = "a") -> Raw:
    result: Raw = jsonpatch.apply_patch(deepcopy(raw), pin(parse_pod(raw), where))
    return result


def terms_of(raw: Raw) -> list[Raw]:
    results: list[Raw] = raw["spec"]["affinity"]["nodeAffinity"][PINNED]["nodeSelectorTerms"]
    return results


CASES: dict[str, tuple[Raw | None, list[Raw]]] = {
    "no affinity": (None, [{"matchFields": [HERE]}]),
    "empty affinity": ({}, [{"matchFields": [HERE]}]),
    "affinity of another kind": (ANTI, [{"matchFields": [HERE]}]),
    "empty node affinity": ({"nodeAffinity": {}}, [{"matchFields": [HERE]}]),
    "preferred node affinity only": (
        {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9}]}},
        [{"matchFields": [HERE]}],
    ),
    "required without terms": ({"nodeAffinity": {PINNED: {}}}, [{"matchFields": [HERE]}]),
    "one term": (
        required({"matchExpressions": [ZONE]}),
        [{"matchExpressions": [ZONE], "matchFields": [HERE]}],
    ),
    "several terms": (
        required({"matchExpressions": [ZONE]}, {"matchExpressions": [RACK]}),
        [
            {"matchExpressions": [ZONE], "matchFields": [HERE]},
            {"matchExpressions": [RACK], "matchFields": [HERE]},
        ],
    ),
    "a term with fields": (
        required({"matchFields": [NOT_BAD]}),
        [{"matchFields": [NOT_BAD, HERE]}],
    ),
    "an empty term stays empty": (
        required({}, {"matchExpressions": [ZONE]}),
        [{}, {"matchExpressions": [ZONE], "matchFields": [HERE]}],
    ),
    "a term of empty lists is empty too": (
        required({"matchExpressions": []}, {"matchExpressions": [ZONE]}),
        [{"matchExpressions": []}, {"matchExpressions": [ZONE], "matchFields": [HERE]}],
    ),
}


@pytest.mark.parametrize(("affinity", "want_terms"), CASES.values(), ids=CASES.keys())
def test_pin(affinity: Raw | None, want_terms: list[Raw]) -> None:
    before = gated(affinity)
    after = pinned(before)
    assert terms_of(after) == want_terms
    assert not after["spec"]["schedulingGates"]
    parsed = parse_pod(after)
    assert parsed.home == "a" or {} in want_terms or {"matchExpressions": []} in want_terms
    assert not parsed.gated


@pytest.mark.parametrize(("affinity", "_"), CASES.values(), ids=CASES.keys())
def test_pin_keeps_everything_else(affinity: Raw | None, _: list[Raw]) -> None:
    before = gated(affinity)
    after = pinned(before)
    for raw in (before, after):
        raw["spec"].pop("schedulingGates")
        raw["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {}).pop(PINNED, None)
    assert after == before


def tightened_only(old: Raw, new: Raw) -> bool:
    """The API server's rule (validateNodeAffinityMutation): terms may only gain requirements."""
    before = old["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PINNED, {})
    if not before.get("nodeSelectorTerms"):
        return True
    pairs = zip(before["nodeSelectorTerms"], terms_of(new), strict=True)
    for was, becomes in pairs:
        for field in ("matchExpressions", "matchFields"):
            kept = becomes.get(field, [])[: len(was.get(field, []))]
            if kept != was.get(field, []):
                return False
        empty = not was.get("matchExpressions") and not was.get("matchFields")
        if empty and (becomes.get("matchExpressions") or becomes.get("matchFields")):
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
def test_pin_obeys_the_rules_and_means_that_node_only(terms: list[Raw]) -> None:
    before = gated(required(*terms))
    after = pinned(before)
    assert tightened_only(before, after)
    was = parse_constraints(before["spec"])
    becomes = parse_constraints(after["spec"])
    fitting = node("a", labels={"zone": "x", "rack": "1"})
    if terms:
        assert (why_not(becomes, fitting) is None) == (why_not(was, fitting) is None)
    assert why_not(becomes, node("b", labels={"zone": "x", "rack": "1"})) is not None


MEANWHILE: dict[str, Any] = {
    "another pod of that name": lambda raw: raw["metadata"].update(uid="other"),
    "kfext's gate is gone": lambda raw: raw["spec"].pop("schedulingGates"),
    "the gates changed their order": lambda raw: raw["spec"]["schedulingGates"].reverse(),
}


@pytest.mark.parametrize("change", MEANWHILE.values(), ids=MEANWHILE.keys())
@pytest.mark.parametrize("write", [lambda body: pin(body, "a"), ungate], ids=["pin", "ungate"])
def test_nothing_is_written_to_a_pod_that_has_changed(write: Any, change: Any) -> None:
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


def test_the_gate_of_kfext_is_found_among_others() -> None:
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
    "the limit alone": (TrainerCpu(20, None), CpuSize(150), {"limits": {"cpu": "150m"}}),
    "whole cores": (TrainerCpu(20, 900), CpuSize(2000), {"limits": {"cpu": "2000m"}}),
    "the limit and the request": (
        TrainerCpu(900, 900), CpuSize(500, 500),
        {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}},
    ),
    "of a pod that requests none and still requests none": (
        TrainerCpu(0, None), CpuSize(500), {"limits": {"cpu": "500m"}, "requests": {"cpu": "0m"}}
    ),
    "of a pod without a known trainer": (None, CpuSize(500), {"limits": {"cpu": "500m"}}),
}  # fmt: skip


@pytest.mark.parametrize(("now", "size", "want"), SIZES.values(), ids=SIZES)
def test_only_the_cpu_of_the_container_that_trains_is_written(
    now: TrainerCpu | None, size: CpuSize, want: dict[str, Any]
) -> None:
    assert resize(replace(POD, trainer=now), size, container="pytorch")["spec"] == {
        "containers": [{"name": "pytorch", "resources": want}]
    }


def test_an_edited_or_replaced_pod_is_a_conflict() -> None:
    body = resize(POD, CpuSize(150), container="pytorch")
    assert body["metadata"] == {"resourceVersion": "7"}


ASKED = names.CHECKPOINT_REQUEST
BEFORE: dict[str, tuple[Any, dict[str, str]]] = {
    "no annotations": (None, {ASKED: "3"}),
    "empty annotations, which the API server drops": ({}, {ASKED: "3"}),
    "others": ({"a": "b"}, {"a": "b", ASKED: "3"}),
    "an earlier request": ({ASKED: "2"}, {ASKED: "3"}),
}


def running(annotations: Any) -> Raw:
    raw = raw_pod(OF, "worker", 0, bound="a", phase="Running")
    if annotations is not None:
        raw["metadata"]["annotations"] = annotations
    return raw


@pytest.mark.parametrize(("annotations", "want"), BEFORE.values(), ids=BEFORE)
def test_the_number_is_written_and_nothing_else(annotations: Any, want: dict[str, str]) -> None:
    raw = running(annotations)
    patched = jsonpatch.apply_patch(deepcopy(raw), request_patch(parse_pod(raw), 3))
    assert patched == running(want)
    assert parse_pod(patched).checkpoint_request == 3


@pytest.mark.parametrize("annotations", [None, {"a": "b"}], ids=["without", "with annotations"])
def test_another_pod_of_the_same_name_gets_no_request(annotations: Any) -> None:
    operations = request_patch(parse_pod(running(annotations)), 3)
    other = running(annotations)
    other["metadata"]["uid"] = "another"
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(other, operations)


def test_annotations_that_were_added_meanwhile_are_not_lost() -> None:
    operations = request_patch(parse_pod(running(None)), 3)
    now = running({"a": "b"})
    now["metadata"]["resourceVersion"] = "2"
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(now, operations)
