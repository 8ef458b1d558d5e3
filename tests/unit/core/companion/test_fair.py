"""When jobs would end under equal shares, and that going in that order delays no job."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.companion.fair import Sharer, fair_ends

ENDS: dict[str, tuple[list[Sharer], float, dict[str, float]]] = {
    "no job": ([], 1.0, {}),
    "a job alone": ([Sharer("a", 5.0, 10.0)], 1.0, {"a": 15.0}),
    "two that come together": ([Sharer("a", 0, 10), Sharer("b", 0, 30)], 1.0, {"a": 20, "b": 40}),
    "a job that comes later": ([Sharer("a", 0, 20), Sharer("b", 10, 20)], 1.0, {"a": 30, "b": 40}),
    "after a pause": ([Sharer("a", 0, 5), Sharer("b", 100, 5)], 1.0, {"a": 5, "b": 105}),
    "on more cores": ([Sharer("a", 0, 20), Sharer("b", 0, 60)], 2.0, {"a": 20, "b": 40}),
    "a job that cannot use its part leaves the rest": (
        [Sharer("a", 0, 20, most=0.5), Sharer("b", 0, 60)], 2.0, {"a": 40, "b": 40}
    ),
    "a job of unknown length takes its part and never ends": (
        [Sharer("a", 0, 10), Sharer("b", 0, math.inf)], 1.0, {"a": 20, "b": math.inf}
    ),
    "times since the epoch": (
        [Sharer("a", 1.7e9, 10), Sharer("b", 1.7e9, 30)], 1.0, {"a": 1.7e9 + 20, "b": 1.7e9 + 40}
    ),
    "after work with a rounding error of over a second": (
        [Sharer("a", 32393.0, 2.481261937993402e16), Sharer("b", 9785.0, 7.618072987939312e16)],
        1.0, {"a": 4.962523875986804e16, "b": 1.0099334925932714e17}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sharers", "cores", "want"), ENDS.values(), ids=ENDS)
def test_a_job_would_end(sharers: list[Sharer], cores: float, want: dict[str, float]) -> None:
    assert fair_ends(sharers, cores=cores) == pytest.approx(want)


def ends_in_fair_order(sharers: Sequence[Sharer]) -> dict[str, float]:
    """When jobs end on one core if the job that would end first has all of it."""
    fair = fair_ends(sharers, cores=1.0)
    left, now, ends = {sharer.uid: sharer.work for sharer in sharers}, 0.0, dict[str, float]()
    while left:
        here = [s for s in sharers if s.uid in left and s.came <= now + 1e-9]
        coming = [s.came for s in sharers if s.uid in left and s.came > now + 1e-9]
        if not here:
            now = min(coming)
            continue
        first = min(here, key=lambda sharer: fair[sharer.uid])
        spent = min(left[first.uid], min(coming, default=math.inf) - now)
        now += spent
        left[first.uid] -= spent
        if left[first.uid] <= 1e-9:
            ends[first.uid] = now
            del left[first.uid]
    return ends


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200)), min_size=1, max_size=12))
def test_no_job_ends_later_than_under_equal_shares(jobs: list[tuple[int, int]]) -> None:
    sharers = [Sharer(f"{at}", float(came), float(work)) for at, (came, work) in enumerate(jobs)]
    fair, first = fair_ends(sharers, cores=1.0), ends_in_fair_order(sharers)
    for sharer in sharers:
        assert first[sharer.uid] <= fair[sharer.uid] + 1e-6
