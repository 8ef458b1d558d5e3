"""What the companion knows of a job that opted in."""

import math
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.companion.operation import Operation, Trial
from kfext.core.companion.proposal import Measure
from kfext.core.lifecycle.steps import Resize
from kfext.core.progress.reported import GrowthState, Progress, Reported
from kfext.core.settings.values import MetricsSource
from kfext.model.cpu_state import CpuState
from kfext.model.cpu_use import CpuUse
from kfext.model.job_state import JobState
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.state.tracked_job import TrackedJob
from kfext.state.uses import Uses
from kfext.state.watched_job import WatchedJob, all_measured, is_whole, live_pods, watch, why_unread
from tests.builders import job
from tests.unit.core.companion.jobs import proposal
from tests.unit.core.companion.pods import running

BUILT = job("TFJob", uid="j").worker(2).resumed().build()
TRIAL = Trial(proposal(), before=(1.0,))


def watched(state: JobState | None = None, *, now: float = 0.0) -> WatchedJob:
    return watch(TrackedJob({}, BUILT, None, state or JobState()), now)


def test_what_it_lost_under_another_controller_counts_on() -> None:
    one = watched(JobState(cpu=CpuState(used=100.0, lost=5.0)))
    assert (one.budget.used, one.budget.lost) == (100.0, 5.0)


def test_a_step_notes_up_to_when_the_budget_is_counted() -> None:
    now = Moment(wall=9_000.0, monotonic=5.0)
    step = Resize((), JobState(cpu=CpuState(used=1.0)), Verdict("CpuMoved", "why"))
    assert watched().dated(step, now).state.cpu == CpuState(used=1.0, counted_at=9_000.0)
    owing = watched(JobState(cpu=CpuState(counted_at=8_000.0)))
    assert owing.dated(step, now).state.cpu.counted_at == 8_000.0
    forgets = replace(step, state=JobState())
    assert watched().dated(forgets, now) == forgets


# --- what is not known of it ----------------------------------------------------------------------

LOG, NO_LOG = MetricsSource(), MetricsSource("off")
VAIN = Verdict(names.REASON_NOTHING_RECOGNISED, "nothing in the log looks like progress")
SEEN = Verdict(names.REASON_RECOGNISED, "the log shows speed")
SPEED = Reported(Progress(metric="speed"), known=SEEN)
UNREAD: dict[str, tuple[Reported | None, MetricsSource, float | None, str]] = {
    "its log is not read": (None, NO_LOG, math.inf, "kfext.dev/metrics is off"),
    "its log was not read yet": (None, LOG, None, ""),
    "nothing is recognised": (Reported(known=VAIN), LOG, None, VAIN.message),
    "nothing is recognised, early": (Reported(known=VAIN), LOG, math.inf, ""),
    "it shows how far it is": (SPEED, LOG, 50.0, ""),
    "it has grown before": (Reported(growth=0.1, known=VAIN), LOG, None, ""),
    "which way a measure improves": (SPEED, LOG, None, "not known whether speed improves"),
    "its growth is about to be known": (replace(SPEED, state=GrowthState.NEW), LOG, None, ""),
}


@pytest.mark.parametrize(("reported", "source", "left", "want"), UNREAD.values(), ids=UNREAD)
def test_why_nothing_is_known_of_its_progress(
    reported: Reported | None, source: MetricsSource, left: float | None, want: str
) -> None:
    found = why_unread(reported, source=source, left=left)
    assert want in found
    assert bool(found) is bool(want)


# --- after a failure ------------------------------------------------------------------------------

FAILED = 1000.0
HELD: dict[str, tuple[dict[str, bool], float, int, bool]] = {
    "what the user wrote is restored": ({"restoring": True}, 0, 0, False),
    "nothing is tried for a while": ({}, 29, 0, True),
    "then it is tried again": ({}, 30, 0, False),
    "at once if a quota changes": ({}, 0, 1, False),
    "what was refused for good is not": ({"lasting": True}, 10_000, 0, True),
    "unless a quota changes": ({"lasting": True}, 0, 1, False),
    "but not if just that has failed": ({"restored": True, "restoring": True}, 29, 0, True),
    "that is tried again even if it was refused for good": (
        {"restored": True, "lasting": True, "restoring": True},
        30,
        0,
        False,
    ),
}


@pytest.mark.parametrize(("how", "after", "changes", "want"), HELD.values(), ids=HELD)
def test_after_a_failure(how: dict[str, bool], after: float, changes: int, *, want: bool) -> None:
    one = watched()
    restored, lasting = how.get("restored", False), how.get("lasting", False)
    one.fail(FAILED, lasting=lasting, restoring=restored, changes=0)
    assert one.pause is not None
    restoring = how.get("restoring", False)
    assert one.pause.holds(FAILED + after, changes=changes, restoring=restoring) is want


@pytest.mark.parametrize(
    ("changes", "lasting"),
    [
        pytest.param(0, True, id="is still"),
        pytest.param(1, False, id="is not once a quota has changed"),
    ],
)
def test_after_another_failure_what_was_refused_for_good(changes: int, *, lasting: bool) -> None:
    one = watched()
    one.fail(0.0, lasting=True, restoring=False, changes=0)
    one.fail(0.0, lasting=False, restoring=False, changes=changes)
    assert one.pause is not None
    assert one.pause.lasting is lasting


def test_each_failure_in_a_row_doubles_the_pause_up_to_a_bound() -> None:
    one, pauses = watched(), []
    for _ in range(6):
        one.fail(0.0, lasting=False, restoring=False, changes=0)
        assert one.pause is not None
        pauses.append(one.pause.until)
    assert pauses == [30, 60, 120, 240, 300, 300]


# --- who shares its nodes -------------------------------------------------------------------------

ALONE = frozenset([("a", None)])
BESIDE = frozenset([("a", None), ("b", None)])
RESIZED = frozenset([("a", 350)])


@pytest.mark.parametrize(
    ("company", "keeps_trial", "keeps_history"),
    [
        pytest.param(ALONE, True, True, id="the same pods with the same limits"),
        pytest.param(RESIZED, True, False, id="the same pods with other limits"),
        pytest.param(BESIDE, False, False, id="other pods"),
    ],
)
def test_what_was_seen_before_compares_with_nothing_after(
    company: frozenset[tuple[str, int | None]],
    *,
    keeps_trial: bool,
    keeps_history: bool,
) -> None:
    one = watched()
    one.meet(ALONE)
    one.trial = TRIAL
    one.history.take(Progress(), 350, now=0.0)
    one.meet(company)
    assert (one.trial is TRIAL) is keeps_trial
    assert bool(one.history.of(Measure.USE)) is keeps_history


@pytest.mark.parametrize(
    ("company", "want"),
    [
        pytest.param(RESIZED, TRIAL, id="the same pods"),
        pytest.param(BESIDE, None, id="other pods"),
    ],
)
def test_no_trial_begins_for_what_was_under_way_when_other_pods_came(
    company: frozenset[tuple[str, int | None]], want: Trial | None
) -> None:
    one = watched()
    one.meet(ALONE)
    one.operation = Operation(TRIAL.proposal, trial=TRIAL)
    one.meet(company)
    assert one.operation.trial is want


# --- its pods -------------------------------------------------------------------------------------

ENDED = running(1, phase="Succeeded")
LEAVING = running(1, deleting=True)
WHOLE: dict[str, tuple[tuple[Pod, ...], bool]] = {
    "all pods run": ((running(0), running(1)), True),
    "one has ended": ((running(0), ENDED), True),
    "one is missing": ((running(0),), False),
    "one is about to go": ((running(0), LEAVING), False),
    "one has not started": ((running(0), running(1, phase="Pending")), False),
    "one has no node": ((running(0), running(1, node_name="")), False),
}


@pytest.mark.parametrize(("pods", "want"), WHOLE.values(), ids=WHOLE)
def test_a_job_is_whole_when(pods: tuple[Pod, ...], *, want: bool) -> None:
    assert is_whole(watched(), pods) is want


def test_pods_that_have_ended_or_are_about_to_go_are_not_live() -> None:
    assert live_pods((running(0), ENDED, LEAVING)) == (running(0),)


def test_the_use_of_all_live_pods_must_be_known() -> None:
    uses = Uses()
    uses.take({"worker-0": CpuUse(0.1, at=0.0, window=30.0)})
    assert all_measured((running(0), ENDED), uses)
    assert not all_measured((running(0), replace(ENDED, phase="Running")), uses)
