"""The condition Resized of a job, which shows the most important of several messages."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.progress.reported import Progress, Reported
from kfext.core.settings.values import MetricsSource
from kfext.model.cpu_state import MAX_RESIZED, CpuState, PodCpu
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.model.policy import PolicyChoice
from kfext.model.verdict import Verdict
from kfext.state.running.cpu.record import record_of as cpu_record
from kfext.state.running.cpu.words import cpu_shown, why_no_resize, why_unread
from kfext.state.running.operation import ResizeOperation
from kfext.state.running.policy import ConditionStatus
from kfext.state.running.proposal import Rank
from kfext.state.running.running_job import RunningJob
from tests.builders import job
from tests.unit.state.running.jobs import proposal
from tests.unit.state.running.pods import JOB, running
from tests.unit.state.two_workers import TwoWorkers

BOTH = {"resize": PolicyChoice(), "shift": PolicyChoice()}
REFUSED = Verdict(names.REASON_RESIZE_REFUSED, "beyond the quota")
OLD = Verdict(names.REASON_CPU_MOVED, "350m of 1400m")
RESIZED = CpuState(requested={"worker": PodCpu(20, 1000)}, written={"worker-0": (PodCpu(20, 400),)})


def bed_of(state: CpuState | None = None) -> TwoWorkers:
    bed = TwoWorkers()
    bed.measure(0.0)
    bed.job.chosen = BOTH
    bed.job.tracked.state = JobState(cpu=state or CpuState())
    return bed


def shown(
    bed: TwoWorkers, *, dry_run: bool = False, decided: bool = True, paused: bool = False
) -> ConditionStatus | None:
    signal, _ = bed.signals()
    proposed = proposal("uid-1", reason="it would move") if dry_run else None
    return cpu_shown(bed.job, signal, proposed, decided=decided, paused=paused)


def refuse(running: RunningJob) -> None:
    cpu_record(running).refused = REFUSED


def begin_move(running: RunningJob) -> None:
    cpu_record(running).operation = ResizeOperation(proposal("uid-1"))


def begin_restore(running: RunningJob) -> None:
    cpu_record(running).operation = ResizeOperation(proposal("uid-1", rank=Rank.RESTORE))


def make_unfit(running: RunningJob) -> None:
    cpu_record(running).unfit = "Kueue manages it"


def disable_all(running: RunningJob) -> None:
    disabled = {"resize": "its budget", "shift": "by hand"}
    running.tracked.state = JobState(cpu=CpuState(disabled=disabled))


def disable_one(running: RunningJob) -> None:
    running.tracked.state = JobState(cpu=CpuState(disabled={"resize": "its budget"}))


def make_all_ineligible(running: RunningJob) -> None:
    cpu_record(running).ineligible = {"resize": "not Burstable", "shift": "not Burstable"}


def make_one_ineligible(running: RunningJob) -> None:
    cpu_record(running).ineligible = {"resize": "not Burstable", "shift": ""}


def turn_metrics_off(running: RunningJob) -> None:
    cpu_record(running).ineligible = {"resize": "metrics is off"}
    cpu_record(running).unread = "metrics is off"


Change = Callable[[RunningJob], None]
FIRST: dict[str, tuple[list[Change], str, str]] = {
    "a refusal rather than an operation in progress": (
        [begin_move, refuse],
        names.REASON_RESIZE_REFUSED,
        "beyond the quota",
    ),
    "moved CPU": ([begin_move, disable_all], names.REASON_CPU_MOVED, "a reason"),
    "restored CPU": ([begin_restore, disable_all], names.REASON_CPU_RESTORED, "a reason"),
    "why no policy may decide on it": ([make_unfit], names.REASON_STANDS_DOWN, "Kueue manages"),
    "all disabled policies": (
        [disable_all, make_all_ineligible],
        names.REASON_RESTS,
        "its budget; by hand",
    ),
    "one disabled policy": ([disable_one], names.REASON_RESTS, "its budget"),
    "the common reason, once": ([make_all_ineligible], names.REASON_STANDS_DOWN, "not Burstable"),
    "unknown progress": ([], names.REASON_TOO_EARLY, "its progress"),
    "ineligible for resize: shift does not need the unknown end": (
        [make_one_ineligible],
        names.REASON_NOTHING_TO_MOVE,
        "ineligible for resize: not Burstable",
    ),
    "the reason for unknown progress": (
        [turn_metrics_off],
        names.REASON_NOTHING_TO_MOVE,
        "ineligible for resize: metrics is off",
    ),
}


@pytest.mark.parametrize(("changes", "reason", "message"), FIRST.values(), ids=FIRST)
def test_the_condition_of_a_job_shows(changes: list[Change], reason: str, message: str) -> None:
    bed = bed_of()
    for change in changes:
        change(bed.job)
    result = shown(bed, paused=True)  # a refusal is shown during the back-off only
    assert result is not None
    assert result.verdict.reason == reason
    assert message in result.verdict.message


@pytest.mark.parametrize(
    ("early", "want"),
    [
        pytest.param(True, names.REASON_TOO_EARLY, id="a proposal waits for measurements"),
        pytest.param(False, names.REASON_NOTHING_TO_MOVE, id="there is no proposal"),
    ],
)
def test_the_condition_of_a_job_that_is_not_resized_shows_that(want: str, *, early: bool) -> None:
    bed = bed_of()
    cpu_record(bed.job).early = early
    signal, _ = bed.signals()
    known = replace(signal, remaining=50.0)
    result = cpu_shown(bed.job, known, None, decided=True, paused=False)
    assert result is not None
    assert (result.holds, result.verdict.reason) == (False, want)


def test_equal_reasons_are_shown_once() -> None:
    bed = bed_of()
    make_all_ineligible(bed.job)
    result = shown(bed)
    assert result is not None
    assert result.verdict.message == "not Burstable"


def test_a_refusal_is_not_shown_after_the_back_off() -> None:
    bed = bed_of()
    refuse(bed.job)
    result = shown(bed, paused=False)
    assert result is not None
    assert result.verdict.reason != names.REASON_RESIZE_REFUSED


def test_a_dry_run_is_shown_before_unknown_progress() -> None:
    result = shown(bed_of(), dry_run=True)
    assert result == ConditionStatus(
        holds=False, verdict=Verdict(names.REASON_WOULD_MOVE, "it would move")
    )


def test_an_unknown_use_is_shown() -> None:
    bed = bed_of()
    bed.uses.record({})
    result = shown(bed)
    assert result is not None
    assert "use of its pods is not known" in result.verdict.message
    turn_metrics_off(bed.job)
    result = shown(bed)
    assert result is not None
    assert result.verdict == Verdict(names.REASON_STANDS_DOWN, "metrics is off")


def test_a_job_that_opted_out_has_a_condition_only_while_its_cpu_is_being_restored() -> None:
    bed = bed_of()
    bed.job.chosen = {}
    assert shown(bed) is None
    begin_restore(bed.job)
    assert shown(bed) is not None


@pytest.mark.parametrize(
    ("before", "state", "decided", "want"),
    [
        pytest.param(None, CpuState(), False, names.REASON_NOTHING_TO_MOVE, id="at first"),
        pytest.param(OLD, CpuState(), False, names.REASON_CPU_MOVED, id="last message"),
        pytest.param(
            OLD, CpuState(), True, names.REASON_NOTHING_TO_MOVE, id="a policy has decided since"
        ),
        pytest.param(OLD, RESIZED, True, names.REASON_CPU_MOVED, id="still resized: last message"),
    ],
)
def test_without_a_new_verdict_the_condition_shows(
    before: Verdict | None, state: CpuState, want: str, *, decided: bool
) -> None:
    bed = bed_of(state)
    if before is not None:
        bed.job.shown[names.RESIZED] = ConditionStatus(holds=False, verdict=before)
    signal, _ = bed.signals()
    known = replace(signal, remaining=50.0)
    result = cpu_shown(bed.job, known, None, decided=decided, paused=False)
    assert result is not None
    assert result.verdict.reason == want


MANY = [running(index) for index in range(MAX_RESIZED + 1)]
# A pod that differs from the first of its type counts twice, and 36 fit: 18 and 17.
UNLIKE = [running(index, 400 + index) for index in range(18)]
KUEUE = job("TFJob").worker(1).queued_by_kueue().build()
AUTOSCALED = job().elastic(metrics=[{"type": "Resource"}]).build()
WHY: dict[str, tuple[TrainingJob, list[Pod], str]] = {
    "Kueue accounts for its resources": (KUEUE, [running()], "Kueue"),
    "the operator makes an autoscaler for it": (AUTOSCALED, [running()], "HorizontalPodAutoscaler"),
    "it has more pods than its state can record": (JOB, MANY, "37 pods"),
    "its training container is unknown": (JOB, [replace(running(), trainer=None)], "no container"),
    "a pod is no replica": (JOB, [running(), running(1, replica=None)], "no container"),
    "more pods with their own CPU than its state can record": (
        JOB,
        [running(index, 400 + index) for index in range(19)],
        "19 pods, 18 of them with their own CPU",
    ),
    "a resize restarts a container": (JOB, [running(), running(1, restarts=True)], "resizePolicy"),
}


@pytest.mark.parametrize(("training", "pods", "why"), WHY.values(), ids=WHY)
def test_a_job_is_unfit_if(training: TrainingJob, pods: list[Pod], why: str) -> None:
    assert why in why_no_resize(training, pods, CpuState())


@pytest.mark.parametrize("pods", [[], [running()], MANY[:-1], UNLIKE], ids=len)
def test_any_other_job_is_fit(pods: list[Pod]) -> None:
    assert why_no_resize(JOB, pods, CpuState()) == ""


# --- unknown progress -----------------------------------------------------------------------------

LOG, NO_LOG = MetricsSource(), MetricsSource("off")
NOT_RECOGNISED = Verdict(names.REASON_NOTHING_RECOGNISED, "nothing in the log looks like progress")
RECOGNISED = Verdict(names.REASON_RECOGNISED, "the log shows speed")
SPEED = Reported(Progress(metric="speed"), known=RECOGNISED)
# The report, its source, the core-seconds to the end (infinity: too early to tell), the reason.
UNREAD: dict[str, tuple[Reported | None, MetricsSource, float | None, str]] = {
    "its log is not read": (None, NO_LOG, math.inf, "kfext.dev/metrics is off"),
    "its log was not read yet": (None, LOG, None, ""),
    "nothing is recognised": (Reported(known=NOT_RECOGNISED), LOG, None, NOT_RECOGNISED.message),
    "nothing is recognised, early": (Reported(known=NOT_RECOGNISED), LOG, math.inf, ""),
    "it shows its progress": (SPEED, LOG, 50.0, ""),
    "its log shows no total": (SPEED, LOG, None, "no total of steps"),
}


@pytest.mark.parametrize(("reported", "source", "remaining", "want"), UNREAD.values(), ids=UNREAD)
def test_the_reason_for_unknown_progress(
    reported: Reported | None, source: MetricsSource, remaining: float | None, want: str
) -> None:
    result = why_unread(reported, source=source, remaining=remaining)
    assert want in result
    assert bool(result) is bool(want)
