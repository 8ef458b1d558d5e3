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

TWO_WORKERS = job("TFJob", uid="j").worker(2).resumed().build()
ENDED = running(1, phase="Succeeded")
TRIAL = Trial(proposal(), before=(1.0,))


# --- after a failure ------------------------------------------------------------------------------


FAILED = 1000.0
LASTS: dict[str, tuple[dict[str, bool], float, int, bool]] = {
    "a restore does not wait": ({"restoring": True}, 0, 0, False),
    "a change waits for 30 s": ({}, 29, 0, True),
    "a change waits no longer than 30 s": ({}, 30, 0, False),
    "a change waits no longer once a quota changes": ({}, 0, 1, False),
    "a change waits without end after a lasting refusal": ({"lasting": True}, 10_000, 0, True),
    "a lasting refusal ends once a quota changes": ({"lasting": True}, 0, 1, False),
    "a restore waits after a failed restore": ({"restored": True, "restoring": True}, 29, 0, True),
    "a lasting refusal of a restore ends": (
        {"restored": True, "lasting": True, "restoring": True},
        30,
        0,
        False,
    ),
}


@pytest.mark.parametrize(("how", "after", "changes", "want"), LASTS.values(), ids=LASTS)
def test_whether_the_back_off_lasts_after_a_failure(
    how: dict[str, bool], after: float, changes: int, *, want: bool
) -> None:
    cpu = CpuRecord()
    restored, lasting = how.get("restored", False), how.get("lasting", False)
    cpu.fail(FAILED, lasting=lasting, restoring=restored, changes=0)
    assert cpu.back_off is not None
    restoring = how.get("restoring", False)
    assert cpu.back_off.holds(FAILED + after, changes=changes, restoring=restoring) is want


@pytest.mark.parametrize(
    ("changes", "lasting"),
    [
        pytest.param(0, True, id="lasts"),
        pytest.param(1, False, id="has ended if a quota has changed"),
    ],
)
def test_a_lasting_refusal_after_a_further_failure(changes: int, *, lasting: bool) -> None:
    cpu = CpuRecord()
    cpu.fail(0.0, lasting=True, restoring=False, changes=0)
    cpu.fail(0.0, lasting=False, restoring=False, changes=changes)
    assert cpu.back_off is not None
    assert cpu.back_off.lasting is lasting


def test_each_failure_in_a_row_doubles_the_back_off_up_to_300_s() -> None:
    cpu, back_offs = CpuRecord(), []
    for _ in range(6):
        cpu.fail(0.0, lasting=False, restoring=False, changes=0)
        assert cpu.back_off is not None
        back_offs.append(cpu.back_off.until)
    assert back_offs == [30, 60, 120, 240, 300, 300]


# --- the neighbours on its nodes ------------------------------------------------------------------


ALONE = frozenset([("a", None)])
BESIDE = frozenset([("a", None), ("b", None)])
RESIZED = frozenset([("a", 350)])


@pytest.mark.parametrize(
    ("pod_limits", "keeps_trial", "keeps_history"),
    [
        pytest.param(ALONE, True, True, id="the same pods with the same limits"),
        pytest.param(RESIZED, True, False, id="the same pods with different limits"),
        pytest.param(BESIDE, False, False, id="different pods"),
    ],
)
def test_a_change_of_neighbours_discards_the_trial_and_earlier_measurements(
    pod_limits: frozenset[tuple[str, int | None]], *, keeps_trial: bool, keeps_history: bool
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
    [pytest.param(RESIZED, TRIAL, id="same pods"), pytest.param(BESIDE, None, id="different pods")],
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
