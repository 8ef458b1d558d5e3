"""Random clusters: the rules hold whatever the companion decides, and no job is worse for it.

`python -m tests.unit.sim.report` prints the report of the long test for any number of seeds.
"""

import os

import pytest

from kfext.sim.arms import ARMS, GANG, KFEXT
from kfext.sim.cluster import Cluster
from kfext.sim.compare import compare, run_of
from kfext.sim.worlds import random_world
from tests.unit.sim.bed import WITHOUT
from tests.unit.sim.report import SEEDS, report, run_seeds
from tests.unit.sim.rules import Rules

_BLOCK, _BLOCKS = 30, 4
_WORLDS = 75
_LATE, _RATIO_P99, _STRETCH_P99 = 0.10, 3.0, 12.0
"""Limits for any block of worlds: the fraction of late jobs, and two 99th percentiles."""


@pytest.mark.histories
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_the_rules_hold_in_random_clusters(block: int) -> None:
    for seed in range(block * _BLOCK, (block + 1) * _BLOCK):
        rules = Rules(Cluster(random_world(seed), seed))
        rules.cluster.run()
        assert rules.ended() == []


@pytest.mark.histories
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_jobs_end_sooner_than_without_the_companion_and_few_end_later(block: int) -> None:
    first = block * _WORLDS
    runs = run_of(ARMS, random_world)
    (result,) = compare([KFEXT], range(first, first + _WORLDS), runs, against=GANG)
    assert result.unended == 0
    assert result.against < 0
    assert result.late < _LATE
    assert result.ratio_p99 < _RATIO_P99
    assert result.stretch_p99 < _STRETCH_P99


@pytest.mark.histories
def test_without_the_policy_no_job_that_runs_changes_its_size() -> None:
    for seed in range(_BLOCK):
        rules = Rules(Cluster(random_world(seed), seed, policy=WITHOUT))
        rules.cluster.run()
        assert (rules.ended(), rules.changes) == ([], {})


@pytest.mark.histories
def test_a_seed_is_always_the_same_cluster() -> None:
    for seed in range(5):
        first, second = (Cluster(random_world(seed), seed).run().ended() for _ in range(2))
        assert first == second


@pytest.mark.long
def test_ten_thousand_clusters(request: pytest.FixtureRequest) -> None:
    results = list(run_seeds(range(SEEDS), processes=os.cpu_count() or 1))
    terminal = request.config.get_terminal_writer()
    for line in report(results):
        terminal.line(line)
    assert [sentence for seed in results for sentence in seed.broken] == []
