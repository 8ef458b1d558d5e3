"""Node sets."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.core.placement.division import DEFAULT
from kfext.core.placement.nodeset import divisions
from kfext.core.placement.place import place
from kfext.model.verdict import Verdict
from tests.builders import job, ledger, limits, node
from tests.unit.core.placement.answers import GPU, gpus, numbered, placed

# --- C1: one node if one node holds the job ---------------------------------------------------


def test_C1_whole_job_on_one_node_although_others_can_hold_a_part() -> None:
    # Pod by pod, with affinity to the first, the job would start on a node with too little room:
    # `a` and `b` are the best for one pod by every measure, and hold only three of four.
    on = ledger(
        node("a", gpus=3), node("b", gpus=3), node("c", gpus=8), used={"c": {GPU: "4", "cpu": "20"}}
    )
    four = job().master(gpus=1).worker(replicas=3, gpus=1)
    assert placed(four, on) == ["c"] * 4
    required = place(four.members(), on, limits(one_node=True))
    assert not isinstance(required, Verdict)
    assert set(required.values()) == {"c"}


def test_C1_of_several_nodes_that_hold_the_job_all_pods_take_the_same() -> None:
    on = ledger(*(node(name, cpu="8") for name in "abcd"))
    assert len(set(placed(job().master(cpu="1").worker(replicas=3, cpu="1"), on))) == 1


# --- C2: the smallest good set of nodes -------------------------------------------------------

SETS: dict[str, tuple[Mapping[str, int], int, list[int]]] = {
    "two halves": ({"a": 4, "b": 4}, 8, [4, 4]),
    "two halves before four quarters": ({"a": 2, "b": 2, "c": 2, "d": 2}, 4, [2, 2]),
    "balanced before lopsided": ({"a": 10, "b": 2, "c": 6}, 12, [6, 6]),
    "lopsided where two nodes are not enough otherwise": ({"a": 10, "b": 2}, 12, [10, 2]),
    "balanced before fewest": ({"a": 7, "b": 5, "c": 4, "d": 4}, 12, [4, 4, 4]),
    "balanced over twice the fewest": ({"a": 9, "b": 4, "c": 3, "d": 3}, 12, [3, 3, 3, 3]),
    "never over more than twice the fewest": (
        {"a": 7, "b": 5, **dict.fromkeys("cdefgh", 2)},
        12,
        [7, 5],
    ),
    "no more nodes for one in fifty": ({"a": 51, "b": 49, "c": 34, "d": 33}, 100, [51, 49]),
    "as even as the number allows": (dict.fromkeys("abcd", 3), 10, [3, 3, 2, 2]),
    "as even as the nodes allow": ({"a": 6, "b": 5, "c": 2}, 12, [5, 5, 2]),
    "as many as it takes": ({"a": 1, "b": 1, "c": 1}, 3, [1, 1, 1]),
    "the roomiest of many small ones": ({"a": 1, "b": 3, "c": 1, "d": 3}, 6, [3, 3]),
}


@pytest.mark.parametrize(("capacity", "pods", "want_shares"), SETS.values(), ids=SETS.keys())
def test_C2_node_sets(capacity: Mapping[str, int], pods: int, want_shares: list[int]) -> None:
    found = placed(job().worker(pods, gpus=1), gpus(capacity))
    assert list(Counter(found).values()) == want_shares, "in rank order, the smallest share last"
    changes = sum(one != other for one, other in pairwise(found))
    assert changes == len(want_shares) - 1, "consecutive ranks stay together"


def test_C2_sizes_go_from_the_fewest_nodes_to_twice_as_many_the_cheapest_first() -> None:
    sizes, prices = divisions(np.array([2, 7, 4, 5, 4, 2, 2]), 12, weights=DEFAULT)
    assert sizes.tolist() == [3, 4, 2]
    assert (np.diff(prices) > 0).all()


def test_C2_an_even_share_goes_to_the_node_with_the_least_room_for_it() -> None:
    on = gpus({"a": 8, "b": 5, "c": 4, "d": 3})
    assert placed(job().worker(9, gpus=1), on) == ["b"] * 5 + ["c"] * 4


@settings(deadline=None)
@given(
    capacity=st.lists(st.integers(0, 8), min_size=1, max_size=8),
    pods=st.integers(1, 20),
    size=st.integers(1, 3),
)
def test_C2_more_nodes_than_the_fewest_only_for_balance_and_at_most_twice(
    capacity: list[int], pods: int, size: int
) -> None:
    found = place(job().worker(pods, gpus=size).members(), numbered(capacity), limits())
    holds = sorted((count // size for count in capacity), reverse=True)
    minimum = next((n for n in range(1, len(holds) + 1) if sum(holds[:n]) >= pods), None)
    if minimum is None:
        assert isinstance(found, Verdict)
        return
    assert not isinstance(found, Verdict)
    shares = Counter(found.values()).values()
    assert minimum <= len(shares) <= 2 * minimum
    if len(shares) > minimum:
        lowest = next(
            level for level in range(1, pods + 1)
            if sum(min(most, level) for most in holds[:minimum]) >= pods
        )  # fmt: skip
        assert max(shares) < lowest


# --- D2: who sits where -----------------------------------------------------------------------


def test_D2_one_node_first_then_workers_beside_their_parameter_servers() -> None:
    made = job("TFJob").ps(2, cpu="1").worker(6, gpus=1)
    assert set(placed(made, gpus({"a": 4, "b": 8}))) == {"b"}
    found = placed(made, gpus({"a": 4, "b": 4}))
    assert len({*found[:2]}) == 1
    assert found[0] in found[2:]


def test_D2_the_master_sits_with_the_larger_share_of_its_workers() -> None:
    found = placed(job().master(gpus=1).worker(6, gpus=1), gpus({"a": 4, "b": 4}))
    assert Counter(found)[found[0]] == 4


def test_D2_the_highest_workers_sit_last_so_that_scale_in_frees_whole_nodes() -> None:
    found = placed(job().worker(11, gpus=1), gpus({"c": 6, "a": 4, "b": 1}))
    assert found == ["c"] * 6 + ["a"] * 4 + ["b"]
