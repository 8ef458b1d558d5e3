"""The division of a gang over a node set. C1, C2 and D2 are ids in tests/statements.md."""

import random
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.nodeset import divisions
from kfext.core.placement.place import place
from kfext.core.placement.score import DEFAULT
from kfext.model.pod import ReplicaKey
from kfext.model.policy import parse_policy
from kfext.model.verdict import Verdict
from tests.builders import job, ledger, limits, node
from tests.unit.core.placement.answers import GPU, gpu_nodes, numbered_nodes, placed
from tests.unit.core.placement.racks import KEYS, Where, cluster

# --- C1: one node if one node holds the job ---------------------------------------------------


def test_C1_whole_job_on_one_node_although_others_can_hold_a_part() -> None:
    # Pod by pod, with affinity to the first pod, the job would start on a node that is too small:
    # `a` and `b` are the best for one pod by every rule, but hold only three of the four pods.
    capacity = ledger(
        node("a", gpus=3), node("b", gpus=3), node("c", gpus=8), used={"c": {GPU: "4", "cpu": "20"}}
    )
    four = job().master(gpus=1).worker(replicas=3, gpus=1)
    assert placed(four, capacity) == ["c"] * 4
    required = place(four.members(), capacity, limits(max_nodes=1))
    assert not isinstance(required, Verdict)
    assert set(required.values()) == {"c"}


def test_C1_all_pods_are_on_one_node_if_the_job_fits_on_each_of_several() -> None:
    capacity = ledger(*(node(name, cpu="8") for name in "abcd"))
    assert len(set(placed(job().master(cpu="1").worker(replicas=3, cpu="1"), capacity))) == 1


# --- C2: the smallest good set of nodes -------------------------------------------------------

SETS: dict[str, tuple[Mapping[str, int], int, list[int]]] = {
    "two halves": ({"a": 4, "b": 4}, 8, [4, 4]),
    "two halves before four quarters": ({"a": 2, "b": 2, "c": 2, "d": 2}, 4, [2, 2]),
    "balanced before lopsided": ({"a": 10, "b": 2, "c": 6}, 12, [6, 6]),
    "lopsided if no other division fits": ({"a": 10, "b": 2}, 12, [10, 2]),
    "balanced before fewest": ({"a": 7, "b": 5, "c": 4, "d": 4}, 12, [4, 4, 4]),
    "balanced over twice the fewest nodes": ({"a": 9, "b": 4, "c": 3, "d": 3}, 12, [3, 3, 3, 3]),
    "never over more than twice the fewest nodes": (
        {"a": 7, "b": 5, **dict.fromkeys("cdefgh", 2)},
        12,
        [7, 5],
    ),
    "no extra node for one pod in fifty": ({"a": 51, "b": 49, "c": 34, "d": 33}, 100, [51, 49]),
    "as even as the number allows": (dict.fromkeys("abcd", 3), 10, [3, 3, 2, 2]),
    "as even as the nodes allow": ({"a": 6, "b": 5, "c": 2}, 12, [5, 5, 2]),
    "as many nodes as necessary": ({"a": 1, "b": 1, "c": 1}, 3, [1, 1, 1]),
    "the nodes with the most capacity": ({"a": 1, "b": 3, "c": 1, "d": 3}, 6, [3, 3]),
}


@pytest.mark.parametrize(("capacity", "pods", "want_counts"), SETS.values(), ids=SETS.keys())
def test_C2_how_many_members_on_each_node(
    capacity: Mapping[str, int], pods: int, want_counts: list[int]
) -> None:
    placement = placed(job().worker(pods, gpus=1), gpu_nodes(capacity))
    assert list(Counter(placement).values()) == want_counts, "in rank order"
    changes = sum(node != other for node, other in pairwise(placement))
    assert changes == len(want_counts) - 1, "consecutive ranks stay together"


def test_C2_numbers_of_nodes_up_to_twice_the_fewest_are_ordered_by_cost() -> None:
    sizes, costs = divisions(np.array([2, 7, 4, 5, 4, 2, 2]), 12, weights=DEFAULT)
    assert sizes.tolist() == [3, 4, 2]
    assert (np.diff(costs) > 0).all()


def test_C2_an_even_share_goes_to_the_node_where_it_fits_most_tightly() -> None:
    capacity = gpu_nodes({"a": 8, "b": 5, "c": 4, "d": 3})
    assert placed(job().worker(9, gpus=1), capacity) == ["b"] * 5 + ["c"] * 4


@settings(deadline=None)
@given(
    capacity=st.lists(st.integers(0, 8), min_size=1, max_size=8),
    pods=st.integers(1, 20),
    size=st.integers(1, 3),
)
def test_C2_more_nodes_than_the_fewest_only_for_balance_and_at_most_twice(
    capacity: list[int], pods: int, size: int
) -> None:
    placement = place(job().worker(pods, gpus=size).members(), numbered_nodes(capacity), limits())
    holds = sorted((count // size for count in capacity), reverse=True)
    minimum = next((n for n in range(1, len(holds) + 1) if sum(holds[:n]) >= pods), None)
    if minimum is None:
        assert isinstance(placement, Verdict)
        return
    assert not isinstance(placement, Verdict)
    node_counts = Counter(placement.values()).values()
    assert minimum <= len(node_counts) <= 2 * minimum
    if len(node_counts) > minimum:
        balanced = next(
            largest for largest in range(1, pods + 1)
            if sum(min(most, largest) for most in holds[:minimum]) >= pods
        )  # fmt: skip
        assert max(node_counts) < balanced


# --- D2: which pods share a node --------------------------------------------------------------


def test_D2_one_node_first_then_workers_beside_their_parameter_servers() -> None:
    builder = job("TFJob").ps(2, cpu="1").worker(6, gpus=1)
    assert set(placed(builder, gpu_nodes({"a": 4, "b": 8}))) == {"b"}
    placement = placed(builder, gpu_nodes({"a": 4, "b": 4}))
    assert len({*placement[:2]}) == 1
    assert placement[0] in placement[2:]


def test_D2_the_master_is_on_the_node_with_more_workers() -> None:
    placement = placed(job().master(gpus=1).worker(6, gpus=1), gpu_nodes({"a": 4, "b": 4}))
    assert Counter(placement)[placement[0]] == 4


def test_D2_the_highest_workers_are_on_the_smallest_share_so_that_scaling_down_frees_it() -> None:
    placement = placed(job().worker(11, gpus=1), gpu_nodes({"c": 6, "a": 4, "b": 1}))
    assert placement == ["c"] * 6 + ["a"] * 4 + ["b"]


def placed_near(pods: int, capacity: Ledger, keys: tuple[str, ...] = KEYS) -> list[str]:
    placement = place(job().worker(pods, gpus=1).members(), capacity, limits(topology_keys=keys))
    assert not isinstance(placement, Verdict), placement
    return list(placement.values())


NEAR: dict[str, tuple[Mapping[str, Where], int, str]] = {
    "one node before one rack": (
        {"a": ("z", "1", 4), "b": ("z", "1", 4), "c": ("z", "2", 8)}, 8, "c"),
    "one rack before two": (
        {"a": ("z", "1", 4), "b": ("z", "2", 4), "c": ("z", "2", 4)}, 8, "bc"),
    "one rack, although a node of another rack fits more tightly": (
        {"a": ("z", "1", 4), "b": ("z", "2", 6), "c": ("z", "2", 6)}, 8, "bc"),
    "the rack with the least spare capacity": (
        {"a": ("z", "1", 8), "b": ("z", "1", 8), "c": ("z", "2", 6), "d": ("z", "2", 5)}, 10, "cd"),
    "the rack with the fewest nodes": (
        {"a": ("z", "1", 3), "b": ("z", "1", 3), "c": ("z", "1", 3), "d": ("z", "2", 7),
         "e": ("z", "2", 7)}, 9, "de"),
    "lopsided in one rack before balanced in two": (
        {"a": ("z", "1", 7), "b": ("z", "1", 2), "c": ("z", "2", 5), "d": ("z", "3", 5)}, 9, "ab"),
    "the more balanced of two racks": (
        {"a": ("z", "1", 7), "b": ("z", "1", 2), "c": ("z", "2", 5), "d": ("z", "2", 5)}, 9, "cd"),
    "one zone where no rack is enough": (
        {"a": ("y", "1", 4), "b": ("z", "1", 4), "c": ("z", "2", 4)}, 8, "bc"),
    "racks of one name in two zones are two racks": (
        {"a": ("y", "1", 4), "b": ("z", "1", 4), "c": ("z", "2", 3), "d": ("z", "2", 5)}, 8, "cd"),
    "as few racks of a zone as can hold the gang": (
        {"a": ("z", "1", 3), "b": ("z", "2", 3), "c": ("z", "2", 3), "d": ("z", "3", 3),
         "e": ("z", "3", 2)}, 11, "bcde"),
    "as few zones as can hold the gang": (
        {"a": ("x", "1", 3), "b": ("y", "1", 5), "c": ("z", "1", 5)}, 9, "bc"),
    "not a rack of many small nodes instead of two large ones": (
        {**dict.fromkeys("abcdefgh", ("z", "1", 1)), "i": ("z", "2", 4), "j": ("z", "3", 4)},
        8, "ij"),
    "not more than twice as many small nodes for balance": (
        {"f": ("", "", 5), **dict.fromkeys("abc", ("y", "", 1)), "d": ("y", "", 3),
         "e": ("y", "", 6)}, 11, "abde"),
    "nodes without labels are in no domain": (
        {"a": ("", "", 4), "b": ("", "", 4), "c": ("z", "1", 4), "d": ("z", "1", 5)}, 8, "cd"),
    "nodes without labels are used if necessary": (
        {"a": ("", "", 4), "b": ("z", "1", 4)}, 8, "ab"),
    "no node has labels": ({"a": ("", "", 4), "b": ("", "", 4)}, 8, "ab"),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "pods", "want"), NEAR.values(), ids=NEAR.keys())
def test_which_nodes_a_gang_gets(nodes: Mapping[str, Where], pods: int, want: str) -> None:
    assert set(placed_near(pods, cluster(nodes))) == set(want)


def test_without_keys_the_labels_mean_nothing() -> None:
    capacity = cluster({"a": ("y", "1", 4), "b": ("z", "1", 4), "c": ("z", "1", 5)})
    assert set(placed_near(8, capacity)) == {"b", "c"}
    assert set(placed_near(8, capacity, ())) == {"a", "b"}


def test_consecutive_ranks_are_in_one_rack_the_rack_with_more_pods_first() -> None:
    capacity = cluster({name: ("z", "1" if name in "ac" else "2", 2) for name in "abcde"})
    racks = [{"a": "1", "c": "1"}.get(name, "2") for name in placed_near(10, capacity)]
    assert racks == ["2"] * 6 + ["1"] * 4


def test_new_labels_count_at_once() -> None:
    capacity = cluster({"a": ("z", "1", 4), "b": ("z", "2", 4), "c": ("z", "2", 4)})
    assert set(placed_near(8, capacity)) == {"b", "c"}
    for name, rack in (("a", "2"), ("c", "1")):
        capacity.set_node(node(name, gpus=4, labels={"zone": "z", "rack": rack}))
    assert set(placed_near(8, capacity)) == {"a", "b"}
    capacity.remove_node("a")
    assert set(placed_near(8, capacity)) == {"b", "c"}
    capacity.set_node(node("d", gpus=4, labels={"zone": "z", "rack": "1"}))
    assert set(placed_near(8, capacity)) == {"c", "d"}


# --- invariants -------------------------------------------------------------------------------

some_nodes = st.lists(
    st.tuples(st.sampled_from(["", "y", "z"]), st.sampled_from(["", "1", "2"]), st.integers(0, 6)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(nodes=some_nodes, pods=st.integers(1, 16), seed=st.integers(0, 9), home=st.integers(0, 9))
def test_with_topology_a_gang_that_fits_is_placed_on_at_most_twice_the_fewest_nodes(
    nodes: list[Where], pods: int, seed: int, home: int
) -> None:
    """Also in any order of the nodes, and beside a pod bound to a node that may be unknown."""
    by_name = {f"n{number}": where for number, where in enumerate(nodes)}
    members = job().worker(pods, gpus=1).members()
    placement = place(members, cluster(by_name), limits(topology_keys=KEYS))
    capacity = sorted((count for *_, count in nodes), reverse=True)
    if sum(capacity) < pods:
        assert isinstance(placement, Verdict)
        return
    assert not isinstance(placement, Verdict)
    taken = {name: list(placement.values()).count(name) for name in by_name}
    assert all(taken[name] <= by_name[name][2] for name in by_name)
    minimum = next(n for n in range(1, len(capacity) + 1) if sum(capacity[:n]) >= pods)
    assert len(set(placement.values())) <= 2 * minimum
    order = random.Random(seed).sample(sorted(by_name), len(by_name))
    shuffled = cluster({name: by_name[name] for name in order})
    assert place(members, shuffled, limits(topology_keys=KEYS)) == placement
    bound = {ReplicaKey("worker", 0): f"n{home}"}
    shuffled.claim("bound", Claim(f"n{home}", {"pods": 1}))
    beside = place(members, shuffled, limits(topology_keys=KEYS), bound=bound)
    assert not isinstance(beside, Verdict)
    others = [where for key, where in beside.items() if key not in bound]
    assert all(others.count(name) <= by_name[name][2] for name in by_name)


@settings(max_examples=200, deadline=None)
@given(nodes=some_nodes, pods=st.integers(1, 16), max_nodes=st.integers(1, 4))
def test_equal_pods_are_placed_if_the_allowed_number_of_nodes_can_hold_them(
    nodes: list[Where], pods: int, max_nodes: int
) -> None:
    capacity = cluster({f"n{number}": where for number, where in enumerate(nodes)})
    within = limits(max_nodes=max_nodes, topology_keys=KEYS)
    placement = place(job().worker(pods, gpus=1).members(), capacity, within)
    most = sum(sorted((count for *_, count in nodes), reverse=True)[:max_nodes])
    assert isinstance(placement, Verdict) is (most < pods)
    assert isinstance(placement, Verdict) or within.allow(placement.values())


def test_the_topology_keys_of_a_policy_without_malformed_keys() -> None:
    spec = {"placement": {"topologyKeys": ["topology.kubernetes.io/zone", "", 3, "rack"]}}
    keys = parse_policy({"spec": spec}).placement.topology_keys
    assert keys == ("topology.kubernetes.io/zone", "rack")
    assert parse_policy({}).placement.topology_keys == ()
