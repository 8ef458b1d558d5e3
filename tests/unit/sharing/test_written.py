"""The GPU shares that a plan writes on templates and pods, and how they are read back."""

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.ledger.cards import as_sharing
from kfext.core.patches.job import suspend_patch, unsuspend_patch
from kfext.core.patches.pod import pin
from kfext.model.gpu import MAX_SLOTS, GpuShare, decode_slot
from kfext.model.job import TrainingJob, parse_job
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey, parse_pod
from tests.builders import JobBuilder, Raw, raw_pod
from tests.gpu_builders import sharing
from tests.unit.model.test_gpu import shares

MEMORY = names.GPU_MEMORY


def planned(slots: dict[int, int], units: int = 50) -> Plan:
    """Return a plan of workers on one node; `slots`: the slot of each worker by index."""
    slot_of = {ReplicaKey("worker", index): slot for index, slot in slots.items()}
    shares = {"worker": GpuShare(units)}
    return Plan("uid-1", 1, dict.fromkeys(slot_of, "n"), shares=shares, slots=slot_of)


@given(written=st.text("05@,x\u0661", max_size=12), index=st.integers(0, 3))
def test_any_text_is_read_as_a_possible_slot_or_as_none(written: str, index: int) -> None:
    part = decode_slot(written, index)
    assert part is None or (0 < part[0] <= 100 and 0 <= part[1] < MAX_SLOTS)


def held_job(annotations: Raw, template: Raw) -> JobBuilder:
    """Return a held job that shares GPUs, with annotations on the job and on its template."""
    result = sharing().worker(2, gpus=1).held()
    result.raw["metadata"]["annotations"] = {names.HELD: "true", **annotations}
    spec = result.raw["spec"]["pytorchReplicaSpecs"]["Worker"]
    spec["template"]["metadata"] = {"annotations": template}
    return result


def parsed(raw: Raw) -> TrainingJob:
    job = parse_job(raw)
    assert job is not None
    return as_sharing(job, None)


def template_after_start(raw: Raw, plan: Plan) -> Raw:
    """Return the annotations of the template once the job has started under a plan."""
    after = jsonpatch.apply_patch(deepcopy(raw), unsuspend_patch(raw, parsed(raw), plan))
    metadata = after["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]
    return {key: value for key, value in metadata["annotations"].items() if "gpu" in key}


SHARE, SLOTS = {names.GPU_SHARE: "0.5"}, {names.GPU_SLOTS: "50@0,50@1"}


@given(
    slots=st.dictionaries(st.integers(0, 30), st.integers(0, MAX_SLOTS - 1), min_size=1),
    units=st.integers(1, 100),
)
def test_each_replica_reads_the_share_and_slot_that_the_plan_wrote(
    slots: dict[int, int], units: int
) -> None:
    raw = held_job(SHARE, SHARE).raw
    raw["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 31
    written = template_after_start(raw, planned(slots, units))[names.GPU_SLOTS]
    for index in range(40):
        want = (units, slots[index]) if index in slots else None
        assert decode_slot(written, index) == want


EDITS: dict[str, tuple[Raw, Raw, Raw]] = {
    "nothing was edited": (SHARE, SHARE, SHARE),
    "a share was edited": ({names.GPU_SHARE: "0.6"}, SHARE, {names.GPU_SHARE: "0.6"}),
    "a setting was added": ({**SHARE, MEMORY: "1Gi"}, SHARE, {**SHARE, MEMORY: "1Gi"}),
    "a setting was removed": (SHARE, {**SHARE, MEMORY: "1Gi"}, SHARE),
    "a setting was edited badly": (
        {**SHARE, MEMORY: "much"},
        {**SHARE, MEMORY: "1Gi"},
        {**SHARE, MEMORY: "1Gi"},
    ),
    "a setting was added badly": ({**SHARE, MEMORY: "much"}, SHARE, SHARE),
    "slots of an earlier start": (SHARE, {**SHARE, names.GPU_SLOTS: "9@9"}, SHARE),
    "slots that a user sets on the job": ({**SHARE, names.GPU_SLOTS: "9@9"}, SHARE, SHARE),
}


@pytest.mark.parametrize(("annotations", "template", "want"), EDITS.values(), ids=EDITS)
def test_a_start_writes_the_present_settings_into_the_templates(
    annotations: Raw, template: Raw, want: Raw
) -> None:
    result = template_after_start(held_job(annotations, template).raw, planned({0: 0, 1: 1}))
    assert result == {**want, **SLOTS}


def test_a_start_without_shares_removes_earlier_slots() -> None:
    raw = held_job({}, {**SHARE, **SLOTS}).raw
    assert template_after_start(raw, Plan("uid-1", 1, planned({0: 0}).assignment)) == {}


def test_a_type_without_a_share_gets_no_slots() -> None:
    raw = sharing().master(gpus=2).held().raw
    after = jsonpatch.apply_patch(deepcopy(raw), unsuspend_patch(raw, parsed(raw), planned({0: 0})))
    result = {
        type_: spec["template"]["metadata"]["annotations"].get(names.GPU_SLOTS)
        for type_, spec in after["spec"]["pytorchReplicaSpecs"].items()
    }
    assert result == {"Worker": "50@0", "Master": None}


def test_a_suspended_job_has_no_slots_left() -> None:
    raw = held_job(SHARE, {**SHARE, **SLOTS}).raw
    raw["spec"]["runPolicy"]["suspend"] = False
    after = jsonpatch.apply_patch(deepcopy(raw), suspend_patch(raw, parsed(raw), JobState()))
    template: Any = after["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert template["metadata"]["annotations"] == SHARE


@given(shares)
def test_a_pin_writes_the_share_into_an_annotation_that_is_read_back(share: GpuShare) -> None:
    raw = raw_pod(sharing().build(), "worker", 0, gated=True)
    raw["metadata"]["annotations"] = {names.GPU_SHARE: "0.5", names.GPU_TERMS: "{}"}
    after = jsonpatch.apply_patch(deepcopy(raw), pin(parse_pod(raw), "n", share=share))
    assert parse_pod(after).share == share
    assert parse_pod(raw).share is None


def test_a_pin_without_a_share_writes_no_annotation() -> None:
    raw = raw_pod(sharing().build(), "worker", 0, gated=True)
    assert not any("annotations" in operation["path"] for operation in pin(parse_pod(raw), "n"))
