"""What a job is shown of its CPU and its size; the most important comes first."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.companion.operation import Phase, Readiness, ResizeOperation
from kfext.core.companion.policy import ConditionStatus
from kfext.core.companion.proposal import Cause, Rank, Workers
from kfext.core.companion.scale import SCALED, Sizes, workers_proposal
from kfext.core.progress.reported import Reported
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.job_state import JobState
from kfext.model.policy import PolicyChoice
from kfext.model.scale_state import ScaleState
from kfext.model.verdict import Verdict
from kfext.state.companion_words import cpu_shown, size_shown
from kfext.state.running_job import RunningJob, SizeRecord
from kfext.state.tracked_job import TrackedJob
from tests.builders import job
from tests.unit.core.companion.jobs import proposal
from tests.unit.state.two_workers import TwoWorkers

BOTH = {"resize": PolicyChoice(), "shift": PolicyChoice()}
REFUSED = Verdict(names.REASON_RESIZE_REFUSED, "beyond the quota")
OLD = Verdict(names.REASON_CPU_MOVED, "350m of 1400m")
RESIZED = CpuState(asked={"worker": PodCpu(20, 1000)}, written={"worker-0": (PodCpu(20, 400),)})


def bed_of(state: CpuState | None = None) -> TwoWorkers:
    bed = TwoWorkers()
    bed.measure(0.0)
    bed.job.chosen = BOTH
    bed.job.tracked.state = JobState(cpu=state or CpuState())
    return bed


def shown(
    bed: TwoWorkers, *, would: bool = False, decided: bool = True, paused: bool = False
) -> ConditionStatus | None:
    job, _ = bed.signals()
    proposed = proposal("uid-1", reason="it would move") if would else None
    return cpu_shown(bed.job, job, proposed, decided=decided, paused=paused)


def is_refused(running: RunningJob) -> None:
    running.cpu.refused = REFUSED


def is_moved(running: RunningJob) -> None:
    running.cpu.operation = ResizeOperation(proposal("uid-1"))


def is_restored(running: RunningJob) -> None:
    running.cpu.operation = ResizeOperation(proposal("uid-1", rank=Rank.RESTORE))


def is_unfit(running: RunningJob) -> None:
    running.cpu.unfit = "Kueue manages it"


def rests(running: RunningJob) -> None:
    running.tracked.state = JobState(
        cpu=CpuState(rests={"resize": "its budget", "shift": "by hand"})
    )


def one_rests(running: RunningJob) -> None:
    running.tracked.state = JobState(cpu=CpuState(rests={"resize": "its budget"}))


def stands_down(running: RunningJob) -> None:
    running.cpu.stood_down = {"resize": "not Burstable", "shift": "not Burstable"}


def one_stands_down(running: RunningJob) -> None:
    running.cpu.stood_down = {"resize": "not Burstable", "shift": ""}


def is_unread(running: RunningJob) -> None:
    running.cpu.stood_down = {"resize": "metrics is off"}
    running.cpu.unread = "metrics is off"


Change = Callable[[RunningJob], None]
FIRST: dict[str, tuple[list[Change], str, str]] = {
    "what is refused, before what is under way": (
        [is_moved, is_refused],
        names.REASON_RESIZE_REFUSED,
        "beyond the quota",
    ),
    "what is moved": ([is_moved, rests], names.REASON_CPU_MOVED, "a reason"),
    "what is restored": ([is_restored, rests], names.REASON_CPU_RESTORED, "a reason"),
    "why no policy looks at it": ([is_unfit], names.REASON_STANDS_DOWN, "Kueue manages"),
    "all that rests": ([rests, stands_down], names.REASON_RESTS, "its budget; by hand"),
    "one policy that rests": ([one_rests], names.REASON_RESTS, "its budget"),
    "why all leave it alone, once": ([stands_down], names.REASON_STANDS_DOWN, "not Burstable"),
    "that its progress is not known": ([], names.REASON_TOO_EARLY, "its progress"),
    "why a policy that needs its growth leaves it alone": (
        [one_stands_down],
        names.REASON_NOTHING_TO_MOVE,
        "resize leaves it alone: not Burstable",
    ),
    "why its progress is not known": (
        [is_unread],
        names.REASON_NOTHING_TO_MOVE,
        "resize leaves it alone: metrics is off",
    ),
}


@pytest.mark.parametrize(("changes", "reason", "message"), FIRST.values(), ids=FIRST)
def test_a_job_is_shown(changes: list[Change], reason: str, message: str) -> None:
    bed = bed_of()
    for change in changes:
        change(bed.job)
    found = shown(bed, paused=True)
    assert found is not None
    assert found.verdict.reason == reason
    assert message in found.verdict.message


@pytest.mark.parametrize(
    ("early", "want"),
    [
        pytest.param(True, names.REASON_TOO_EARLY, id="that it waits"),
        pytest.param(False, names.REASON_NOTHING_TO_MOVE, id="that nothing is to be done"),
    ],
)
def test_of_a_job_that_has_its_own_limits_it_is_shown(want: str, *, early: bool) -> None:
    bed = bed_of()
    bed.job.cpu.early = early
    job, _ = bed.signals()
    known = replace(job, reported=Reported(growth=0.5))
    found = cpu_shown(bed.job, known, None, decided=True, paused=False)
    assert found is not None
    assert (found.holds, found.verdict.reason) == (False, want)


def test_equal_reasons_are_shown_once() -> None:
    bed = bed_of()
    stands_down(bed.job)
    found = shown(bed)
    assert found is not None
    assert found.verdict.message == "not Burstable"


def test_what_was_refused_is_shown_while_it_is_not_tried_again() -> None:
    bed = bed_of()
    is_refused(bed.job)
    found = shown(bed, paused=False)
    assert found is not None
    assert found.verdict.reason != names.REASON_RESIZE_REFUSED


def test_what_would_be_done_is_shown_before_what_is_too_early() -> None:
    found = shown(bed_of(), would=True)
    assert found == ConditionStatus(
        holds=False, verdict=Verdict(names.REASON_WOULD_MOVE, "it would move")
    )


def test_a_use_that_is_not_known_is_shown() -> None:
    bed = bed_of()
    bed.uses.take({})
    found = shown(bed)
    assert found is not None
    assert "use of its pods is not known" in found.verdict.message
    is_unread(bed.job)
    found = shown(bed)
    assert found is not None
    assert found.verdict == Verdict(names.REASON_STANDS_DOWN, "metrics is off")


def test_a_job_that_has_opted_out_is_shown_nothing() -> None:
    bed = bed_of()
    bed.job.chosen = {}
    assert shown(bed) is None
    is_restored(bed.job)
    assert shown(bed) is not None


@pytest.mark.parametrize(
    ("before", "state", "decided", "want"),
    [
        pytest.param(None, CpuState(), False, names.REASON_NOTHING_TO_MOVE, id="nothing at first"),
        pytest.param(OLD, CpuState(), False, names.REASON_CPU_MOVED, id="the last words between"),
        pytest.param(OLD, CpuState(), True, names.REASON_NOTHING_TO_MOVE, id="then nothing"),
        pytest.param(OLD, RESIZED, True, names.REASON_CPU_MOVED, id="what stands, as it stands"),
    ],
)
def test_where_nothing_new_is_known_a_job_is_shown(
    before: Verdict | None, state: CpuState, want: str, *, decided: bool
) -> None:
    bed = bed_of(state)
    if before is not None:
        bed.job.shown[names.RESIZED] = ConditionStatus(holds=False, verdict=before)
    job, _ = bed.signals()
    known = replace(job, reported=Reported(growth=0.1))
    found = cpu_shown(bed.job, known, None, decided=decided, paused=False)
    assert found is not None
    assert found.verdict.reason == want


def scaled(*, now: int = 4, state: JobState | None = None) -> RunningJob:
    made = job().worker(now)
    tracked = TrackedJob(made.raw, made.build(), None, state or JobState())
    asked = tracked.state.asked or now
    return RunningJob(tracked, size=SizeRecord(Sizes(now, 1, 8, asked), expected=now))


def changing(phase: Phase) -> RunningJob:
    running = scaled()
    change = Workers(Cause.GUARD, 2)
    proposal = workers_proposal(running.uid, change, "a job waits")
    running.size.begin(proposal, change, phase, at=10.0)
    return running


def refused(*, until: float) -> RunningJob:
    running = scaled()
    running.size.refused = Verdict(names.REASON_SCALE_REFUSED, "quota")
    running.size.not_before = until
    return running


def unfit(running: RunningJob) -> RunningJob:
    running.size.unfit = "Kueue manages it"
    return running


RESTING = JobState(scale=ScaleState(rests="another client set 4"))
CASES: dict[str, tuple[RunningJob, Readiness, str, bool, str]] = {
    "it has what it asked for": (scaled(), Readiness.READY, "", False, names.REASON_AS_ASKED),
    "it has fewer": (
        scaled(now=2, state=JobState(asked=4, admitted=2)),
        Readiness.READY,
        "",
        True,
        names.REASON_SHRUNK,
    ),
    "it has more": (
        scaled(now=6, state=JobState(asked=4, admitted=6)),
        Readiness.READY,
        "",
        True,
        names.REASON_GROWN,
    ),
    "a checkpoint is awaited": (
        changing(Phase.SAVING),
        Readiness.ASK,
        "",
        False,
        names.REASON_AWAITS_CHECKPOINT,
    ),
    "its pods come or go": (
        changing(Phase.SETTLING),
        Readiness.ASK,
        "",
        False,
        names.REASON_RESCALING,
    ),
    "a trial is nothing to wait for": (
        changing(Phase.TRIAL),
        Readiness.READY,
        "",
        False,
        names.REASON_AS_ASKED,
    ),
    "it was refused a moment ago": (
        refused(until=60.0),
        Readiness.READY,
        "",
        False,
        names.REASON_SCALE_REFUSED,
    ),
    "it was refused long ago": (
        refused(until=30.0),
        Readiness.READY,
        "",
        False,
        names.REASON_AS_ASKED,
    ),
    "the policy rests": (scaled(state=RESTING), Readiness.READY, "", False, names.REASON_RESTS),
    "it cannot be scaled": (
        unfit(scaled()),
        Readiness.NEVER,
        "",
        False,
        names.REASON_STANDS_DOWN,
    ),
    "it cannot be scaled any more, and was refused a moment ago": (
        unfit(refused(until=60.0)),
        Readiness.READY,
        "",
        False,
        names.REASON_STANDS_DOWN,
    ),
    "it would be": (scaled(), Readiness.READY, "get 5 workers", False, names.REASON_WOULD_SCALE),
    "it has saved nothing": (scaled(), Readiness.NEVER, "", False, names.REASON_NO_CHECKPOINT),
    "it would be if it had saved": (
        scaled(),
        Readiness.NEVER,
        "get 5 workers",
        False,
        names.REASON_NO_CHECKPOINT,
    ),
}


@pytest.mark.parametrize(
    ("running", "ready", "would", "holds", "reason"), CASES.values(), ids=CASES.keys()
)
def test_what_is_shown(
    running: RunningJob, ready: Readiness, would: str, *, holds: bool, reason: str
) -> None:
    if would:
        running.size.would = workers_proposal(
            running.uid, Workers(Cause.GROWTH, 5), "there is room"
        )
    found = size_shown(running, ready, now=40.0)
    assert (found.holds, found.verdict.reason) == (holds, reason)
    assert would in found.verdict.message or reason == names.REASON_NO_CHECKPOINT
    assert reason in SCALED.reasons


def test_the_words_give_both_numbers() -> None:
    running = scaled(now=2, state=JobState(asked=4, admitted=2))
    found = size_shown(running, Readiness.READY, now=0.0)
    assert found.verdict.message.endswith(
        "2 of the 4 workers that it asked for; it gets the others once there is room"
    )
    running.size.hindered = "quota q allows 2 pods"
    found = size_shown(running, Readiness.READY, now=0.0)
    assert found.verdict.message.endswith("it asked for; quota q allows 2 pods")
    running.size.sizes = replace(running.size.sizes, asked=2)
    assert "2 workers" in size_shown(running, Readiness.READY, now=0.0).verdict.message


AUTOSCALER = {
    "it could grow": (
        4,
        True,
        "; it may have 1 to 8, but gets no more than it asked for while the cluster has an "
        "autoscaler",
    ),
    "it has all that it may have": (8, True, "; it may have 1 to 8"),
    "the cluster has none": (4, False, "; it may have 1 to 8"),
}


@pytest.mark.parametrize(("now", "present", "says"), AUTOSCALER.values(), ids=AUTOSCALER)
def test_the_words_say_that_an_autoscaler_keeps_a_job_from_growing(
    now: int, says: str, *, present: bool
) -> None:
    found = size_shown(scaled(now=now), Readiness.READY, now=0.0, autoscaler=present)
    assert found.verdict.message.endswith(says)
