"""The benchmark of the rule for stalled jobs, on a few courses."""

from e2e.bench.model.stall import run


def test_the_rule_raises_far_fewer_alarms_than_a_flat_limit_and_reports_each_hang() -> None:
    found = run(1, jobs=150)
    assert found["restart"].alarms <= found["report"].alarms < found["flat"].alarms / 10
    assert found["slowest"].alarms > found["report"].alarms
    assert {len(each.delays) for each in found.values()} == {len(found["report"].delays)}
    assert all(min(each.delays) > 0 for each in found.values())
