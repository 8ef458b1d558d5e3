"""Topology: a gang goes into the narrowest domain of the nodes' labels that holds it."""

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.place import place
from kfext.model.pod import ReplicaKey
from kfext.model.policy import parse_policy
from kfext.model.verdict import Verdict
from tests.builders import job, limits, node
from tests.unit.core.placement.racks import KEYS, Where, cluster


def placed(pods: int, on: Ledger, keys: tuple[str, ...] = KEYS) -> list[str]:
    found = place(job().worker(pods, gpus=1).members(), on, limits(topology_keys=keys))
    assert not isinstance(found, Verdict), found
    return list(found.values())


NEAR: dict[str, tuple[Mapping[str, Where], int, str]] = {
    "one node before one rack": (
        {"a": ("z", "1", 4), "b": ("z", "1", 4), "c": ("z", "2", 8)}, 8, "c"),
    "one rack before two": (
        {"a": ("z", "1", 4), "b": ("z", "2", 4), "c": ("z", "2", 4)}, 8, "bc"),
    "one rack, though another node would fit more tightly": (
        {"a": ("z", "1", 4), "b": ("z", "2", 6), "c": ("z", "2", 6)}, 8, "bc"),
    "the rack with the least to spare": (
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
    "as few racks of a zone as hold it": (
        {"a": ("z", "1", 3), "b": ("z", "2", 3), "c": ("z", "2", 3), "d": ("z", "3", 3),
         "e": ("z", "3", 2)}, 11, "bcde"),
    "as few zones as hold it": (
        {"a": ("x", "1", 3), "b": ("y", "1", 5), "c": ("z", "1", 5)}, 9, "bc"),
    "not a rack of many small nodes instead of two large ones": (
        {**dict.fromkeys("abcdefgh", ("z", "1", 1)), "i": ("z", "2", 4), "j": ("z", "3", 4)},
        8, "ij"),
    "nor are more of them taken for balance than twice those": (
        {"f": ("", "", 5), **dict.fromkeys("abc", ("y", "", 1)), "d": ("y", "", 3),
         "e": ("y", "", 6)}, 11, "abde"),
    "nodes without labels are in no domain": (
        {"a": ("", "", 4), "b": ("", "", 4), "c": ("z", "1", 4), "d": ("z", "1", 5)}, 8, "cd"),
    "nodes without labels are used if it takes them": (
        {"a": ("", "", 4), "b": ("z", "1", 4)}, 8, "ab"),
    "no labels at all": ({"a": ("", "", 4), "b": ("", "", 4)}, 8, "ab"),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "pods", "want"), NEAR.values(), ids=NEAR.keys())
def test_which_nodes(nodes: Mapping[str, Where], pods: int, want: str) -> None:
    assert set(placed(pods, cluster(nodes))) == set(want)


def test_without_keys_the_labels_say_nothing() -> None:
    on = cluster({"a": ("y", "1", 4), "b": ("z", "1", 4), "c": ("z", "1", 5)})
    assert set(placed(8, on)) == {"b", "c"}
    assert set(placed(8, on, ())) == {"a", "b"}


def test_ranks_of_one_rack_come_in_one_piece_the_larger_first() -> None:
    on = cluster({"a": ("z", "1", 2), "b": ("z", "2", 2), "c": ("z", "1", 2), "d": ("z", "2", 2),
                  "e": ("z", "2", 2)})  # fmt: skip
    racks = [{"a": "1", "c": "1"}.get(name, "2") for name in placed(10, on)]
    assert racks == ["2"] * 6 + ["1"] * 4


def test_new_labels_count_at_once() -> None:
    on = cluster({"a": ("z", "1", 4), "b": ("z", "2", 4), "c": ("z", "2", 4)})
    assert set(placed(8, on)) == {"b", "c"}
    for name, rack in (("a", "2"), ("c", "1")):
        on.set_node(node(name, gpus=4, labels={"zone": "z", "rack": rack}))
    assert set(placed(8, on)) == {"a", "b"}
    on.remove_node("a")
    assert set(placed(8, on)) == {"b", "c"}
    on.set_node(node("d", gpus=4, labels={"zone": "z", "rack": "1"}))
    assert set(placed(8, on)) == {"c", "d"}


# --- invariants -------------------------------------------------------------------------------

some_nodes = st.lists(
    st.tuples(st.sampled_from(["", "y", "z"]), st.sampled_from(["", "1", "2"]), st.integers(0, 6)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(nodes=some_nodes, pods=st.integers(1, 16), seed=st.integers(0, 9), home=st.integers(0, 9))
def test_topology_never_costs_the_place_nor_more_than_twice_the_nodes_nor_overcommits(
    nodes: list[Where], pods: int, seed: int, home: int
) -> None:
    made = {f"n{number}": where for number, where in enumerate(nodes)}
    members = job().worker(pods, gpus=1).members()
    found = place(members, cluster(made), limits(topology_keys=KEYS))
    capacity = sorted((count for *_, count in nodes), reverse=True)
    if sum(capacity) < pods:
        assert isinstance(found, Verdict)
        return
    assert not isinstance(found, Verdict)
    taken = {name: list(found.values()).count(name) for name in made}
    assert all(taken[name] <= made[name][2] for name in made)
    minimum = next(n for n in range(1, len(capacity) + 1) if sum(capacity[:n]) >= pods)
    assert len(set(found.values())) <= 2 * minimum
    turned = random.Random(seed).sample(sorted(made), len(made))
    shuffled = cluster({name: made[name] for name in turned})
    assert place(members, shuffled, limits(topology_keys=KEYS)) == found
    bound = {ReplicaKey("worker", 0): f"n{home}"}
    shuffled.claim("bound", Claim(f"n{home}", {"pods": 1}))
    beside = place(members, shuffled, limits(topology_keys=KEYS), bound=bound)
    assert not isinstance(beside, Verdict)
    others = [where for one, where in beside.items() if one not in bound]
    assert all(others.count(name) <= made[name][2] for name in made)


def test_a_policy_names_the_keys_and_empty_ones_are_left_out() -> None:
    spec = {"placement": {"topologyKeys": ["topology.kubernetes.io/zone", "", 3, "rack"]}}
    keys = parse_policy({"spec": spec}).placement.topology_keys
    assert keys == ("topology.kubernetes.io/zone", "rack")
    assert parse_policy({}).placement.topology_keys == ()
