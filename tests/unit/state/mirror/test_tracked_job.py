"""The state of a job between decisions: steps, clocks, refusals, and the conditions to show."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.core.lifecycle.steps import Step, Suspend, Unsuspend, Wait
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range, Resize
from kfext.model.cpu_state import CpuState
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.scale_state import MoveState, StopState
from kfext.model.verdict import Verdict
from kfext.state.mirror.tracked_job import MAX_REFUSALS, REFUSED_SECONDS, Failures, TrackedJob
from tests.builders import job, pod

PLAN = Plan("uid-1", 1, {})
NO_ROOM = Wait(names.QUEUED, Verdict(names.REASON_NO_ROOM, "no node has 8 CPUs free"))
TOO_BIG = Wait(names.QUEUED, Verdict(names.REASON_TOO_BIG, "no node has 64 CPUs"))
PLACED = Wait(names.PLACED, Verdict(names.REASON_PLACED, "all pods are bound"))


@pytest.fixture
def tracked() -> TrackedJob:
    builder = job().worker(2, cpu="1").held()
    return TrackedJob(builder.raw, builder.build(), None, JobState())


def test_a_phase_ends_when_another_begins(tracked: TrackedJob) -> None:
    assert tracked.decide(NO_ROOM, at=10.0) is None
    assert tracked.decide(TOO_BIG, at=12.0) is None
    assert tracked.verdict == TOO_BIG.verdict
    assert tracked.decide(PLACED, at=17.0) == (names.QUEUED, 7.0)


STEPS: dict[str, tuple[Step, Plan | None]] = {
    "a start assumes its plan": (Unsuspend(PLAN, Verdict(names.REASON_PLANNED, "")), PLAN),
    "a suspend assumes no plan": (Suspend(JobState()), None),
}


@pytest.mark.parametrize(("step", "assumed"), STEPS.values(), ids=STEPS)
def test_a_step_is_pending_until_it_is_finished(
    tracked: TrackedJob, step: Step, assumed: Plan | None
) -> None:
    tracked.decide(step, at=1.0)
    assert (tracked.busy, tracked.settled, tracked.assumed) == (True, False, assumed)
    tracked.end_step()
    assert (tracked.busy, tracked.settled, tracked.assumed) == (False, True, None)


def test_a_job_counts_as_never_fitting_until_another_verdict(tracked: TrackedJob) -> None:
    since = []
    for at, step in enumerate([NO_ROOM, TOO_BIG, TOO_BIG, NO_ROOM, TOO_BIG]):
        tracked.decide(step, at=float(at))
        since.append(tracked.never_fits_since)
    assert since == [None, 1.0, 1.0, None, 4.0]


def test_failed_writes_back_off_until_an_accepted_write_or_an_edit(tracked: TrackedJob) -> None:
    assert [tracked.write_failed(at=0.0) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert tracked.not_before == 30.0
    tracked.update(tracked.raw, replace(tracked.job), None, JobState())
    assert tracked.not_before == 0.0
    tracked.write_accepted()
    assert tracked.write_failed(at=5.0) == 1.0
    assert tracked.not_before == 6.0


def test_only_progress_restarts_the_clock(tracked: TrackedJob) -> None:
    for at, marker in enumerate([("a",), ("a",), ("b",), ("b",)]):
        tracked.observe_progress(marker, at=float(at))
    assert tracked.progressed_at == 2.0


def test_each_pod_without_a_node_has_a_clock_of_its_own(tracked: TrackedJob) -> None:
    gated, pinned = pod(tracked.job, "worker", 0, gated=True), pod(tracked.job, "worker", 1)
    tracked.observe_unbound([gated, pinned], at=1.0)
    tracked.observe_unbound([pinned], at=2.0)  # the other pod was deleted,
    tracked.observe_unbound([gated, pinned], at=3.0)  # and came back
    assert tracked.unbound_since == {(gated.uid, True): 3.0, (pinned.uid, False): 1.0}
    tracked.observe_unbound(
        [replace(gated, gates=0, gate=None), replace(pinned, node_name="a")], at=4.0
    )
    assert tracked.unbound_since == {(gated.uid, False): 4.0}


def test_each_slot_without_a_reserved_gpu_has_a_clock_of_its_own(tracked: TrackedJob) -> None:
    tracked.observe_unreserved([("n", 0), ("n", 1)], at=1.0)
    tracked.observe_unreserved([("n", 1)], at=2.0)
    tracked.observe_unreserved([("n", 0), ("n", 1)], at=3.0)
    assert tracked.unreserved_since == {("n", 0): 3.0, ("n", 1): 1.0}


def test_a_step_is_paused_after_several_refusals_in_a_row(tracked: TrackedJob) -> None:
    def attempt(*, at: float) -> bool:
        tracked.decide(Unsuspend(PLAN, Verdict(names.REASON_PLANNED, "")), at=at)
        tracked.end_step()
        tracked.write_refused("denied", at=at)
        return tracked.refusals["Unsuspend"].until > at

    assert [attempt(at=1.0) for _ in range(MAX_REFUSALS)] == [False] * 4 + [True]
    assert tracked.unclaimed
    assert attempt(at=2.0 + REFUSED_SECONDS), "once more, some time later"
    tracked.write_accepted()
    assert not attempt(at=1000.0)


def test_a_refusal_is_forgotten_when_a_field_that_the_step_tests_changes(
    tracked: TrackedJob,
) -> None:
    tracked.write_refused("denied", at=1.0)
    tracked.update(tracked.raw, replace(tracked.job, labels={"a": "b"}), None, JobState())
    assert tracked.refusals
    tracked.update(tracked.raw, replace(tracked.job, suspend=False), None, JobState())
    assert not tracked.refusals


NOW = 1_000.0
WAITS: dict[str, tuple[float, float, float, float]] = {
    # created, suspended, enlarged -> seconds waited
    "since it was created": (NOW - 50, 0.0, 0.0, 50.0),
    "since it was suspended": (NOW - 50, NOW - 20, 0.0, 20.0),
    "since it was edited to need more": (NOW - 50, NOW - 20, NOW - 5, 5.0),
    "suspended by a clock that was ahead": (NOW - 50, NOW + 3600, 0.0, 50.0),
    "edited before the clock was set back": (NOW - 50, NOW - 20, NOW + 3600, 20.0),
}


@pytest.mark.parametrize(
    ("created", "suspended_at", "enlarged_at", "want"), WAITS.values(), ids=WAITS
)
def test_the_seconds_that_a_job_has_waited_at_its_present_size(
    created: float, suspended_at: float, enlarged_at: float, want: float
) -> None:
    builder = job().worker(2, cpu="1").held().created(created)
    tracked = TrackedJob(builder.raw, builder.build(), None, JobState(suspended_at=suspended_at))
    tracked.enlarged_at = enlarged_at
    assert tracked.queued_seconds(NOW) == want


def test_errors_are_kept_with_the_job_until_they_are_read(tracked: TrackedJob) -> None:
    failures, error = Failures(), ValueError("a bug")
    with failures.collect_errors_of(tracked):
        raise error
    with failures.collect_errors_of(tracked):
        pass
    assert failures.take() == [(tracked, error)]
    assert failures.take() == []


def test_an_exit_of_the_process_is_not_caught(tracked: TrackedJob) -> None:
    failures = Failures()
    for error in (KeyboardInterrupt, asyncio.CancelledError):
        with pytest.raises(error), failures.collect_errors_of(tracked):
            raise error
    assert failures.take() == []


ALL = {names.SCALED, names.MOVED, names.RESIZED, names.STOPPED}
OPTED = Settings(elastic=Range(1, 4), resize=Resize.CPU, migrate="checkpointed", preempt="always")
OFF = ("scale", "resize", "shift", "preempt")
FORBIDDEN = replace(OPTED, companion={name: PolicyChoice(Mode.OFF) for name in OFF})
TO_REVERT = JobState(
    requested=4,
    cpu=CpuState(by=frozenset({"shift"})),
    move=MoveState(source={ReplicaKey("worker", 0): "a"}),
    stop=StopState(waiting="urgent"),
)
SHOWN: dict[str, tuple[Settings, JobState, dict[str, object], set[str]]] = {
    "none without settings": (Settings(), JobState(), {}, set()),
    "changes that the job opted in to": (OPTED, JobState(), {}, ALL),
    "no change that an administrator switched off": (FORBIDDEN, JobState(), {}, {names.MOVED}),
    "a restart once it is stalled": (
        Settings(migrate="checkpointed", stalled="restart"),
        JobState(),
        {},
        {names.MOVED, names.STOPPED},
    ),
    "no change before kfext handles the job": (OPTED, JobState(), {"phase": None}, set()),
    "changes that kfext has to revert": (Settings(), TO_REVERT, {"phase": None}, ALL),
    "no CPU while it is suspended": (OPTED, JobState(), {"suspend": True}, ALL - {names.RESIZED}),
    "no change after its end": (OPTED, TO_REVERT, {"deleting": True}, set()),
}


@pytest.mark.parametrize(("settings", "state", "fields", "want"), SHOWN.values(), ids=SHOWN)
def test_the_conditions_on_changes_that_a_job_may_have(
    settings: Settings, state: JobState, fields: dict[str, Any], want: set[str]
) -> None:
    phase = fields.pop("phase", names.PLACED)
    tracked = TrackedJob({}, replace(job().worker(2).build(), **fields), None, state)
    tracked.phase = phase
    assert tracked.changes_shown(settings) == want
