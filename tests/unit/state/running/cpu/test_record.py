"""The record of the CPU of a job."""

from dataclasses import replace

import pytest

from kfext.core.progress.reported import Progress
from kfext.model.cpu_use import CpuUse
from kfext.state.reports.uses import Uses
from kfext.state.running.cpu.record import CpuRecord, all_measured
from kfext.state.running.operation import ResizeOperation, Trial
from kfext.state.running.proposal import Measure
from tests.builders import job
from tests.unit.state.running.jobs import proposal
from tests.unit.state.running.pods import running

BUILT = job("TFJob", uid="j").worker(2).resumed().build()
ENDED = running(1, phase="Succeeded")
TRIAL = Trial(proposal(), before=(1.0,))


# --- after a failure ------------------------------------------------------------------------------


FAILED = 1000.0
HELD: dict[str, tuple[dict[str, bool], float, int, bool]] = {
    "the user's CPU is restored": ({"restoring": True}, 0, 0, False),
    "nothing is tried for a while": ({}, 29, 0, True),
    "then it is tried again": ({}, 30, 0, False),
    "at once if a quota changes": ({}, 0, 1, False),
    "a permanently refused change is not tried again": ({"lasting": True}, 10_000, 0, True),
    "a refused change is tried after a quota change": ({"lasting": True}, 0, 1, False),
    "but not a failed restore": ({"restored": True, "restoring": True}, 29, 0, True),
    "a permanently refused restore is tried again": (
        {"restored": True, "lasting": True, "restoring": True},
        30,
        0,
        False,
    ),
}


@pytest.mark.parametrize(("how", "after", "changes", "want"), HELD.values(), ids=HELD)
def test_after_a_failure(how: dict[str, bool], after: float, changes: int, *, want: bool) -> None:
    cpu = CpuRecord()
    restored, lasting = how.get("restored", False), how.get("lasting", False)
    cpu.fail(FAILED, lasting=lasting, restoring=restored, changes=0)
    assert cpu.back_off is not None
    restoring = how.get("restoring", False)
    assert cpu.back_off.holds(FAILED + after, changes=changes, restoring=restoring) is want


@pytest.mark.parametrize(
    ("changes", "lasting"),
    [
        pytest.param(0, True, id="is still"),
        pytest.param(1, False, id="is not once a quota has changed"),
    ],
)
def test_whether_a_refusal_lasts_after_another_failure(changes: int, *, lasting: bool) -> None:
    cpu = CpuRecord()
    cpu.fail(0.0, lasting=True, restoring=False, changes=0)
    cpu.fail(0.0, lasting=False, restoring=False, changes=changes)
    assert cpu.back_off is not None
    assert cpu.back_off.lasting is lasting


def test_each_failure_in_a_row_doubles_the_pause_up_to_a_bound() -> None:
    cpu, pauses = CpuRecord(), []
    for _ in range(6):
        cpu.fail(0.0, lasting=False, restoring=False, changes=0)
        assert cpu.back_off is not None
        pauses.append(cpu.back_off.until)
    assert pauses == [30, 60, 120, 240, 300, 300]


# --- the neighbours on its nodes ------------------------------------------------------------------


ALONE = frozenset([("a", None)])
BESIDE = frozenset([("a", None), ("b", None)])
RESIZED = frozenset([("a", 350)])


@pytest.mark.parametrize(
    ("pod_limits", "keeps_trial", "keeps_history"),
    [
        pytest.param(ALONE, True, True, id="the same pods with the same limits"),
        pytest.param(RESIZED, True, False, id="the same pods with other limits"),
        pytest.param(BESIDE, False, False, id="other pods"),
    ],
)
def test_measurements_before_a_change_of_neighbours_are_not_compared(
    pod_limits: frozenset[tuple[str, int | None]],
    *,
    keeps_trial: bool,
    keeps_history: bool,
) -> None:
    cpu = CpuRecord()
    cpu.set_neighbours(ALONE)
    cpu.trial = TRIAL
    cpu.history.add_interval(Progress(), 350, now=0.0)
    cpu.set_neighbours(pod_limits)
    assert (cpu.trial is TRIAL) is keeps_trial
    assert bool(cpu.history.values_of(Measure.USE)) is keeps_history


@pytest.mark.parametrize(
    ("pod_limits", "want"),
    [
        pytest.param(RESIZED, TRIAL, id="the same pods"),
        pytest.param(BESIDE, None, id="other pods"),
    ],
)
def test_no_trial_begins_for_an_operation_under_way_when_neighbours_change(
    pod_limits: frozenset[tuple[str, int | None]], want: Trial | None
) -> None:
    cpu = CpuRecord()
    cpu.set_neighbours(ALONE)
    cpu.operation = ResizeOperation(TRIAL.proposal, trial=TRIAL)
    cpu.set_neighbours(pod_limits)
    assert cpu.operation.trial is want


# --- its pods -------------------------------------------------------------------------------------


def test_the_use_of_all_live_pods_must_be_known() -> None:
    uses = Uses()
    uses.record({"worker-0": CpuUse(0.1, at=0.0, window=30.0)})
    assert all_measured((running(0), ENDED), uses)
    assert not all_measured((running(0), replace(ENDED, phase="Running")), uses)
