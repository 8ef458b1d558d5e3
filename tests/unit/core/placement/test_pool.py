"""How many members each node holds, and the ways to assign members to nodes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kfext.core.ledger.columns import LARGEST
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement import pool as pooling
from kfext.core.placement.gang import Member, gang
from kfext.core.placement.place import place
from kfext.core.placement.pool import (
    _DEPTH,
    _STEPS,
    Pool,
    _Search,
    decreasing,
    fill,
    pool,
    searched,
)
from kfext.core.placement.score import Weights
from kfext.model.node import Node
from kfext.model.verdict import Verdict
from tests.builders import JobBuilder, apart, job, ledger, limits, node
from tests.unit.core.placement.answers import (
    GPU,
    Group,
    by_position,
    holds,
    members_in,
    numbered_nodes,
    placed,
)
from tests.unit.core.placement.random_gangs import APART

HTTP = (("TCP", 80),)
nodes_of_pool = st.lists(
    st.tuples(st.integers(-2, 9), st.integers(-2, 9), st.booleans(), st.booleans()), max_size=5
)
sizes_of_pods = st.fixed_dictionaries({"cpu": st.integers(0, 3), GPU: st.integers(0, 3)})
groups = st.lists(
    st.tuples(sizes_of_pods, st.sampled_from([(), (), HTTP]), st.integers(1, 4)),
    min_size=1,
    max_size=2,
)


@given(nodes=nodes_of_pool, groups=groups)
def test_a_pool_counts_the_members_of_a_batch_that_fit_each_node(
    nodes: list[tuple[int, int, bool, bool]],
    groups: list[tuple[dict[str, int], tuple[tuple[str, int], ...], int]],
) -> None:
    gang_ = gang(members_in(groups))
    free = np.array([[cpus, gpus] for cpus, gpus, *_ in nodes], dtype=np.int64).reshape(-1, 2).T
    usable = [np.array([node[2 + number] for node in nodes], dtype=np.bool_) for number in (0, 1)]
    result = pool(gang_, free=free, masks=usable[: len(gang_.batches)])

    def most(row: int, number: int) -> int:
        batch = gang_.batches[number]
        largest = 1 if batch.constraints.exclusive else batch.count
        fitting = [
            count
            for count in range(1, largest + 1)
            if all(
                free[line, row] >= count * wanted
                for line, wanted in enumerate(batch.requests)
                if wanted
            )
        ]
        return max(fitting, default=0) if usable[number][row] else 0

    batches = range(len(gang_.batches))
    want = [[most(row, number) for row in range(len(nodes))] for number in batches]
    for number in batches:
        assert result.holds[number].tolist() == [want[number][row] for row in result.rows]
    # The pool has every row that holds a member, with at least the number of members it holds.
    capacity = dict(zip(result.rows.tolist(), result.capacity.tolist(), strict=True))
    for row in range(len(nodes)):
        assert capacity.get(row, 0) >= max(want[number][row] for number in batches)
        if len(batches) == 1:
            assert capacity.get(row, 0) == want[0][row]


def test_a_subset_of_a_pool_agrees_with_the_pool_about_its_rows() -> None:
    gang_ = gang(members_in([({"cpu": 1}, (), 4), ({"cpu": 2}, HTTP, 2)]))
    free = np.array([[3, 0, 4, 8]])
    usable = [np.array([True, True, True, False]), np.array([True, True, False, True])]
    whole = pool(gang_, free=free, masks=usable)
    subset = whole.only(np.array([2, 0]))
    assert whole.rows.tolist() == [0, 2, 3]
    assert subset.rows.tolist() == [3, 0]
    assert subset.free.tolist() == [[8, 3]]
    assert [mask.tolist() for mask in subset.masks] == [[False, True], [True, True]]
    assert [held.tolist() for held in subset.holds] == [[0, 3], [1, 1]]
    assert subset.capacity.tolist() == [5, 3]  # 6 members, but only one of two with the port


def test_a_pool_may_not_hold_a_gang_or_a_batch_that_is_too_large() -> None:
    gang_ = gang(members_in([({"cpu": 1}, (), 3), ({"cpu": 1}, HTTP, 2)]))
    two = [np.array([True, True])] * 2
    assert pool(gang_, free=np.array([[9, 9]]), masks=two).may_hold(gang_)
    assert not pool(gang_, free=np.array([[2, 2]]), masks=two).may_hold(gang_)
    assert not pool(gang_, free=np.array([[9, 0]]), masks=two).may_hold(gang_)


def test_amounts_near_64_bits_do_not_overflow() -> None:
    gang_ = gang(members_in([({"memory": 2**60}, (), 3000)]))
    free = np.array([[LARGEST, LARGEST - 1]])
    result = pool(gang_, free=free, masks=[np.array([True, True])])
    assert (result.rows.tolist(), result.capacity.tolist()) == ([0], [1])


def cpus(free: Sequence[int], groups: Sequence[Group]) -> Pool:
    """A pool of nodes with these free CPUs, all eligible for all members."""
    gang_ = gang(members_in(groups))
    masks = [np.ones(len(free), dtype=np.bool_)] * len(gang_.batches)
    return pool(gang_, free=np.array([free]), masks=masks)


def ones(count: int) -> Group:
    return {"cpu": 1}, (), count


def twos(count: int) -> Group:
    return {"cpu": 2}, (), count


FILLS: dict[str, tuple[list[int], list[Group], int | list[int], list[int] | None]] = {
    "one node": ([4], [ones(3)], 9, [0, 0, 0]),
    "one node after the other": ([2, 2, 2], [ones(5)], 9, [0, 0, 1, 1, 2]),
    "at most this many on each": ([9, 9], [ones(4)], 2, [0, 0, 1, 1]),
    "at most the limit of each node": ([9, 9], [ones(4)], [1, 3], [0, 1, 1, 1]),
    "the next batch continues where the last batch ended": (
        [3, 3],
        [ones(2), twos(1), ones(1)],
        9,
        [0, 0, 1, 1],
    ),
    "and continues from the first node": ([3, 5], [twos(2), ones(4)], 9, [0, 1, 1, 1, 1, 0]),
    "too many members": ([2, 2], [ones(5)], 9, None),
    "too large members": ([3, 3], [twos(3)], 9, None),
    "the limits are too low": ([9, 9], [ones(5)], 2, None),
    "a node has a port once": ([9, 9], [({"cpu": 1}, HTTP, 2)], 9, [0, 1]),
    "two batches cannot share the port": (
        [9, 9],
        [({"cpu": 1}, HTTP, 1), ({"cpu": 2}, HTTP, 1)],
        9,
        [0, 1],
    ),
}


@pytest.mark.parametrize(("free", "groups", "limit", "want"), FILLS.values(), ids=FILLS)
def test_nodes_are_filled_in_their_order(
    free: list[int], groups: list[Group], limit: int | list[int], want: list[int] | None
) -> None:
    most = limit if isinstance(limit, int) else np.array(limit)
    result = fill(gang(members_in(groups)), cpus(free, groups), limit=most)
    assert (None if result is None else result.tolist()) == want


def test_with_an_order_of_batches_each_batch_begins_at_the_first_node() -> None:
    groups = [ones(2), twos(1)]
    result = fill(gang(members_in(groups)), cpus([3, 9], groups), limit=9, order=[1, 0])
    assert result is not None
    assert result.tolist() == [0, 1, 0]


def test_a_member_that_does_not_fit_may_be_left_out() -> None:
    groups = [ones(1), twos(3)]
    result = fill(gang(members_in(groups)), cpus([3, 3], groups), limit=9, partly=True)
    assert result is not None
    assert result.tolist() == [0, 0, 1, -1]


nodes_to_fill = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans()), min_size=1, max_size=5
)
sizes_to_pack = st.fixed_dictionaries({"cpu": st.integers(0, 4), GPU: st.integers(0, 3)})
groups_of_members = st.lists(
    st.tuples(sizes_to_pack, st.sampled_from([(), (), HTTP]), st.integers(1, 5)),
    min_size=1,
    max_size=3,
)


def some_pool(nodes: list[tuple[int, int, bool]], groups: list[Group]) -> Pool:
    """A pool in which the first batch may use only some nodes."""
    gang_ = gang(members_in(groups))
    free = np.array([[cpus, gpus] for cpus, gpus, _ in nodes], dtype=np.int64).T
    some = np.array([usable for *_, usable in nodes], dtype=np.bool_)
    masks = [some, *[np.ones_like(some)] * (len(gang_.batches) - 1)]
    return pool(gang_, free=free, masks=masks)


@given(nodes=nodes_to_fill, groups=groups_of_members, limit=st.integers(1, 9), data=st.data())
def test_no_node_gets_more_members_than_its_limit_or_its_capacity(
    nodes: list[tuple[int, int, bool]], groups: list[Group], limit: int, data: st.DataObject
) -> None:
    gang_, pool_ = gang(members_in(groups)), some_pool(nodes, groups)
    order = data.draw(st.just([]) | st.permutations(range(len(gang_.batches))))
    for partly in (False, True):
        result = fill(gang_, pool_, limit=limit, order=order, partly=partly)
        if result is None:
            assert not partly
            continue
        assert holds(pool_, gang_, result)
        assert np.bincount(result[result >= 0], minlength=1).max() <= limit
        assert partly or (result >= 0).all()


def test_a_large_member_after_a_small_one_fits_if_placed_by_size() -> None:
    groups = [({"cpu": 4}, (), 1), ({"cpu": 10}, (), 1)]
    gang_, pool_ = gang(members_in(groups)), cpus([10, 4], groups)
    assert fill(gang_, pool_, limit=9) is None
    result = decreasing(gang_, pool_, ranking=by_position)
    assert [spots.tolist() for spots in result] == [[1, 0]] * len(result)
    assert result


@given(nodes=nodes_to_fill, groups=groups_of_members)
def test_every_packing_by_size_fits(
    nodes: list[tuple[int, int, bool]], groups: list[Group]
) -> None:
    gang_, pool_ = gang(members_in(groups)), some_pool(nodes, groups)
    assume(len(pool_.rows))
    for spots in decreasing(gang_, pool_, ranking=by_position):
        assert holds(pool_, gang_, spots)
        assert (spots >= 0).all()


def first_fit_decreasing(sizes: Sequence[int], capacity: Sequence[int]) -> int | None:
    """The number of bins that first-fit-decreasing uses, or None: it fails."""
    remaining = sorted(capacity, reverse=True)
    used = set()
    for size in sorted(sizes, reverse=True):
        bin_ = next((number for number, free in enumerate(remaining) if free >= size), None)
        if bin_ is None:
            return None
        remaining[bin_] -= size
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
    builder = job("TFJob")
    for type_, (size, count) in zip(("Chief", "PS", "Worker"), groups, strict=False):
        builder.group(type_, count, gpus=size)
    nodes = numbered_nodes(capacity)
    assert len(set(placed(builder, nodes))) <= 2 * want
    assert len(set(placed(builder, nodes, weights=Weights(doubling=1e6)))) <= want


def test_C2_a_placement_that_only_a_search_finds() -> None:
    capacity = ledger(node("a", cpu="7", gpus=6), node("b", cpu="4", gpus=6))
    builder = job("TFJob").group("Chief", 2, cpu="1", gpus=1).ps(3, cpu="3").worker(3, gpus=2)
    assert set(placed(builder, capacity)) == {"a", "b"}


def test_a_search_that_would_take_too_long_ends_at_its_bound() -> None:
    # A node holds one large pod. There are 19 large pods of three sizes for 18 unlike nodes: to try
    # all divisions would take longer than any user waits.
    capacity = ledger(*(node(f"n{number:02}", cpu=f"{1000 + number}m") for number in range(18)))
    builder = job("TFJob").group("Chief", 1, cpu="509m").ps(9, cpu="510m").worker(9, cpu="520m")
    builder.group("Evaluator", 9, cpu="400m")
    assert isinstance(place(builder.members(), capacity, limits()), Verdict)


def one_pod_per_node() -> JobBuilder:
    """A job: any two of its pods together exceed a resource of every node."""
    large: dict[str, Any] = {"ephemeral-storage": "520Gi"}
    builder = job("TFJob").worker(40, cpu="33", memory="133Gi").ps(40, cpu="33", **large)
    return builder.group("Evaluator", 40, memory="133Gi", **large)


def workers_apart() -> JobBuilder:
    """A job with workers that must each have a node without another worker."""
    builder = job("TFJob").worker(60, cpu="1", memory="1Gi", spec=apart(APART))
    return builder.ps(60, cpu="500m", memory="1Gi")


@pytest.mark.parametrize(
    ("builder", "searches"),
    [
        pytest.param(one_pod_per_node(), True, id="small sizes are impossible, but searched"),
        pytest.param(workers_apart(), False, id="the anti-affinity excludes small sizes"),
    ],
)
def test_all_searched_sizes_share_one_bound(
    builder: JobBuilder, *, searches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[_Search] = []

    class Counted(_Search):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            begun.append(self)

    monkeypatch.setattr(pooling, "_Search", Counted)
    large = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti"}
    racks = [{"rack": f"rack-{number // 130}"} for number in range(650)]
    capacity = ledger(
        *(node(f"n{number:03}", labels=rack, **large) for number, rack in enumerate(racks))
    )
    placement = place(builder.members(), capacity, limits(topology_keys=["rack"]))
    assert not isinstance(placement, Verdict)
    steps = [search.steps for search in begun]
    assert (max(steps, default=0) > 0) is searches
    assert sum(steps) <= 2 * (_STEPS + _DEPTH), "one for all racks, and one for all nodes"


sizes = st.fixed_dictionaries({"cpu": st.integers(0, 4), GPU: st.integers(0, 3)})

exclusive = st.sampled_from([(), (), (), (("TCP", 80),), (APART,)])


def fewest_of_all(members: Sequence[Member], nodes: Sequence[Node]) -> int | None:
    """The fewest nodes of any assignment, or None: there is no assignment."""
    if not members:
        return 0
    best: int | None = None
    remaining = [dict(node.allocatable) for node in nodes]
    members_on: list[list[Member]] = [[] for _ in nodes]

    def next_member(number: int) -> None:
        nonlocal best
        used = sum(map(bool, members_on))
        if best is not None and used >= best:
            return
        if number == len(members):
            best = used
            return
        member = members[number]
        for free, taken in zip(remaining, members_on, strict=True):
            clash = any(
                {*member.constraints.host_ports, *member.constraints.apart}
                & {*other.constraints.host_ports, *other.constraints.apart}
                for other in taken
            )
            if clash or any(free.get(name, 0) < n for name, n in member.requests.items()):
                continue
            for name, n in member.requests.items():
                free[name] -= n
            taken.append(member)
            next_member(number + 1)
            taken.pop()
            for name, n in member.requests.items():
                free[name] += n

    next_member(0)
    return best


@settings(max_examples=300, deadline=None)
@given(
    nodes=st.lists(
        st.fixed_dictionaries({"cpu": st.integers(0, 8), GPU: st.integers(0, 6)}),
        min_size=1,
        max_size=5,
    ),
    groups=st.lists(st.tuples(sizes, exclusive, st.integers(1, 4)), min_size=1, max_size=3),
)
def test_C2_unlike_members_that_fit_are_placed_on_at_most_twice_the_fewest_nodes(
    nodes: list[dict[str, int]], groups: list[Group]
) -> None:
    nodes_ = [Node(f"n{number}", amounts) for number, amounts in enumerate(nodes)]
    members = members_in(groups)
    fewest = fewest_of_all(members, nodes_)
    placement = place(members, Ledger(nodes_), limits())
    if fewest is None:
        assert isinstance(placement, Verdict)
    else:
        assert not isinstance(placement, Verdict), placement
        assert len(set(placement.values())) <= 2 * fewest


@settings(max_examples=150, deadline=None)
@given(
    nodes=st.lists(
        st.fixed_dictionaries({"cpu": st.integers(0, 6), GPU: st.integers(0, 5)}),
        min_size=1,
        max_size=4,
    ),
    groups=st.lists(st.tuples(sizes, exclusive, st.integers(1, 3)), min_size=1, max_size=3),
    most=st.integers(1, 4),
)
def test_a_search_finds_a_placement_on_a_number_of_nodes_if_and_only_if_there_is_one(
    nodes: list[dict[str, int]], groups: list[Group], most: int
) -> None:
    gang_ = gang(members_in(groups))
    free = np.array([[node.get(name, 0) for node in nodes] for name in gang_.resources])
    anywhere = [np.ones(len(nodes), dtype=np.bool_)] * len(gang_.batches)
    pool_ = pool(gang_, free=free, masks=anywhere)
    assume(pool_.may_hold(gang_))
    result = searched(gang_, pool_, ranking=by_position, sizes=[most])
    fewest = fewest_of_all(
        gang_.members, [Node(f"n{number}", node) for number, node in enumerate(nodes)]
    )
    assert (result is not None) == (fewest is not None and fewest <= most)
    if result is not None:
        assert holds(pool_, gang_, result)
        assert len(set(result.tolist())) <= most


def test_a_search_keeps_to_the_nodes_that_each_batch_may_use() -> None:
    gang_ = gang(members_in([({"cpu": 1}, (), 1), ({"cpu": 2}, (), 1)]))
    masks = [np.array([False, True]), np.array([True, True])]
    pool_ = pool(gang_, free=np.array([[3, 2]]), masks=masks)
    result = searched(gang_, pool_, ranking=by_position)
    assert result is not None
    assert result.tolist() == [1, 0]


def test_a_search_uses_equal_nodes() -> None:
    gang_ = gang(members_in([({"cpu": 2}, (), 3)]))
    pool_ = pool(gang_, free=np.array([[3, 3, 3]]), masks=[np.ones(3, dtype=np.bool_)])
    result = searched(gang_, pool_, ranking=by_position)
    assert result is not None
    assert result.tolist() == [0, 1, 2]
