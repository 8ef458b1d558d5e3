import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.constraints import Toleration
from kfext.model.cpu_state import MAX_RESIZED, CpuState, PodCpu
from kfext.model.job_state import LIMIT, MAX_APART, JobState, ObservedPods, state_of
from kfext.model.plan import Plan
from kfext.model.scale_state import MAX_SPEEDS, ScaleState
from kfext.names import PLAN, STATE
from tests.builders import job, state_in
from tests.unit.model.test_cpu_state import cpu_states
from tests.unit.model.test_scale_state import scale_states, stop_states

UID = "d5b2c6a4-7f1e-4c86-9a53-0d6c1f2e8b97"

times = st.integers(min_value=0, max_value=2**33).map(float)
states = st.builds(
    JobState,
    strikes=st.integers(min_value=0, max_value=100),
    excluded=st.dictionaries(st.text(max_size=8), times.filter(bool), max_size=5),
    suspended_at=times,
    retry_at=times,
    reason=st.text(max_size=30),
    message=st.text(max_size=100),
    generation=st.integers(min_value=0, max_value=2**31),
    queued_since=times,
    observed=st.dictionaries(
        st.sampled_from(["worker", "master"]),
        st.builds(
            ObservedPods,
            template=st.integers(min_value=0, max_value=2**32 - 1),
            requests=st.builds(lambda cpu: {"pods": 1, "cpu": cpu}, st.integers(1, 2**40)),
            node_selector=st.sampled_from([(), (("pool", "x"), ("zone", "a"))]),
            host_ports=st.sampled_from([(), (("TCP", 80), ("UDP", 53))]),
            untolerated=st.booleans(),
            tolerations=st.sampled_from(
                [(), (Toleration("", "Exists"),), (Toleration("pool", value="x"),) * 2]
            ),
        ),
    ),
    busy=st.dictionaries(st.sampled_from(["worker", "master", "ps"]), st.integers(0, 1000)),
    cpu=cpu_states,
    scale=scale_states,
    stop=stop_states,
)


@given(states)
def test_a_state_reads_back_as_it_was_written(state: JobState) -> None:
    assert state_in(state.encode(job_uid="u")) == state


@given(
    excluded=st.dictionaries(st.text(max_size=60), times, max_size=400),
    message=st.text(max_size=2000) | st.just("\U0001f600" * 2000),
    reason=st.text(max_size=100),
)
def test_a_state_never_exceeds_4_KiB(excluded: dict[str, float], message: str, reason: str) -> None:
    written = JobState(excluded=excluded, message=message, reason=reason).encode(job_uid=UID)
    assert len(written.encode()) <= LIMIT
    assert state_in(written).reason == reason


def test_the_exclusion_that_ends_first_is_dropped_first() -> None:
    excluded = {f"{i:050}": float(i + 1) for i in range(100)}
    kept = state_in(JobState(excluded=excluded).encode(job_uid=UID)).excluded
    assert 0 < len(kept) < 100
    assert min(kept.values()) > max(excluded[node] for node in excluded.keys() - kept.keys())


def test_the_last_of_the_jobs_to_stay_apart_from_are_kept() -> None:
    apart = tuple(f"0a1b2c3d-0000-4000-8000-{number:012}" for number in range(MAX_APART + 9))
    assert state_in(JobState(apart=apart).encode(job_uid=UID)).apart == apart[9:]
    full_state = JobState(apart=apart, settings={"kfext.dev/metrics": "x" * 1500}, cpu=RESIZED)
    written = full_state.encode(job_uid=UID)
    assert len(written.encode()) <= LIMIT
    kept = state_in(written).apart
    assert 0 < len(kept) < MAX_APART
    assert kept == apart[-len(kept) :]


DIFFERENT = MAX_RESIZED // 2
RESIZED = CpuState(
    requested={
        **{type_: PodCpu(20_000, 96_000) for type_ in ("chief", "worker", "ps", "evaluator")},
        **{f"evaluator-{index + 100}": PodCpu(20_000, 90_000) for index in range(DIFFERENT)},
    },
    written={
        f"evaluator-{index + 100}": (
            PodCpu(20_000, 96_000),
            PodCpu(20_000, 48_000),
            PodCpu(20_000, 24_000),
        )
        for index in range(MAX_RESIZED - DIFFERENT)
    },
    by=frozenset({"resize", "shift"}),
    disabled={f"policy-{number}": "it is left alone, since " * 8 for number in range(8)},
)
"""The largest stored state of resizes."""
SCALED = ScaleState(
    before=10_000,
    changed_at=1_700_000_000.123,
    cause="takeBack",
    largest=10_000,
    failed=10_000,
    pause=123.4,
    speeds={9_000 + size: 1234.5 for size in range(MAX_SPEEDS)},
    disabled="it is left alone, since " * 8,
)
"""The largest stored state of sizes."""


def test_the_state_of_resizes_is_kept_whatever_else_is_dropped() -> None:
    full_state = JobState(
        strikes=3,
        excluded={f"{i:050}": float(i + 1) for i in range(100)},
        suspended_at=1.7e9,
        retry_at=1.7e9,
        reason="CreateTimeout",
        message="m" * 2000,
        generation=10_000,
        queued_since=1.7e9,
        observed={"worker": ObservedPods(1, {"pods": 1, "cpu": 1}, (("pool", "x"),))},
        no_host_network="n" * 2000,
        settings={"kfext.dev/metrics": "x" * 1500},
        cpu=RESIZED,
        scale=SCALED,
    )
    written = full_state.encode(job_uid=UID)
    assert len(written.encode()) <= LIMIT
    result = state_in(written)
    assert (result.cpu.requested, result.cpu.written) == (RESIZED.requested, RESIZED.written)
    assert result.cpu.disabled.keys() == RESIZED.disabled.keys()
    assert result.settings == full_state.settings
    assert result.no_host_network.startswith("nn")


def test_a_usual_state_fits_beside_the_state_of_resizes() -> None:
    usual = JobState(
        strikes=1,
        excluded={"node-1": 1.7e9},
        reason="BindTimeout",
        message="2 of 64 pods were not bound within 60 s",
        generation=4,
        observed={"worker": ObservedPods(1, {"pods": 1, "cpu": 1})},
        cpu=replace(RESIZED, disabled={"resize": "the pods are Guaranteed"}),
    )
    assert state_in(usual.encode(job_uid=UID)) == usual


BUSY: dict[str, tuple[object, dict[str, int]]] = {
    "two types": ({"worker": 0, "master": 1000}, {"worker": 0, "master": 1000}),
    "a type that no job has": ({"x" * 3000: 400, "worker": 400}, {"worker": 400}),
    "more than always": ({"worker": 1001}, {}),
    "a negative number": ({"worker": -1}, {}),
    "a boolean": ({"worker": True}, {}),
    "a fraction": ({"worker": 0.4}, {}),
    "a list": ([400], {}),
}


@pytest.mark.parametrize(("written", "want"), BUSY.values(), ids=BUSY)
def test_an_impossible_measurement_is_not_stored(written: object, want: dict[str, int]) -> None:
    assert state_in(json.dumps({"uid": "u", "busy": written})).busy == want


def test_an_empty_state_is_written_as_its_uid_alone() -> None:
    assert JobState().encode(job_uid="u") == '{"uid":"u"}'


OWN, OTHER = '{"uid":"uid-1","strikes":2}', '{"uid":"uid-2","strikes":2}'
UNNAMED = '{"strikes":2,"suspendedAt":1000.5}'
PLANNED = Plan("uid-1", 1).encode()
WRITTEN: dict[str, tuple[dict[str, str], int]] = {
    "this job's": ({STATE: OWN}, 2),
    "another job's, copied with its manifest": ({STATE: OTHER}, 0),
    "another job's, beside the plan of this job": ({STATE: OTHER, PLAN: PLANNED}, 0),
    "without a uid, beside the plan of this job": ({STATE: UNNAMED, PLAN: PLANNED}, 0),
    "without a uid, alone": ({STATE: UNNAMED}, 0),
    "with a uid that is not a string": ({STATE: '{"uid":null,"strikes":2}', PLAN: PLANNED}, 0),
    "longer than any state of kfext": ({STATE: OWN + " " * LIMIT}, 0),
    "none": ({}, 0),
}


@pytest.mark.parametrize(("annotations", "strikes"), WRITTEN.values(), ids=WRITTEN)
def test_a_state_counts_only_if_it_has_the_uid_of_the_job(
    annotations: dict[str, str], strikes: int
) -> None:
    result = state_of(replace(job().build(), annotations=annotations))
    assert result == JobState(strikes=strikes)


def test_a_job_without_a_uid_has_no_state() -> None:
    without_uid = replace(job().build(), uid="", annotations={STATE: '{"uid":"","strikes":2}'})
    assert state_of(without_uid) == JobState()
