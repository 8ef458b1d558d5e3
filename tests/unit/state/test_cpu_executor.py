"""What jobs that share a node lose for others, and how their trials end."""

import math
from typing import Any

import pytest

from kfext.core.companion.operation import WINDOWS, Trial
from kfext.core.companion.proposal import Rank
from kfext.core.companion.signals import Budget, JobSignal, Signals
from kfext.model.cpu_state import CpuState
from kfext.model.moment import Moment
from kfext.state.cpu_executor import charge, judged
from kfext.state.running_job import CpuRecord, cpu_record
from tests.unit.core.companion.jobs import job, pod, proposal, signals

SECONDS = 10.0
NOW = Moment(wall=10_000.0, monotonic=500.0)


def records(*uids: str) -> dict[str, CpuRecord]:
    return {uid: cpu_record(CpuState(), 0.0) for uid in uids}


# --- what is lost ---------------------------------------------------------------------------------


def charged(**first: Any) -> tuple[float, float]:
    """Return what the first of two jobs has used and lost after 10 s."""
    of = records("j", "k")
    here = signals(job("j", pod("j-0", **first)), job("k", pod("k-0", use=900)))
    charge(here, of, seconds=SECONDS, now=NOW)
    return of["j"].budget.used, of["j"].budget.lost


CHARGED: dict[str, tuple[dict[str, Any], tuple[float, float]]] = {
    "what it has below an equal share": ({"use": 350, "limit": 350}, (3.5, 3.5)),
    "nothing without a limit": ({"use": 350}, (3.5, 0)),
    "nothing if its limit does not stop it": ({"use": 100, "limit": 350}, (1.0, 0)),
    "nothing if the limit is the user's": ({"use": 350, "limit": 350, "user_limit": 350}, (3.5, 0)),
    "nothing while its use is not known": ({"limit": 350}, (0, 0)),
}


@pytest.mark.parametrize(("first", "want"), CHARGED.values(), ids=CHARGED)
def test_a_job_loses(first: dict[str, Any], want: tuple[float, float]) -> None:
    assert charged(**first) == pytest.approx(want)


@pytest.mark.parametrize(
    ("left", "want"),
    [
        pytest.param((400.0, 100.0), (0, 3.5), id="lends to a job that ends before it"),
        pytest.param((math.inf, math.inf), (0, 3.5), id="lends while no end is known yet"),
        pytest.param((400.0, None), (3.5, 0), id="loses beside a job that does not show its end"),
    ],
)
def test_a_restricted_job(left: tuple[float, float | None], want: tuple[float, float]) -> None:
    of = records("j", "k")
    restricted = job("j", pod("j-0", use=350, limit=350), left=left[0])
    charge(
        signals(restricted, job("k", pod("k-0", use=1050), left=left[1])),
        of,
        seconds=SECONDS,
        now=NOW,
    )
    assert (of["j"].budget.lost, of["j"].budget.lent) == pytest.approx(want)


def test_a_job_is_charged_on_each_of_its_nodes() -> None:
    of = records("j")
    spread = job("j", pod("j-0", use=100, node="a"), pod("j-1", use=300, node="b"))
    charge(signals(spread), of, seconds=SECONDS, now=NOW)
    assert of["j"].budget.used == pytest.approx(4.0)


COUNTED: dict[str, tuple[dict[str, Any], float]] = {
    "from where another controller left off": ({"counted_at": 9_000.0}, 1000),
    "not for as long as its pod did not run": ({"counted_at": 9_000.0, "created": 9_600.0}, 400),
    "not before two windows are new": ({"counted_at": 9_000.0, "began": 450.0}, 0),
    "for the last seconds if all is counted": ({}, SECONDS),
    "not for a time to come, of a clock that was ahead": ({"counted_at": 11_000.0}, 0),
}


@pytest.mark.parametrize(("how", "seconds"), COUNTED.values(), ids=COUNTED)
def test_a_job_is_charged(how: dict[str, Any], seconds: float) -> None:
    state = CpuState(used=7.0, counted_at=how.get("counted_at", 0.0))
    of = {"j": cpu_record(state, how.get("began", 0.0)), **records("k")}
    of["k"].budget = Budget(used=1.0)  # counted since this controller leads
    restricted = job("j", pod("j-0", use=350, limit=350, created=how.get("created", 0.0)))
    here = signals(restricted, job("k", pod("k-0", use=1050)))
    charge(here, of, seconds=SECONDS, now=NOW)
    assert of["j"].budget.used == pytest.approx(7 + 0.35 * seconds)
    assert of["j"].budget.lost == pytest.approx(0.35 * seconds)
    assert of["k"].budget.used == pytest.approx(1.0 + 1.05 * SECONDS)


def test_what_another_controller_left_is_charged_once() -> None:
    state = CpuState(counted_at=9_000.0)
    of = {"j": cpu_record(state, 0.0)}
    for _ in range(2):
        charge(signals(job("j", pod("j-0", use=100))), of, seconds=SECONDS, now=NOW)
    assert of["j"].budget.used == pytest.approx(101)


BORROWED: dict[str, tuple[float, float, float]] = {
    "since the record of the job that lends": (9_000.0, 0.0, 1000),
    "since its pod runs": (9_000.0, 9_600.0, 400),
    "in the last seconds if all is counted": (0.0, 0.0, SECONDS),
}


@pytest.mark.parametrize(("counted_at", "created", "seconds"), BORROWED.values(), ids=BORROWED)
def test_after_a_restart_a_served_job_has_borrowed(
    counted_at: float, created: float, seconds: float
) -> None:
    state = CpuState(lent=1.0, counted_at=counted_at)
    of = {"j": cpu_record(state, 0.0), **records("k")}
    here = signals(
        job("j", pod("j-0", use=350, limit=350), left=400.0),
        job("k", pod("k-0", use=1050, created=created), left=100.0),
    )
    charge(here, of, seconds=SECONDS, now=NOW)
    assert of["k"].budget.borrowed == pytest.approx(0.35 * seconds)
    charge(here, of, seconds=SECONDS, now=NOW)
    assert of["k"].budget.borrowed == pytest.approx(0.35 * (seconds + SECONDS))


# --- trials ---------------------------------------------------------------------------------------


def after(uses: list[int], *, ended: str = "k", **of: Any) -> tuple[CpuRecord, list[Any]]:
    """Return a trial of j for k, which used 400m before, and what is to be undone at last."""
    found = records("j", "k")
    found["j"].trial = Trial(proposal("j", serves="k"), before=(400, 400))
    undone: list[Any] = []
    for use in uses:
        undone = judged(served(use, **of), found, ended={ended})
    return found["j"], undone


def served(use: int, **of: Any) -> Signals:
    restricted: JobSignal = job("j", pod("j-0", limit=350, user_limit=1000), **of)
    return signals(restricted, job("k", pod("k-0", use=use)))


def test_a_trial_ends_with_a_gain() -> None:
    record, undone = after([600])
    assert (record.trial, undone) == (None, [])


def test_a_trial_without_a_gain_is_to_be_undone_until_that_begins() -> None:
    record, undone = after([400] * (WINDOWS + 1))
    (back,) = undone
    assert (back.job, back.rank, back.rests) == ("j", Rank.RESTORE, True)
    assert record.trial is not None


def test_only_windows_of_the_job_that_is_served_count() -> None:
    record, undone = after([600] * WINDOWS, ended="j")
    assert record.trial is not None
    assert (record.trial.after, undone) == ((), [])


def test_no_window_counts_while_an_operation_is_in_flight() -> None:
    record, _ = after([600], in_flight=True)
    assert record.trial is not None
    assert record.trial.after == ()


def test_a_trial_is_moot_when_the_job_that_is_served_has_gone() -> None:
    found = records("j")
    found["j"].trial = Trial(proposal("j", serves="k"), before=(400,))
    assert judged(signals(job("j")), found, ended=()) == []
    assert found["j"].trial is None


def test_a_job_without_a_trial_is_left_as_it_is() -> None:
    assert judged(served(400), records("j", "k"), ended={"k"}) == []
