"""A gang of unlike pods, against trying everything."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kfext.core.ledger.ledger import Ledger
from kfext.core.placement import search
from kfext.core.placement.gang import Member, gang
from kfext.core.placement.place import place
from kfext.core.placement.pool import pool
from kfext.core.placement.search import _DEPTH, _STEPS, _Search, searched
from kfext.model.node import Node
from kfext.model.verdict import Verdict
from tests.builders import JobBuilder, apart, job, ledger, limits, node
from tests.unit.core.placement.answers import GPU, Group, by_position, holds, members_in, placed
from tests.unit.core.placement.random_gangs import APART


def test_C2_a_place_that_only_a_search_finds() -> None:
    on = ledger(node("a", cpu="7", gpus=6), node("b", cpu="4", gpus=6))
    made = job("TFJob").group("Chief", 2, cpu="1", gpus=1).ps(3, cpu="3").worker(3, gpus=2)
    assert set(placed(made, on)) == {"a", "b"}


def test_a_search_that_would_take_for_ever_is_given_up() -> None:
    # A node holds one large pod. There are 19 of three sizes for 18 nodes, no two of which are
    # alike; to find out by trying takes longer than anybody waits.
    on = ledger(*(node(f"n{number:02}", cpu=f"{1000 + number}m") for number in range(18)))
    made = job("TFJob").group("Chief", 1, cpu="509m").ps(9, cpu="510m").worker(9, cpu="520m")
    made.group("Evaluator", 9, cpu="400m")
    assert isinstance(place(made.members(), on, limits()), Verdict)


def unlike_in_pairs() -> JobBuilder:
    """No two of its pods fit a node, as each two want more of something than there is."""
    large: dict[str, Any] = {"ephemeral-storage": "520Gi"}
    made = job("TFJob").worker(40, cpu="33", memory="133Gi").ps(40, cpu="33", **large)
    return made.group("Evaluator", 40, memory="133Gi", **large)


def workers_apart() -> JobBuilder:
    """Each worker wants a node without another one."""
    made = job("TFJob").worker(60, cpu="1", memory="1Gi", spec=apart(APART))
    return made.ps(60, cpu="500m", memory="1Gi")


@pytest.mark.parametrize(
    ("made", "searches"),
    [
        pytest.param(unlike_in_pairs(), True, id="what rules the sizes out is not seen at once"),
        pytest.param(workers_apart(), False, id="it is known that it takes a node for each"),
    ],
)
def test_all_sizes_that_are_searched_have_one_bound(
    made: JobBuilder, *, searches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[_Search] = []

    class Counted(_Search):
        def __init__(self, *of: Any, **more: Any) -> None:
            super().__init__(*of, **more)
            begun.append(self)

    monkeypatch.setattr(search, "_Search", Counted)
    large = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti"}
    racks = [f"rack-{number // 130}" for number in range(650)]
    on = ledger(
        *(node(f"n{number:03}", labels={"rack": of}, **large) for number, of in enumerate(racks))
    )
    assert not isinstance(place(made.members(), on, limits(topology_keys=["rack"])), Verdict)
    steps = [one.steps for one in begun]
    assert (max(steps, default=0) > 0) is searches
    assert sum(steps) <= 2 * (_STEPS + _DEPTH), "one for all racks, and one for all nodes"


sizes = st.fixed_dictionaries({"cpu": st.integers(0, 4), GPU: st.integers(0, 3)})

exclusive = st.sampled_from([(), (), (), (("TCP", 80),), (APART,)])


def fewest_of_all(asked: Sequence[Member], nodes: Sequence[Node]) -> int | None:
    """The fewest nodes of any assignment at all; None if there is none."""
    if not asked:
        return 0
    best: int | None = None
    left = [dict(one.allocatable) for one in nodes]
    here: list[list[Member]] = [[] for _ in nodes]

    def next_member(number: int) -> None:
        nonlocal best
        used = sum(map(bool, here))
        if best is not None and used >= best:
            return
        if number == len(asked):
            best = used
            return
        one = asked[number]
        for free, taken in zip(left, here, strict=True):
            clash = any(
                {*one.constraints.host_ports, *one.constraints.apart}
                & {*other.constraints.host_ports, *other.constraints.apart}
                for other in taken
            )
            if clash or any(free.get(name, 0) < n for name, n in one.requests.items()):
                continue
            for name, n in one.requests.items():
                free[name] -= n
            taken.append(one)
            next_member(number + 1)
            taken.pop()
            for name, n in one.requests.items():
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
def test_C2_unlike_members_find_a_place_if_there_is_one_on_at_most_twice_the_fewest_nodes(
    nodes: list[dict[str, int]], groups: list[Group]
) -> None:
    made = [Node(f"n{number}", amounts) for number, amounts in enumerate(nodes)]
    asked = members_in(groups)
    fewest = fewest_of_all(asked, made)
    found = place(asked, Ledger(made), limits())
    if fewest is None:
        assert isinstance(found, Verdict)
    else:
        assert not isinstance(found, Verdict), found
        assert len(set(found.values())) <= 2 * fewest


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
def test_a_search_finds_a_place_on_so_many_nodes_exactly_if_there_is_one(
    nodes: list[dict[str, int]], groups: list[Group], most: int
) -> None:
    asked = gang(members_in(groups))
    free = np.array([[one.get(name, 0) for one in nodes] for name in asked.resources])
    anywhere = [np.ones(len(nodes), dtype=np.bool_)] * len(asked.batches)
    where = pool(asked, free=free, masks=anywhere)
    assume(where.may_hold(asked))
    found = searched(asked, where, ranking=by_position, sizes=[most])
    fewest = fewest_of_all(
        asked.members, [Node(f"n{number}", one) for number, one in enumerate(nodes)]
    )
    assert (found is not None) == (fewest is not None and fewest <= most)
    if found is not None:
        assert holds(where, asked, found)
        assert len(set(found.tolist())) <= most


def test_a_search_keeps_to_the_nodes_that_each_batch_may_use() -> None:
    asked = gang(members_in([({"cpu": 1}, (), 1), ({"cpu": 2}, (), 1)]))
    masks = [np.array([False, True]), np.array([True, True])]
    where = pool(asked, free=np.array([[3, 2]]), masks=masks)
    found = searched(asked, where, ranking=by_position)
    assert found is not None
    assert found.tolist() == [1, 0]


def test_a_search_uses_nodes_that_are_alike() -> None:
    asked = gang(members_in([({"cpu": 2}, (), 3)]))
    where = pool(asked, free=np.array([[3, 3, 3]]), masks=[np.ones(3, dtype=np.bool_)])
    found = searched(asked, where, ranking=by_position)
    assert found is not None
    assert found.tolist() == [0, 1, 2]
