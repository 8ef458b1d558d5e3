"""When a policy looks at the jobs that share nodes."""

from dataclasses import replace
from itertools import pairwise

import pytest

from kfext.core.progress.reported import GrowthState
from kfext.state.running.cpu.cadence import Cadence
from kfext.state.running.signals import JobSignal
from tests.unit.state.running.jobs import job, pod

NEW, COMPLETING = GrowthState.NEW, GrowthState.COMPLETING


TICK = 10.0


def on(uid: str, *nodes: str, state: GrowthState = NEW) -> JobSignal:
    return job(uid, *(pod(f"{uid}-{node}", node=node) for node in nodes), state=state)


ALONE = on("a", "n1", state=COMPLETING)


def run(cadence: Cadence, jobs: list[JobSignal], *, begin: float, end: float) -> list[float]:
    """Return when the jobs are due, checked in every tick."""
    due = []
    now = begin
    while now < end:
        if cadence.due(jobs, interval=30.0, now=now):
            due.append(now)
        now += TICK
    return due


def test_F4_jobs_are_due_at_once_for_one_interval_and_then_at_the_interval() -> None:
    assert run(Cadence(), [on("a", "n1")], begin=0, end=100) == [0, 10, 20, 30, 60, 90]


def test_F4_while_all_are_completing_the_interval_doubles_up_to_eightfold() -> None:
    jobs = [on("a", "n1", state=COMPLETING), on("b", "n1", state=COMPLETING)]
    due = run(Cadence(), jobs, begin=0, end=1200)
    assert due[:3] == [0, 10, 20]
    apart = [later - earlier for earlier, later in pairwise([0, *due[3:]])]
    assert apart == [60, 120, 240, 240, 240, 240]


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param(replace(ALONE, in_flight=True), id="in flight"),
        pytest.param(replace(ALONE, settling=True), id="settling"),
    ],
)
def test_F4_while_an_operation_is_under_way_neighbours_stay_due(busy: JobSignal) -> None:
    cadence, other = Cadence(), on("b", "n1", state=COMPLETING)
    assert run(cadence, [busy, other], begin=0, end=30) == [0, 10, 20]
    ready = [on("a", "n1", state=COMPLETING), other]
    assert run(cadence, ready, begin=30, end=100) == [30, 90]


def test_there_is_no_back_off_while_it_matters_which_job_ends_first() -> None:
    ordered = [replace(on(uid, "n1", state=COMPLETING), left=9.0) for uid in ("a", "b")]
    assert run(Cadence(), ordered, begin=0, end=100) == [0, 10, 20, 30, 60, 90]


def test_F4_a_job_that_comes_or_goes_wakes_its_neighbours_in_the_same_tick() -> None:
    cadence = Cadence()
    pair = [on("a", "n1", state=COMPLETING), on("b", "n1", state=COMPLETING)]
    run(cadence, pair, begin=0, end=500)
    assert run(cadence, pair, begin=500, end=510) == []
    due = run(cadence, [*pair, on("c", "n1")], begin=510, end=580)
    assert due == [510, 520, 530, 540, 570]
    assert run(cadence, pair, begin=580, end=650) == [580, 590, 600, 640]


def test_F4_one_that_grows_again_ends_the_back_off() -> None:
    cadence = Cadence()
    run(cadence, [on("a", "n1", state=COMPLETING)], begin=0, end=500)
    assert run(cadence, [on("a", "n1")], begin=500, end=570) == [500, 530, 560]


def test_a_job_elsewhere_wakes_nobody() -> None:
    cadence, far = Cadence(), on("far", "n2")
    run(cadence, [on("a", "n1", state=COMPLETING)], begin=0, end=40)
    due = cadence.due([on("a", "n1", state=COMPLETING), far], interval=30.0, now=40)
    assert due == [far]


def _uids(group: tuple[JobSignal, ...]) -> frozenset[str]:
    return frozenset(signal.uid for signal in group)


def _reached(group: tuple[JobSignal, ...]) -> set[str]:
    """Return the jobs that are reached from the first one over shared nodes."""
    found = {group[0].uid}
    for _ in group:
        nodes = {node for signal in group if signal.uid in found for node in signal.nodes}
        found |= {signal.uid for signal in group if nodes & set(signal.nodes)}
    return found
