"""Node sets. Names test_C…, test_D… are testable statements of the reference (seeds §8)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.division import FEWEST, Weights
from kfext.core.placement.gang import Member
from kfext.core.placement.place import place, why_more_nodes
from kfext.model.constraints import Constraints
from kfext.model.node import Node
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from tests.builders import JobBuilder, job, ledger, node

GPU = "nvidia.com/gpu"


def placed(of: JobBuilder, on: Ledger, *, weights: Weights | None = None) -> list[str]:
    """The node of each member in rank order."""
    found = place(of.members(), on, one_node=False, weights=weights or Weights())
    assert not isinstance(found, Verdict), found
    return list(found.values())


def gpus(room: Mapping[str, int]) -> Ledger:
    return ledger(*(node(name, gpus=count) for name, count in room.items()))


def numbered(room: Sequence[int]) -> Ledger:
    return gpus({f"n{number}": count for number, count in enumerate(room)})


# --- C1: one node if one node holds the job ---------------------------------------------------


def test_C1_whole_job_on_one_node_although_others_can_hold_a_part() -> None:
    # Pod by pod, with affinity to the first, the job would start on a node with too little room:
    # `a` and `b` are the best for one pod by every measure, and hold only three of four.
    on = ledger(
        node("a", gpus=3), node("b", gpus=3), node("c", gpus=8), used={"c": {GPU: "4", "cpu": "20"}}
    )
    four = job().master(gpus=1).worker(replicas=3, gpus=1)
    assert placed(four, on) == ["c"] * 4
    required = place(four.members(), on, one_node=True)
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


@pytest.mark.parametrize(("room", "pods", "want_shares"), SETS.values(), ids=SETS.keys())
def test_C2_node_sets(room: Mapping[str, int], pods: int, want_shares: list[int]) -> None:
    found = placed(job().worker(pods, gpus=1), gpus(room))
    assert list(Counter(found).values()) == want_shares, "in rank order, the smallest share last"
    changes = sum(one != other for one, other in pairwise(found))
    assert changes == len(want_shares) - 1, "consecutive ranks stay together"


def test_C2_an_even_share_goes_to_the_node_with_the_least_room_for_it() -> None:
    on = gpus({"a": 8, "b": 5, "c": 4, "d": 3})
    assert placed(job().worker(9, gpus=1), on) == ["b"] * 5 + ["c"] * 4


@settings(deadline=None)
@given(
    room=st.lists(st.integers(0, 8), min_size=1, max_size=8),
    pods=st.integers(1, 20),
    size=st.integers(1, 3),
)
def test_C2_more_nodes_than_the_fewest_only_for_balance_and_at_most_twice(
    room: list[int], pods: int, size: int
) -> None:
    found = place(job().worker(pods, gpus=size).members(), numbered(room), one_node=False)
    holds = sorted((count // size for count in room), reverse=True)
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


# --- unlike members, against trying everything ------------------------------------------------


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
    assert isinstance(place(made.members(), on, one_node=False), Verdict)


sizes = st.fixed_dictionaries({"cpu": st.integers(0, 4), GPU: st.integers(0, 3)})
ports = st.sampled_from([(), (), (), (("TCP", 80),)])


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
            clash = one.constraints.host_ports and any(
                other.constraints.host_ports for other in taken
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
    groups=st.lists(st.tuples(sizes, ports, st.integers(1, 4)), min_size=1, max_size=3),
)
def test_C2_unlike_members_find_a_place_if_there_is_one_on_at_most_twice_the_fewest_nodes(
    nodes: list[dict[str, int]], groups: list[tuple[dict[str, int], tuple[tuple[str, int]], int]]
) -> None:
    made = [Node(f"n{number}", amounts) for number, amounts in enumerate(nodes)]
    asked = [
        Member(ReplicaKey(f"type{kind}", index), amounts, Constraints(host_ports=port), True)
        for kind, (amounts, port, count) in enumerate(groups)
        for index in range(count)
    ]
    fewest = fewest_of_all(asked, made)
    found = place(asked, Ledger(made), one_node=False)
    if fewest is None:
        assert isinstance(found, Verdict)
    else:
        assert not isinstance(found, Verdict), found
        assert len(set(found.values())) <= 2 * fewest


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


# --- why more nodes than it takes -------------------------------------------------------------

REASONS: dict[str, tuple[Mapping[str, int], int, str]] = {
    "one node": ({"a": 4}, 4, ""),
    "the fewest": ({"a": 2, "b": 2}, 4, ""),
    "balanced over more": (
        {"a": 7, "b": 5, "c": 4, "d": 4},
        12,
        "3 nodes with 4 pods each instead of 2 with 5 to 7 pods each, "
        "because the fullest node sets the pace of all",
    ),
}


@pytest.mark.parametrize(("room", "pods", "want"), REASONS.values(), ids=REASONS.keys())
def test_C2_the_reason_says_why_there_are_more_nodes(
    room: Mapping[str, int], pods: int, want: str
) -> None:
    members, on = job().worker(pods, gpus=1).members(), gpus(room)
    found = place(members, on, one_node=False)
    assert not isinstance(found, Verdict)
    assert why_more_nodes(found, place(members, on, one_node=False, weights=FEWEST)) == want
