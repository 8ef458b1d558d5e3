"""When a CPU policy decides on jobs that share nodes.

Names with F4 check the statements of tests/statements.md.
"""

from dataclasses import replace

import pytest

from kfext.state.running.cpu.cadence import Cadence
from kfext.state.running.signals import JobSignal
from tests.unit.state.running.jobs import job, pod

TICK = 10.0
INTERVAL = 30.0


def job_on(uid: str, *nodes: str) -> JobSignal:
    return job(uid, *(pod(f"{uid}-{node}", node=node) for node in nodes))


ALONE = job_on("a", "n1")


def due_times(cadence: Cadence, jobs: list[JobSignal], *, begin: float, end: float) -> list[float]:
    """Return the times at which any of the jobs is due; `due` is called in every tick."""
    due = []
    now = begin
    while now < end:
        if cadence.due(jobs, interval=INTERVAL, now=now):
            due.append(now)
        now += TICK
    return due


def test_F4_jobs_are_due_in_each_tick_of_the_first_interval_and_then_at_the_interval() -> None:
    assert due_times(Cadence(), [job_on("a", "n1")], begin=0, end=100) == [0, 10, 20, 30, 60, 90]


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param(replace(ALONE, in_flight=True), id="in flight"),
        pytest.param(replace(ALONE, settling=True), id="settling"),
    ],
)
def test_F4_while_an_operation_is_in_progress_neighbours_stay_due(busy: JobSignal) -> None:
    cadence, other = Cadence(), job_on("b", "n1")
    assert due_times(cadence, [busy, other], begin=0, end=30) == [0, 10, 20]
    ready = [job_on("a", "n1"), other]
    assert due_times(cadence, ready, begin=30, end=100) == [30, 60, 90]


def test_F4_neighbours_are_due_in_the_tick_in_which_a_job_joins_or_leaves_them() -> None:
    cadence = Cadence()
    pair = [job_on("a", "n1"), job_on("b", "n1")]
    due_times(cadence, pair, begin=0, end=500)
    assert due_times(cadence, pair, begin=500, end=510) == []
    due = due_times(cadence, [*pair, job_on("c", "n1")], begin=510, end=580)
    assert due == [510, 520, 530, 540, 570]
    assert due_times(cadence, pair, begin=580, end=650) == [580, 590, 600, 610, 640]


def test_a_new_job_on_a_different_node_makes_no_other_job_due() -> None:
    cadence, far = Cadence(), job_on("far", "n2")
    due_times(cadence, [job_on("a", "n1")], begin=0, end=40)
    due = cadence.due([job_on("a", "n1"), far], interval=INTERVAL, now=40)
    assert due == [far]
