"""The free capacity of nodes, compared with a recount, and the capacity on offer."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.columns import ASSUMED
from kfext.core.ledger.ledger import Ledger
from kfext.model.constraints import Constraints
from kfext.model.node import Node
from tests.builders import ledger, node

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu", "rdma/hca", "hugepages-2Mi", "example/x")
node_names = st.sampled_from([f"n{number}" for number in range(20)])
keys = st.integers(min_value=0, max_value=12)
amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 100))
ports = st.sets(st.sampled_from([("TCP", 80), ("UDP", 80), ("TCP", 81)]), max_size=2)
ZONE_A = Constraints(node_selector=(("zone", "a"),))


class LedgerMachine(RuleBasedStateMachine):
    """Add and remove claims and nodes in any order; the ledger always agrees with a recount."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.nodes: dict[str, Node] = {}
        self.claims: dict[int, Claim] = {}
        self.counted = set(ASSUMED)

    @rule(name=node_names, allocatable=amounts, zone=st.sampled_from("ab"), cordoned=st.booleans())
    def node_appears_or_changes(
        self, name: str, allocatable: dict[str, int], zone: str, cordoned: bool
    ) -> None:
        known = Node(name, allocatable, {"zone": zone}, unschedulable=cordoned)
        self.nodes[name] = known
        self.counted |= allocatable.keys()
        self.ledger.set_node(known)

    @rule(name=node_names)
    def node_goes(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.ledger.remove_node(name)

    @rule(key=keys, name=node_names, requests=amounts, taken=ports)
    def claim(
        self, key: int, name: str, requests: dict[str, int], taken: set[tuple[str, int]]
    ) -> None:
        claim = Claim(name, requests, tuple(sorted(taken)))
        self.claims[key] = claim
        self.ledger.claim(key, claim)

    @rule(some=st.sets(keys), name=node_names, requests=amounts, taken=ports, other=amounts)
    def claim_all(
        self,
        some: set[int],
        name: str,
        requests: dict[str, int],
        taken: set[tuple[str, int]],
        other: dict[str, int],
    ) -> None:
        shared = Claim(name, requests, tuple(sorted(taken)))
        claims: dict[Hashable, Claim] = {
            key: shared if key % 3 else Claim(name, other) for key in some
        }
        self.claims |= {key: claims[key] for key in some}
        self.ledger.claim_all(claims)

    @rule(key=keys)
    def drop(self, key: int) -> None:
        self.claims.pop(key, None)
        self.ledger.drop(key)

    def recount(self, name: str, resource: str, ignoring: set[int]) -> int:
        if resource not in self.counted:
            return 0  # no node has had it
        claimed = sum(
            claim.requests.get(resource, 0)
            for key, claim in self.claims.items()
            if claim.node == name and key not in ignoring
        )
        return self.nodes[name].allocatable.get(resource, 0) - claimed

    @rule(ignoring=st.sets(keys), doubled=st.booleans())
    def free_is_what_a_recount_finds(self, ignoring: set[int], doubled: bool) -> None:
        queried = [*ignoring, *(ignoring if doubled else ())]
        free = self.ledger.free(RESOURCES, ignoring=queried)
        for name in self.nodes:
            row = self.ledger.row(name)
            assert list(free[:, row]) == [
                self.recount(name, resource, ignoring) for resource in RESOURCES
            ]

    @rule(ignoring=st.sets(keys), port=st.sampled_from([("TCP", 80), ("UDP", 80)]))
    def ports_are_taken_on_the_nodes_that_a_recount_finds(
        self, ignoring: set[int], port: tuple[str, int]
    ) -> None:
        want = {
            claim.node
            for key, claim in self.claims.items()
            if port in claim.host_ports and key not in ignoring and claim.node in self.nodes
        }
        rows = self.ledger.rows_with_any([port], ignoring=ignoring)
        names = {known.name for row in rows if (known := self.ledger.nodes[row])}
        assert names == want

    @rule()
    def eligible_nodes_match_and_are_not_cordoned(self) -> None:
        eligible = self.ledger.eligible(ZONE_A)
        want = {
            name
            for name, known in self.nodes.items()
            if known.labels["zone"] == "a" and not known.unschedulable
        }
        names = [
            known.name if known else ""
            for known, possible in zip(self.ledger.nodes, eligible, strict=True)
            if possible
        ]
        assert sorted(names) == sorted(want)

    @invariant()
    def known_nodes_and_claims(self) -> None:
        assert len(self.ledger) == len(self.claims)
        assert self.ledger.claims() == self.claims
        assert self.ledger.node_count == len(self.nodes)
        for name, known in self.nodes.items():
            assert self.ledger.node(name) is known

    @invariant()
    def pods_without_requests_are_scored_as_assumed(self) -> None:
        load = self.ledger.scored_load()
        for name in self.nodes:
            row = self.ledger.row(name)
            for line, (resource, assumed) in enumerate(ASSUMED.items()):
                assert load[line, row] == sum(
                    claim.requests.get(resource, assumed if "pods" in claim.requests else 0)
                    for claim in self.claims.values()
                    if claim.node == name
                )

    @invariant()
    def names_have_an_order(self) -> None:
        order = self.ledger.name_order()
        rows = [self.ledger.row(name) for name in sorted(self.nodes)]
        assert [order[row] for row in rows] == list(range(len(rows)))


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_claim_on_a_later_node_counts_once_the_node_exists() -> None:
    capacity = ledger(used={"late": {"cpu": "3"}})
    capacity.set_node(node("late", cpu="4"))
    assert capacity.free(["cpu"])[0, 0] == 1000


def test_a_resource_of_a_later_node_counts_for_existing_claims() -> None:
    capacity = ledger(node("a"), used={"a": {"example/x": "2"}})
    assert capacity.free(["example/x"])[0, 0] == 0
    capacity.set_node(node("b", **{"example/x": "5"}))
    capacity.set_node(node("a", **{"example/x": "3"}))
    assert capacity.free(["example/x"])[0].tolist() == [1, 5]


def test_an_ignored_claim_frees_no_resource_that_no_node_has() -> None:
    capacity = ledger(node("a"), used={"a": {"example/x": "2"}})
    assert capacity.free(["example/x"], ignoring=[("other", "a")])[0, 0] == 0


def test_a_node_that_returns_has_its_claims() -> None:
    capacity = ledger(node("n", cpu="4"), used={"n": {"cpu": "3"}})
    capacity.remove_node("n")
    capacity.set_node(node("other", cpu="4"))
    capacity.set_node(node("n", cpu="4"))
    free = capacity.free(["cpu"])
    assert free[0, capacity.row("n")] == 1000
    assert free[0, capacity.row("other")] == 4000


OLD = Claim("n", {"cpu": 2000})
GAINS: dict[str, tuple[Callable[[Ledger], object], bool]] = {
    "a claim is made": (lambda on: on.claim("new", Claim("n", {"cpu": 1})), False),
    "the same claim again": (lambda on: on.claim("old", OLD), False),
    "a claim grows": (lambda on: on.claim("old", Claim("n", {"cpu": 3000})), False),
    "a claim shrinks": (lambda on: on.claim("old", Claim("n", {"cpu": 1})), True),
    "a claim moves to another node": (lambda on: on.claim("old", Claim("m", OLD.requests)), True),
    "a claim is dropped": (lambda on: on.drop("old"), True),
    "no claim is dropped": (lambda on: on.drop("absent"), False),
    "a claim passes to a claim that covers it": (lambda on: on.hand_over("old", "heir"), False),
    "a claim passes to a smaller claim": (lambda on: on.hand_over("heir", "old"), True),
    "a claim passes to an absent claim": (lambda on: on.hand_over("old", "absent"), True),
    "no claim is passed on": (lambda on: on.hand_over("absent", "heir"), False),
    "a node is added": (lambda on: on.set_node(node("new")), True),
    "a node is removed": (lambda on: on.remove_node("n"), True),
    "a node is cordoned": (lambda on: on.set_node(node("n", cpu="8", cordoned=True)), True),
    "a node has more allocatable": (lambda on: on.set_node(node("n", cpu="9")), True),
    "a slot of a node has a problem": (
        lambda on: on.set_node(replace(node("n", cpu="8"), troubles=("it is split by MIG",))),
        True,
    ),
    "a node is set again unchanged": (lambda on: on.set_node(node("n", cpu="8")), False),
    "an unknown node is removed": (lambda on: on.remove_node("absent"), False),
}


@pytest.mark.parametrize(("change", "want"), GAINS.values(), ids=GAINS)
def test_which_changes_count_as_gains(change: Callable[[Ledger], object], want: bool) -> None:
    capacity = ledger(node("n", cpu="8"), node("m"))
    capacity.claim("old", OLD)
    capacity.claim("heir", Claim("n", {"cpu": 4000}))
    before = capacity.gains
    change(capacity)
    assert (capacity.gains > before) is want


def test_a_claim_that_is_handed_over_leaves_its_capacity_to_the_receiver() -> None:
    capacity = ledger(node("n", cpu="8"))
    capacity.claim("plan", Claim("n", {"cpu": 2000}))
    capacity.claim("pod", Claim("n", {"cpu": 2000}))
    capacity.hand_over("plan", "pod")
    assert capacity.free(["cpu"])[0, 0] == 6000
    assert capacity.claims().keys() == {"pod"}


def test_without_some_claims_their_capacity_is_free_and_the_original_is_unchanged() -> None:
    capacity = ledger(node("n", cpu="8"))
    capacity.claim("stays", Claim("n", {"cpu": 1000}, (("TCP", 80),)))
    capacity.claim("leaves", Claim("n", {"cpu": 2000}, (("TCP", 81),), job="uid"))
    reduced = capacity.without(lambda tier: tier.of_job)
    assert (reduced.free(["cpu"])[0, 0], capacity.free(["cpu"])[0, 0]) == (7000, 5000)
    assert (reduced.rows_with_any([("TCP", 81)]), reduced.rows_with_any([("TCP", 80)])) == ([], [0])
    assert [claim.requests["cpu"] for claim in reduced.claims_on("n")] == [1000]
    assert reduced.free(["cpu"], ignoring=["stays", "leaves"])[0, 0] == 8000
    assert len(capacity) == 2


def test_whether_any_claim_is_in_a_leaving_tier() -> None:
    capacity = ledger(node("n", cpu="8"))
    assert not capacity.would_free(lambda tier: True)
    capacity.claim("low", Claim("n", {"cpu": 1000}, priority=1))
    assert capacity.would_free(lambda tier: tier.priority == 1)
    capacity.claim("low", Claim("n", {"cpu": 1000}, priority=2))
    assert not capacity.would_free(lambda tier: tier.priority == 1)
    capacity.drop("low")
    assert not capacity.would_free(lambda tier: True)


def test_claims_are_found_by_their_nodes() -> None:
    capacity = ledger(node("a"), node("b"), used={"a": {"cpu": "1"}, "b": {"cpu": "2"}})
    assert [claim.requests["cpu"] for claim in capacity.claims_on("ba")] == [2000, 1000]
    assert capacity.claims_on("a", ignoring=[("other", "a")]) == []


def test_a_claim_object_that_several_keys_share_counts_for_each_key() -> None:
    capacity = ledger(node("a", cpu="8"), node("b", cpu="8"))
    shared, other = Claim("a", {"cpu": 1000}, priority=5), Claim("b", {"cpu": 500})
    capacity.claim("held", other)
    capacity.claim_all(
        {"one": shared, "two": shared, "three": shared, "held": shared, "last": other}
    )
    assert list(capacity.free(("cpu",))[0]) == [4000, 7500]
    assert capacity.without(lambda tier: tier.priority == 5).free(("cpu",))[0][0] == 8000
    for key in ("one", "two", "three"):
        capacity.drop(key)
    assert capacity.would_free(lambda tier: tier.priority == 5)
    capacity.drop("held")
    assert list(capacity.free(("cpu",))[0]) == [8000, 7500]
    assert not capacity.would_free(lambda tier: tier.priority == 5)


LABELLED = replace(node("a", cpu="8"), labels={"zone": "x"})


def claim(cpu: int, where: str = "a") -> Claim:
    return Claim(where, {"cpu": 1000 * cpu, "pods": 1})


def free(capacity: Ledger, name: str = "a") -> int:
    """The free CPUs of a node."""
    row = capacity.row(name)
    assert row is not None
    return int(capacity.free(["cpu"])[0, row]) // 1000


def offered(capacity: Ledger, name: str = "a") -> int:
    return free(capacity.offered(), name)


@pytest.fixture
def capacity() -> Ledger:
    """A node of eight CPUs, three in use; the other five are on offer."""
    capacity = Ledger([node("a", cpu="8")])
    capacity.claim("old", claim(3))
    capacity.offer()
    return capacity


Act = Callable[[Ledger], object]


def set_claim(key: str, new: Claim) -> Act:
    return lambda capacity: capacity.claim(key, new)


def drop_claim(key: str) -> Act:
    return lambda capacity: capacity.drop(key)


def hand_over(key: str, to: str) -> Act:
    return lambda capacity: capacity.hand_over(key, to)


def set_node(new: Node) -> Act:
    return lambda capacity: capacity.set_node(new)


CHANGES: dict[str, tuple[tuple[Act, ...], int, int]] = {
    "a claim is added": ((set_claim("new", claim(1)),), 4, 4),
    "a claim is dropped": ((drop_claim("old"),), 5, 8),
    "a claim shrinks": ((set_claim("old", claim(1)),), 5, 7),
    "a claim grows": ((set_claim("old", claim(4)),), 4, 4),
    "a claim moves away": ((set_claim("old", claim(3, "b")),), 5, 8),
    "a claim passes to its pod": ((set_claim("pod", claim(3)), hand_over("old", "pod")), 5, 5),
    "a claim passes to a smaller pod": (
        (set_claim("pod", claim(1)), hand_over("old", "pod")),
        4,
        7,
    ),
    "the node grows": ((set_node(node("a", cpu="10")),), 5, 7),
    "the node shrinks": ((set_node(node("a", cpu="6")),), 3, 3),
    "the node has other labels": ((set_node(LABELLED),), 0, 5),
    "freed capacity is taken": ((drop_claim("old"), set_claim("new", claim(7))), 1, 1),
    "freed capacity is taken and freed again": (
        (drop_claim("old"), set_claim("new", claim(6)), drop_claim("new")),
        2,
        8,
    ),
}


@pytest.mark.parametrize(("changes", "before", "after"), CHANGES.values(), ids=CHANGES)
def test_which_capacity_of_a_node_is_offered(
    capacity: Ledger, changes: tuple[Act, ...], before: int, after: int
) -> None:
    for change in changes:
        change(capacity)
    assert (offered(capacity), free(capacity)) == (before, after)
    gained = capacity.gains != capacity.offered().gains
    assert capacity.offer() == ([0] if before != after or gained else [])
    assert offered(capacity) == after


def test_a_new_node_is_on_offer_after_the_next_offer(capacity: Ledger) -> None:
    capacity.set_node(node("b", cpu="4", gpus=2))
    assert (offered(capacity, "b"), free(capacity, "b")) == (0, 4)
    assert capacity.offer() == [1]
    assert offered(capacity, "b") == 4


def test_a_removed_node_leaves_nothing_to_offer(capacity: Ledger) -> None:
    capacity.drop("old")
    capacity.remove_node("a")
    assert capacity.offer() == []


def test_the_offer_without_some_claims_lacks_withheld_capacity(capacity: Ledger) -> None:
    capacity.claim("job", Claim("a", {"cpu": 2000}, job="uid"))
    capacity.drop("old")
    assert free(capacity.offered()) == 3
    assert free(capacity.offered().without(lambda tier: tier.of_job)) == 5
    assert int(capacity.offered().free(["cpu"], ignoring=["job"])[0, 0]) == 5000


CLAIMS = st.sampled_from("xyz")
ACTS = st.one_of(
    st.tuples(st.just("claim"), CLAIMS, st.integers(1, 4), st.sampled_from("ab")),
    st.tuples(st.just("drop"), CLAIMS),
    st.tuples(st.just("node"), st.sampled_from("ab"), st.integers(1, 9)),
    st.tuples(st.just("offer")),
)


@given(acts=st.lists(ACTS, max_size=30))
def test_between_offers_the_offered_capacity_only_shrinks_and_is_always_free(
    acts: list[tuple[Any, ...]],
) -> None:
    capacity = Ledger([node("a", cpu="8"), node("b", cpu="4")])
    capacity.offer()
    last = capacity.offered().free(["cpu", "pods"])
    for kind, *arguments in acts:
        match kind:
            case "claim":
                capacity.claim(arguments[0], claim(arguments[1], arguments[2]))
            case "drop":
                capacity.drop(arguments[0])
            case "node":
                capacity.set_node(node(arguments[0], cpu=str(arguments[1])))
            case "offer":
                capacity.offer()
                last = capacity.free(["cpu", "pods"])
        now = capacity.offered().free(["cpu", "pods"])
        assert np.all(now <= np.minimum(last, capacity.free(["cpu", "pods"])))
        last = now
