"""The benchmark of the rule for stalled jobs, on a few random jobs."""

from e2e.bench.model.stall import run


def test_the_rule_raises_far_fewer_alarms_than_a_flat_limit_and_reports_each_hang() -> None:
    result = run(1, jobs=150)
    assert result["restart"].alarms <= result["report"].alarms < result["flat"].alarms / 10
    assert result["slowest"].alarms > result["report"].alarms
    assert {len(arm.delays) for arm in result.values()} == {len(result["report"].delays)}
    assert all(min(arm.delays) > 0 for arm in result.values())
