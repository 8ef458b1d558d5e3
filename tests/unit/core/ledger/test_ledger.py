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
    """Claims and nodes come and go in any order; the ledger always agrees with a recount."""

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
        made = Node(name, allocatable, {"zone": zone}, unschedulable=cordoned)
        self.nodes[name] = made
        self.counted |= allocatable.keys()
        self.ledger.set_node(made)

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
        asked = [*ignoring, *(ignoring if doubled else ())]
        free = self.ledger.free(RESOURCES, ignoring=asked)
        for name in self.nodes:
            row = self.ledger.row(name)
            assert list(free[:, row]) == [
                self.recount(name, resource, ignoring) for resource in RESOURCES
            ]

    @rule(ignoring=st.sets(keys), port=st.sampled_from([("TCP", 80), ("UDP", 80)]))
    def ports_are_taken_by_whom_a_recount_finds(
        self, ignoring: set[int], port: tuple[str, int]
    ) -> None:
        want = {
            claim.node
            for key, claim in self.claims.items()
            if port in claim.host_ports and key not in ignoring and claim.node in self.nodes
        }
        rows = self.ledger.rows_with_any([port], ignoring=ignoring)
        names = {made.name for row in rows if (made := self.ledger.nodes[row])}
        assert names == want

    @rule()
    def eligible_is_what_each_node_says(self) -> None:
        eligible = self.ledger.eligible(ZONE_A)
        want = {
            name
            for name, made in self.nodes.items()
            if made.labels["zone"] == "a" and not made.unschedulable
        }
        names = [
            made.name if made else ""
            for made, possible in zip(self.ledger.nodes, eligible, strict=True)
            if possible
        ]
        assert sorted(names) == sorted(want)

    @invariant()
    def known_nodes_and_claims(self) -> None:
        assert len(self.ledger) == len(self.claims)
        assert self.ledger.claims() == self.claims
        assert self.ledger.node_count == len(self.nodes)
        for name, made in self.nodes.items():
            assert self.ledger.node(name) is made

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
    "a node comes": (lambda on: on.set_node(node("new")), True),
    "a node goes": (lambda on: on.remove_node("n"), True),
    "a node is cordoned": (lambda on: on.set_node(node("n", cpu="8", cordoned=True)), True),
    "a node has more allocatable": (lambda on: on.set_node(node("n", cpu="9")), True),
    "a slot of a node has a problem": (
        lambda on: on.set_node(replace(node("n", cpu="8"), troubles=("it is split by MIG",))),
        True,
    ),
    "a node is seen again unchanged": (lambda on: on.set_node(node("n", cpu="8")), False),
    "an unknown node goes": (lambda on: on.remove_node("absent"), False),
}


@pytest.mark.parametrize(("change", "want"), GAINS.values(), ids=GAINS)
def test_changes_that_may_end_a_refusal_count(
    change: Callable[[Ledger], object], want: bool
) -> None:
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


def test_a_copy_without_some_claims_has_their_capacity_and_the_original_does_not() -> None:
    capacity = ledger(node("n", cpu="8"))
    capacity.claim("stays", Claim("n", {"cpu": 1000}, (("TCP", 80),)))
    capacity.claim("leaves", Claim("n", {"cpu": 2000}, (("TCP", 81),), job="uid"))
    left = capacity.without(lambda tier: tier.of_job)
    assert (left.free(["cpu"])[0, 0], capacity.free(["cpu"])[0, 0]) == (7000, 5000)
    assert (left.rows_with_any([("TCP", 81)]), left.rows_with_any([("TCP", 80)])) == ([], [0])
    assert [claim.requests["cpu"] for claim in left.claims_on("n")] == [1000]
    assert left.free(["cpu"], ignoring=["stays", "leaves"])[0, 0] == 8000
    assert len(capacity) == 2


def test_whether_any_claim_has_a_tier_is_known_without_reading_the_claims() -> None:
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


def test_an_object_that_is_the_claim_of_several_keys_counts_for_each_key() -> None:
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


def claim(cpu: int, on: str = "a") -> Claim:
    return Claim(on, {"cpu": 1000 * cpu, "pods": 1})


def free(floor: Ledger, name: str = "a") -> int:
    """CPUs that are free on a node."""
    row = floor.row(name)
    assert row is not None
    return int(floor.free(["cpu"])[0, row]) // 1000


def offered(floor: Ledger, name: str = "a") -> int:
    return free(floor.offered(), name)


@pytest.fixture
def floor() -> Ledger:
    """A node of eight CPUs, three in use; the other five are on offer."""
    ledger = Ledger([node("a", cpu="8")])
    ledger.claim("old", claim(3))
    ledger.offer()
    return ledger


Act = Callable[[Ledger], object]


def claimed(key: str, what: Claim) -> Act:
    return lambda floor: floor.claim(key, what)


def dropped(key: str) -> Act:
    return lambda floor: floor.drop(key)


def handed_over(key: str, to: str) -> Act:
    return lambda floor: floor.hand_over(key, to)


def shown(what: Node) -> Act:
    return lambda floor: floor.set_node(what)


CHANGES: dict[str, tuple[tuple[Act, ...], int, int]] = {
    "a claim comes": ((claimed("new", claim(1)),), 4, 4),
    "a claim goes": ((dropped("old"),), 5, 8),
    "a claim shrinks": ((claimed("old", claim(1)),), 5, 7),
    "a claim grows": ((claimed("old", claim(4)),), 4, 4),
    "a claim moves away": ((claimed("old", claim(3, "b")),), 5, 8),
    "a claim passes to its pod": ((claimed("pod", claim(3)), handed_over("old", "pod")), 5, 5),
    "a claim passes to a smaller pod": (
        (claimed("pod", claim(1)), handed_over("old", "pod")),
        4,
        7,
    ),
    "the node grows": ((shown(node("a", cpu="10")),), 5, 7),
    "the node shrinks": ((shown(node("a", cpu="6")),), 3, 3),
    "the node is another node": ((shown(LABELLED),), 0, 5),
    "freed capacity is taken": ((dropped("old"), claimed("new", claim(7))), 1, 1),
    "freed capacity is taken and freed again": (
        (dropped("old"), claimed("new", claim(6)), dropped("new")),
        2,
        8,
    ),
}


@pytest.mark.parametrize(("changes", "before", "after"), CHANGES.values(), ids=CHANGES)
def test_which_capacity_of_a_node_is_offered(
    floor: Ledger, changes: tuple[Act, ...], before: int, after: int
) -> None:
    for change in changes:
        change(floor)
    assert (offered(floor), free(floor)) == (before, after)
    gained = floor.gains != floor.offered().gains
    assert floor.offer() == ([0] if before != after or gained else [])
    assert offered(floor) == after


def test_a_new_node_is_offered_with_all_its_capacity_next(floor: Ledger) -> None:
    floor.set_node(node("b", cpu="4", gpus=2))
    assert (offered(floor, "b"), free(floor, "b")) == (0, 4)
    assert floor.offer() == [1]
    assert offered(floor, "b") == 4


def test_a_removed_node_leaves_nothing_to_offer(floor: Ledger) -> None:
    floor.drop("old")
    floor.remove_node("a")
    assert floor.offer() == []


def test_the_offer_without_some_claims_lacks_withheld_capacity(floor: Ledger) -> None:
    floor.claim("job", Claim("a", {"cpu": 2000}, job="uid"))
    floor.drop("old")
    assert free(floor.offered()) == 3
    assert free(floor.offered().without(lambda tier: tier.of_job)) == 5
    assert int(floor.offered().free(["cpu"], ignoring=["job"])[0, 0]) == 5000


CLAIMS = st.sampled_from("xyz")
ACTS = st.one_of(
    st.tuples(st.just("claim"), CLAIMS, st.integers(1, 4), st.sampled_from("ab")),
    st.tuples(st.just("drop"), CLAIMS),
    st.tuples(st.just("node"), st.sampled_from("ab"), st.integers(1, 9)),
    st.tuples(st.just("offer")),
)


@given(acts=st.lists(ACTS, max_size=30))
def test_the_offer_only_shrinks_and_never_exceeds_the_free_capacity(
    acts: list[tuple[Any, ...]],
) -> None:
    floor = Ledger([node("a", cpu="8"), node("b", cpu="4")])
    floor.offer()
    last = floor.offered().free(["cpu", "pods"])
    for kind, *of in acts:
        match kind:
            case "claim":
                floor.claim(of[0], claim(of[1], of[2]))
            case "drop":
                floor.drop(of[0])
            case "node":
                floor.set_node(node(of[0], cpu=str(of[1])))
            case "offer":
                floor.offer()
                last = floor.free(["cpu", "pods"])
        now = floor.offered().free(["cpu", "pods"])
        assert np.all(now <= np.minimum(last, floor.free(["cpu", "pods"])))
        last = now
