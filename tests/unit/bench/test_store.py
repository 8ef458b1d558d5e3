"""Interleaved runs: their order."""

from e2e.bench.store import Interleaved, Store


def arms(*, repeats: int) -> Interleaved:
    stores = {name: Store(name) for name in ("a", "b", "c", "alone")}
    return Interleaved(stores, repeats=repeats, once=["alone"])


def test_each_arm_runs_once_in_each_repeat_and_the_repeats_follow_each_other() -> None:
    turns = arms(repeats=6).missing()
    assert [repeat for repeat, _ in turns] == sorted(repeat for repeat, _ in turns)
    assert sorted(turns) == sorted(
        (repeat, name)
        for repeat in range(6)
        for name in ("a", "b", "c", "alone")
        if name != "alone" or repeat == 0
    )
    first_arms = [
        name for repeat in range(6) for name in [next(n for r, n in turns if r == repeat)]
    ]
    assert len(set(first_arms)) > 1
