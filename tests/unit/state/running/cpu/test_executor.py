"""The ends of trials."""

from typing import Any

from kfext.state.running.cpu.executor import undo_proposals
from kfext.state.running.cpu.record import CpuRecord
from kfext.state.running.operation import WINDOWS, Trial
from kfext.state.running.proposal import Rank
from kfext.state.running.signals import Signals
from tests.unit.state.running.jobs import job, pod, proposal, signals


def after(uses: list[int], *, ended: str = "j", **of: Any) -> tuple[CpuRecord, list[Any]]:
    """Return a trial of j, which used 400m before, and its last revert."""
    result = {"j": CpuRecord(trial=Trial(proposal("j", policy="shift"), before=(400, 400)))}
    undone: list[Any] = []
    for use in uses:
        undone = undo_proposals(served(use, **of), result, ended={ended})
    return result["j"], undone


def served(use: int, **of: Any) -> Signals:
    return signals(job("j", pod("j-0", limit=350, user_limit=1000, use=use), **of))


def test_a_trial_ends_with_a_gain() -> None:
    record, undone = after([600])
    assert (record.trial, undone) == (None, [])


def test_a_trial_without_a_gain_is_to_be_reverted_until_the_revert_begins() -> None:
    record, undone = after([400] * (WINDOWS + 1))
    (back,) = undone
    assert (back.job, back.rank, back.disabled) == ("j", Rank.RESTORE, {"shift"})
    assert record.trial is not None


def test_only_windows_that_have_ended_count() -> None:
    record, undone = after([600] * WINDOWS, ended="k")
    assert record.trial is not None
    assert (record.trial.after, undone) == ((), [])


def test_no_window_counts_while_an_operation_is_in_flight() -> None:
    record, _ = after([600], in_flight=True)
    assert record.trial is not None
    assert record.trial.after == ()


def test_a_job_without_a_trial_is_unchanged() -> None:
    assert undo_proposals(served(400), {"j": CpuRecord()}, ended={"j"}) == []
