"""The row of an arm compared with a reference arm, checked by hand."""

import math
from dataclasses import replace

import pytest

from kfext.sim.arms import ARMS, GANG, KFEXT, PLAIN
from kfext.sim.cluster import Ended, World
from kfext.sim.compare import PARTS, Run, compare, quantile, row, run, run_of
from kfext.sim.nodes import NodeSize
from kfext.sim.worlds import WORLDS
from tests.unit.sim.bed import DYNAMIC, MASTER, SERVERS
from tests.unit.sim.bed import GANG as WAITS


def a_run(*elapsed: float, jobs: int = 2, makespan: float = 400.0) -> Run:
    """Return a run of jobs that take 100 s alone; jobs without an `elapsed` time do not end."""
    ended = {
        f"job-{number}": Ended(f"job-{number}", seconds, 10.0, 90.0, 0.0)
        for number, seconds in enumerate(elapsed)
    }
    alone = {f"job-{number}": 100.0 for number in range(jobs)}
    return Run(ended, alone, makespan=makespan, utilisation=0.5, changes=1)


def test_the_values_of_a_row() -> None:
    result = row("arm", [a_run(110, 330), a_run(100, 100)], [a_run(100, 200), a_run(100, 100)])
    assert (result.seeds, result.unended) == (2, 0)
    assert result.mean == 160
    assert result.against == pytest.approx(160 / 125 - 1)
    assert result.by_seed == pytest.approx((220 / 150 + 1) / 2 - 1)
    assert (result.low, result.high) == pytest.approx((0.0, 220 / 150 - 1))
    assert result.stretch == pytest.approx(1.6)
    assert result.stretch_p99 == 3.3
    assert (result.late, result.worst) == (0.25, 1.65)  # 110 / 100 is not later by over 10 %
    assert (result.makespan, result.utilisation, result.changes) == (400, 0.5, 0.5)


@pytest.mark.parametrize(
    ("runs", "others", "unended"),
    [
        pytest.param([a_run(100)], [a_run(100, 100)], 1, id="the arm does not end"),
        pytest.param([a_run(100, 100)], [a_run(100)], 0, id="the other arm does not end"),
    ],
)
def test_a_seed_on_which_an_arm_does_not_end_counts_only_as_unended(
    runs: list[Run], others: list[Run], unended: int
) -> None:
    result = row("arm", [*runs, a_run(50, 50)], [*others, a_run(100, 100)])
    assert (result.seeds, result.unended) == (2, unended)
    assert (result.mean, result.against) == (50, -0.5)
    alone = row("arm", runs, others)
    assert math.isnan(alone.mean)
    assert math.isnan(alone.late)


WORLD = World({"a": NodeSize(4000)}, (DYNAMIC, WAITS))


def test_a_change_of_size_counts_once_the_job_has_begun() -> None:
    gang, kfext = (run(ARMS[name], WORLD, luck=0) for name in (GANG, KFEXT))
    assert gang.changes == 0
    assert kfext.changes > 0
    assert kfext.jobs["gang"].elapsed < gang.jobs["gang"].elapsed


def test_the_row_of_the_reference_arm_shows_luck_alone() -> None:
    world = World({"a": NodeSize(3000)}, (SERVERS, replace(SERVERS, name="other")))
    rows = compare((GANG, PLAIN), range(4), run_of(ARMS, lambda _seed: world))
    assert [row.arm for row in rows] == [GANG, PLAIN]
    assert rows[0].against == pytest.approx(0, abs=0.02)
    assert rows[0].unended == 0


def test_each_ended_job_advances_the_reported_progress() -> None:
    reports: list[int] = []
    run(ARMS[GANG], WORLD, luck=0, on_parts=reports.append)
    assert reports == [PARTS // 2, PARTS // 2]


@pytest.mark.parametrize(
    ("count", "fraction", "rank"),
    [(1, 0.99, 1), (10, 0.99, 10), (100, 0.99, 99), (300, 0.99, 297), (7, 1.0, 7), (4, 0.0, 1)],
)
def test_a_quantile_is_the_value_at_the_nearest_rank(
    count: int, fraction: float, rank: int
) -> None:
    assert quantile([*range(1, count + 1)], fraction) == rank


LARGE = replace(MASTER, workers=3, steps=400)
"""Four pods that train as a whole; two such jobs do not fit six slots."""
TWICE = World({"a": NodeSize(6000)}, (LARGE, replace(LARGE, name="other")))


def test_on_plain_kubernetes_two_jobs_may_both_start_half_and_never_end() -> None:
    ended = [len(ARMS[PLAIN](TWICE, luck).run().ended()) for luck in range(5)]
    assert {*ended} == {0, 2}
    assert ended == [len(ARMS[PLAIN](TWICE, luck).run().ended()) for luck in range(5)]


@pytest.mark.parametrize("arm", [GANG, KFEXT])
def test_jobs_that_share_a_node_use_no_more_than_it_has(arm: str) -> None:
    cluster = ARMS[arm](WORLDS["node-10"](0), 0)
    cluster.run()
    assert 0.9 < cluster.utilisation <= 1.0
