"""How trials end."""

from typing import Any

from kfext.state.running.cpu.executor import undo_proposals
from kfext.state.running.cpu.record import CpuRecord
from kfext.state.running.operation import WINDOWS, Trial
from kfext.state.running.proposal import Rank
from kfext.state.running.signals import Signals
from tests.unit.state.running.jobs import job, pod, proposal, signals


def after_trial(uses: list[int], *, ended: str = "j", **fields: Any) -> tuple[CpuRecord, list[Any]]:
    """Return the record of j after windows with these uses, and the last proposals to undo.

    Before its change j used 400m. `ended`: the job with the ended windows. `fields`: of its signal.
    """
    record = CpuRecord(trial=Trial(proposal("j", policy="shift"), before=(400, 400)))
    undos: list[Any] = []
    for use in uses:
        undos = undo_proposals(using(use, **fields), {"j": record}, ended={ended})
    return record, undos


def using(use: int, **fields: Any) -> Signals:
    return signals(job("j", pod("j-0", limit=350, user_limit=1000, use=use), **fields))


def test_a_trial_ends_at_once_with_a_gain() -> None:
    record, undos = after_trial([600])
    assert (record.trial, undos) == (None, [])


def test_after_a_trial_without_a_gain_the_undo_is_proposed_until_it_begins() -> None:
    record, undos = after_trial([400] * (WINDOWS + 1))
    (undo,) = undos
    assert (undo.job, undo.rank, undo.disabled) == ("j", Rank.RESTORE, {"shift"})
    assert record.trial is not None


def test_only_windows_that_have_ended_count() -> None:
    record, undos = after_trial([600] * WINDOWS, ended="k")
    assert record.trial is not None
    assert (record.trial.after, undos) == ((), [])


def test_no_window_counts_while_an_operation_is_in_flight() -> None:
    record, _ = after_trial([600], in_flight=True)
    assert record.trial is not None
    assert record.trial.after == ()


def test_a_job_without_a_trial_is_unchanged() -> None:
    assert undo_proposals(using(400), {"j": CpuRecord()}, ended={"j"}) == []
