"""The times at which a policy looks at jobs that share nodes."""

from dataclasses import replace

import pytest

from kfext.state.running.cpu.cadence import Cadence
from kfext.state.running.signals import JobSignal
from tests.unit.state.running.jobs import job, pod

TICK = 10.0


def on(uid: str, *nodes: str) -> JobSignal:
    return job(uid, *(pod(f"{uid}-{node}", node=node) for node in nodes))


ALONE = on("a", "n1")


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


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param(replace(ALONE, in_flight=True), id="in flight"),
        pytest.param(replace(ALONE, settling=True), id="settling"),
    ],
)
def test_F4_while_an_operation_is_under_way_neighbours_stay_due(busy: JobSignal) -> None:
    cadence, other = Cadence(), on("b", "n1")
    assert run(cadence, [busy, other], begin=0, end=30) == [0, 10, 20]
    ready = [on("a", "n1"), other]
    assert run(cadence, ready, begin=30, end=100) == [30, 60, 90]


def test_F4_a_new_or_removed_job_wakes_its_neighbours_in_the_same_tick() -> None:
    cadence = Cadence()
    pair = [on("a", "n1"), on("b", "n1")]
    run(cadence, pair, begin=0, end=500)
    assert run(cadence, pair, begin=500, end=510) == []
    due = run(cadence, [*pair, on("c", "n1")], begin=510, end=580)
    assert due == [510, 520, 530, 540, 570]
    assert run(cadence, pair, begin=580, end=650) == [580, 590, 600, 610, 640]


def test_a_job_elsewhere_wakes_no_other() -> None:
    cadence, far = Cadence(), on("far", "n2")
    run(cadence, [on("a", "n1")], begin=0, end=40)
    due = cadence.due([on("a", "n1"), far], interval=30.0, now=40)
    assert due == [far]


def _uids(group: tuple[JobSignal, ...]) -> frozenset[str]:
    return frozenset(signal.uid for signal in group)


def _reached(group: tuple[JobSignal, ...]) -> set[str]:
    """Return the jobs reached from the first over shared nodes."""
    result = {group[0].uid}
    for _ in group:
        nodes = {node for signal in group if signal.uid in result for node in signal.nodes}
        result |= {signal.uid for signal in group if nodes & set(signal.nodes)}
    return result
