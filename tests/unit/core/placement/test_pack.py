"""Members on given nodes, one node after the other."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kfext.core.placement.division import Weights
from kfext.core.placement.gang import gang
from kfext.core.placement.pack import decreasing, fill
from kfext.core.placement.pool import Pool, pool
from tests.builders import job
from tests.unit.core.placement.answers import (
    GPU,
    Group,
    by_position,
    holds,
    members_in,
    numbered,
    placed,
)

HTTP = (("TCP", 80),)


def cpus(free: Sequence[int], groups: Sequence[Group]) -> Pool:
    """Nodes with so many CPUs for these members, all of them possible for all."""
    asked = gang(members_in(groups))
    masks = [np.ones(len(free), dtype=np.bool_)] * len(asked.batches)
    return pool(asked, free=np.array([free]), masks=masks)


def ones(count: int) -> Group:
    return {"cpu": 1}, (), count


def twos(count: int) -> Group:
    return {"cpu": 2}, (), count


FILLS: dict[str, tuple[list[int], list[Group], int | list[int], list[int] | None]] = {
    "one node": ([4], [ones(3)], 9, [0, 0, 0]),
    "one after the other": ([2, 2, 2], [ones(5)], 9, [0, 0, 1, 1, 2]),
    "at most so many on each": ([9, 9], [ones(4)], 2, [0, 0, 1, 1]),
    "at most as many as each may have": ([9, 9], [ones(4)], [1, 3], [0, 1, 1, 1]),
    "the next batch goes on where the last one ended": (
        [3, 3],
        [ones(2), twos(1), ones(1)],
        9,
        [0, 0, 1, 1],
    ),
    "and then from the start": ([3, 5], [twos(2), ones(4)], 9, [0, 1, 1, 1, 1, 0]),
    "too many": ([2, 2], [ones(5)], 9, None),
    "too large": ([3, 3], [twos(3)], 9, None),
    "the limits are too low": ([9, 9], [ones(5)], 2, None),
    "a port is there once on a node": ([9, 9], [({"cpu": 1}, HTTP, 2)], 9, [0, 1]),
    "nor may two batches have it": (
        [9, 9],
        [({"cpu": 1}, HTTP, 1), ({"cpu": 2}, HTTP, 1)],
        9,
        [0, 1],
    ),
}


@pytest.mark.parametrize(("free", "groups", "limit", "want"), FILLS.values(), ids=FILLS)
def test_nodes_take_turns(
    free: list[int], groups: list[Group], limit: int | list[int], want: list[int] | None
) -> None:
    most = limit if isinstance(limit, int) else np.array(limit)
    found = fill(gang(members_in(groups)), cpus(free, groups), limit=most)
    assert (None if found is None else found.tolist()) == want


def test_in_an_order_of_batches_each_begins_at_the_first_node() -> None:
    groups = [ones(2), twos(1)]
    found = fill(gang(members_in(groups)), cpus([3, 9], groups), limit=9, order=[1, 0])
    assert found is not None
    assert found.tolist() == [0, 1, 0]


def test_who_does_not_fit_may_be_left_out() -> None:
    groups = [ones(1), twos(3)]
    found = fill(gang(members_in(groups)), cpus([3, 3], groups), limit=9, partly=True)
    assert found is not None
    assert found.tolist() == [0, 0, 1, -1]


nodes = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans()), min_size=1, max_size=5
)
sizes = st.fixed_dictionaries({"cpu": st.integers(0, 4), GPU: st.integers(0, 3)})
groups_of_members = st.lists(
    st.tuples(sizes, st.sampled_from([(), (), HTTP]), st.integers(1, 5)), min_size=1, max_size=3
)


def some_pool(nodes: list[tuple[int, int, bool]], groups: list[Group]) -> Pool:
    """A pool of which the first batch may use only some nodes."""
    asked = gang(members_in(groups))
    free = np.array([[cpus, gpus] for cpus, gpus, _ in nodes], dtype=np.int64).T
    some = np.array([usable for *_, usable in nodes], dtype=np.bool_)
    masks = [some, *[np.ones_like(some)] * (len(asked.batches) - 1)]
    return pool(asked, free=free, masks=masks)


@given(nodes=nodes, groups=groups_of_members, limit=st.integers(1, 9), data=st.data())
def test_no_node_takes_more_than_its_limit_or_than_is_free(
    nodes: list[tuple[int, int, bool]], groups: list[Group], limit: int, data: st.DataObject
) -> None:
    asked, place = gang(members_in(groups)), some_pool(nodes, groups)
    order = data.draw(st.just([]) | st.permutations(range(len(asked.batches))))
    for partly in (False, True):
        found = fill(asked, place, limit=limit, order=order, partly=partly)
        if found is None:
            assert not partly
            continue
        assert holds(place, asked, found)
        assert np.bincount(found[found >= 0], minlength=1).max() <= limit
        assert partly or (found >= 0).all()


def test_a_large_member_behind_a_small_one_has_its_node_by_size() -> None:
    groups = [({"cpu": 4}, (), 1), ({"cpu": 10}, (), 1)]
    asked, place = gang(members_in(groups)), cpus([10, 4], groups)
    assert fill(asked, place, limit=9) is None
    found = decreasing(asked, place, ranking=by_position)
    assert [spots.tolist() for spots in found] == [[1, 0]] * len(found)
    assert found


@given(nodes=nodes, groups=groups_of_members)
def test_every_packing_by_size_has_room(
    nodes: list[tuple[int, int, bool]], groups: list[Group]
) -> None:
    asked, place = gang(members_in(groups)), some_pool(nodes, groups)
    assume(len(place.rows))
    for spots in decreasing(asked, place, ranking=by_position):
        assert holds(place, asked, spots)
        assert (spots >= 0).all()


def first_fit_decreasing(sizes: Sequence[int], capacity: Sequence[int]) -> int | None:
    """How many bins first-fit-decreasing takes, the roomiest first; None if it fails."""
    left = sorted(capacity, reverse=True)
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
    capacity=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    groups=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5)), min_size=1, max_size=3),
)
def test_C2_more_nodes_than_first_fit_decreasing_only_for_balance_and_at_most_twice(
    capacity: list[int], groups: list[tuple[int, int]]
) -> None:
    want = first_fit_decreasing([size for size, count in groups for _ in range(count)], capacity)
    assume(want is not None)
    assert want is not None
    made = job("TFJob")
    for type_, (size, count) in zip(("Chief", "PS", "Worker"), groups, strict=False):
        made.group(type_, count, gpus=size)
    on = numbered(capacity)
    assert len(set(placed(made, on))) <= 2 * want
    assert len(set(placed(made, on, weights=Weights(doubling=1e6)))) <= want
