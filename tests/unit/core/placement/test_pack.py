"""Members on given nodes, one node after the other."""

from collections.abc import Sequence

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kfext.core.placement.division import Weights
from tests.builders import job
from tests.unit.core.placement.answers import numbered, placed


def first_fit_decreasing(sizes: Sequence[int], room: Sequence[int]) -> int | None:
    """How many bins first-fit-decreasing takes, the roomiest first; None if it fails."""
    left = sorted(room, reverse=True)
    used = set()
    for size in sorted(sizes, reverse=True):
        bin_ = next((number for number, free in enumerate(left) if free >= size), None)
        if bin_ is None:
            return None
        left[bin_] -= size
        used.add(bin_)
    return len(used)


@settings(max_examples=200, deadline=None)
@given(
    room=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    groups=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5)), min_size=1, max_size=3),
)
def test_C2_more_nodes_than_first_fit_decreasing_only_for_balance_and_at_most_twice(
    room: list[int], groups: list[tuple[int, int]]
) -> None:
    want = first_fit_decreasing([size for size, count in groups for _ in range(count)], room)
    assume(want is not None)
    assert want is not None
    made = job("TFJob")
    for type_, (size, count) in zip(("Chief", "PS", "Worker"), groups, strict=False):
        made.group(type_, count, gpus=size)
    on = numbered(room)
    assert len(set(placed(made, on))) <= 2 * want
    assert len(set(placed(made, on, weights=Weights(doubling=1e6)))) <= want
