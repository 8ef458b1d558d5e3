"""The condition Scaled of a job, which shows the most important of several messages."""

from dataclasses import dataclass, replace

import pytest

from kfext import names
from kfext.model.job_state import JobState
from kfext.model.scale_state import ScaleState
from kfext.model.verdict import Verdict
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.operation import Phase, Readiness
from kfext.state.running.proposal import Cause, Workers
from kfext.state.running.running_job import RunningJob
from kfext.state.running.size.record import SizeRecord
from kfext.state.running.size.record import record_of as size_record
from kfext.state.running.size.scale import SCALED, Sizes, workers_proposal
from kfext.state.running.size.words import size_shown
from tests.builders import job


def sized(*, now: int = 4, state: JobState | None = None) -> RunningJob:
    builder = job().worker(now)
    tracked = TrackedJob(builder.raw, builder.build(), None, state or JobState())
    requested = tracked.state.requested or now
    running = RunningJob(tracked)
    running.replace_record(SizeRecord(Sizes(now, 1, 8, requested), expected=now))
    return running


def changing(phase: Phase) -> RunningJob:
    running = sized()
    change = Workers(Cause.RESCUE, 2)
    proposal = workers_proposal(running.uid, change, "a job waits")
    size_record(running).begin(proposal, change, phase, at=10.0)
    return running


def refused(*, until: float) -> RunningJob:
    """Return a job with a refused change; `until`: the end of the back-off in monotonic seconds."""
    running = sized()
    size_record(running).refused = Verdict(names.REASON_SCALE_REFUSED, "quota")
    size_record(running).not_before = until
    return running


def ineligible(running: RunningJob) -> RunningJob:
    size_record(running).ineligible = "Kueue manages it"
    return running


DISABLED = JobState(scale=ScaleState(disabled="another client set 4"))


@dataclass(frozen=True)
class Case:
    """A job, what it is like, and the condition that it must have.

    `ready`: how ready the job is to be interrupted. `dry_run`: the text about the dry run, if any.
    `reason`, `holds`: the reason of the condition, and whether it holds.
    """

    running: RunningJob
    reason: str
    ready: Readiness = Readiness.READY
    dry_run: str = ""
    holds: bool = False


CASES: dict[str, Case] = {
    "it has its requested size": Case(sized(), names.REASON_AS_ASKED),
    "it is below its requested size": Case(
        sized(now=2, state=JobState(requested=4, assigned=2)), names.REASON_SHRUNK, holds=True
    ),
    "it is above its requested size": Case(
        sized(now=6, state=JobState(requested=4, assigned=6)), names.REASON_GROWN, holds=True
    ),
    "a checkpoint is awaited": Case(
        changing(Phase.SAVING), names.REASON_AWAITS_CHECKPOINT, ready=Readiness.ASK
    ),
    "its pods are added or removed": Case(
        changing(Phase.SETTLING), names.REASON_RESCALING, ready=Readiness.ASK
    ),
    "a trial is not shown": Case(changing(Phase.TRIAL), names.REASON_AS_ASKED),
    "it was refused, and the back-off lasts": Case(refused(until=60.0), names.REASON_SCALE_REFUSED),
    "it was refused, and the back-off is over": Case(refused(until=30.0), names.REASON_AS_ASKED),
    "the policy is disabled": Case(sized(state=DISABLED), names.REASON_RESTS),
    "it cannot be scaled": Case(
        ineligible(sized()), names.REASON_STANDS_DOWN, ready=Readiness.NEVER
    ),
    "it cannot be scaled, and the back-off lasts": Case(
        ineligible(refused(until=60.0)), names.REASON_STANDS_DOWN
    ),
    "it would be scaled": Case(sized(), names.REASON_WOULD_SCALE, dry_run="scaled to 5 workers"),
    "it has shown no checkpoint": Case(sized(), names.REASON_NO_CHECKPOINT, ready=Readiness.NEVER),
    "it has shown no checkpoint, and there is a dry run": Case(
        sized(), names.REASON_NO_CHECKPOINT, ready=Readiness.NEVER, dry_run="scaled to 5 workers"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_reason_of_the_condition_if(case: Case) -> None:
    running, reason = case.running, case.reason
    if case.dry_run:
        size_record(running).dry_run = workers_proposal(
            running.uid, Workers(Cause.GROWTH, 5), "capacity is free"
        )
    result = size_shown(running, case.ready, now=40.0)
    assert (result.holds, result.verdict.reason) == (case.holds, reason)
    assert case.dry_run in result.verdict.message or reason == names.REASON_NO_CHECKPOINT
    assert reason in SCALED.reasons


def test_the_message_has_the_present_and_the_requested_size() -> None:
    running = sized(now=2, state=JobState(requested=4, assigned=2))
    result = size_shown(running, Readiness.READY, now=0.0)
    assert result.verdict.message.endswith(
        "2 of the 4 workers that it requested; it regains the others once capacity is free"
    )
    size_record(running).quota_refusal = "quota q allows 2 pods"
    result = size_shown(running, Readiness.READY, now=0.0)
    assert result.verdict.message.endswith("it requested; quota q allows 2 pods")
    size_record(running).sizes = replace(size_record(running).sizes, requested=2)
    assert "2 workers" in size_shown(running, Readiness.READY, now=0.0).verdict.message


AUTOSCALER = {
    "it could scale up": (
        4,
        True,
        "; it may have 1 to 8, and more than requested only on nodes that the autoscaler keeps "
        "anyway",
    ),
    "it has its maximum": (8, True, "; it may have 1 to 8"),
    "the cluster has no autoscaler": (4, False, "; it may have 1 to 8"),
}


@pytest.mark.parametrize(("now", "autoscaler", "end"), AUTOSCALER.values(), ids=AUTOSCALER)
def test_the_message_says_where_a_job_may_scale_up_with_an_autoscaler(
    now: int, end: str, *, autoscaler: bool
) -> None:
    result = size_shown(sized(now=now), Readiness.READY, now=0.0, autoscaler=autoscaler)
    assert result.verdict.message.endswith(end)
