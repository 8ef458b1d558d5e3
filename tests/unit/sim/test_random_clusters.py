"""Random clusters: the rules hold whatever the companion decides, and no job is worse for it.

`python -m tests.unit.sim.report` prints the report of the long test for any number of seeds.
"""

import os

import pytest

from kfext.sim.cluster import WITHOUT, Cluster
from tests.unit.sim.report import SEEDS, pairs, report
from tests.unit.sim.rules import Rules

_BLOCK, _BLOCKS = 30, 4


@pytest.mark.histories
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_the_rules_hold_in_random_clusters(block: int) -> None:
    for seed in range(block * _BLOCK, (block + 1) * _BLOCK):
        rules = Rules(Cluster(seed))
        rules.cluster.run()
        assert rules.ended() == []


@pytest.mark.histories
def test_without_the_policy_no_job_that_runs_changes_its_size() -> None:
    for seed in range(_BLOCK):
        rules = Rules(Cluster(seed, policy=WITHOUT))
        rules.cluster.run()
        assert (rules.ended(), rules.changes) == ([], {})


@pytest.mark.histories
def test_a_seed_is_always_the_same_cluster() -> None:
    for seed in range(5):
        assert Cluster(seed).run().ended() == Cluster(seed).run().ended()


@pytest.mark.long
def test_ten_thousand_clusters(request: pytest.FixtureRequest) -> None:
    found = list(pairs(range(SEEDS), processes=os.cpu_count() or 1))
    terminal = request.config.get_terminal_writer()
    for line in report(found):
        terminal.line(line)
    assert [sentence for pair in found for sentence in pair.broken] == []
