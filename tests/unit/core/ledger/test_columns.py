"""The numbers of the ledger: what is booked is what is taken, whatever was booked before."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.columns import ASSUMED, LARGEST, Columns, Topology
from kfext.core.ledger.ledger import Ledger
from kfext.model.node import Node
from tests.builders import ledger, node

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu", "rdma/hca", "example/x")
ROWS = 3
amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 2**60), max_size=4)
bookings = st.lists(st.tuples(st.integers(0, ROWS - 1), amounts), max_size=8)


def columns(there: list[dict[str, int]], booked: list[tuple[int, dict[str, int]]]) -> Columns:
    made = Columns()
    for row, allocatable in enumerate(there):
        made.set_allocatable(row, allocatable)
    for row, requests in booked:
        made.book(row, requests, +1)
    return made


def numbers(of: Columns) -> list[list[list[int]]]:
    """All that columns say of their rows."""
    return [
        of.free(RESOURCES, ROWS).tolist(),
        of.allocatable(RESOURCES, ROWS).tolist(),
        of.scored_load(ROWS).tolist(),
    ]


@given(there=st.lists(amounts, min_size=ROWS, max_size=ROWS), booked=bookings)
def test_free_is_what_there_is_less_what_is_booked_and_nothing_of_what_no_row_has(
    there: list[dict[str, int]], booked: list[tuple[int, dict[str, int]]]
) -> None:
    free = columns(there, booked).free(RESOURCES, ROWS)
    somewhere = set().union(ASSUMED, *there)
    for line, resource in enumerate(RESOURCES):
        if resource not in somewhere:
            assert free[line].tolist() == [0] * ROWS
            continue
        for row, allocatable in enumerate(there):
            taken = [min(one.get(resource, 0), LARGEST) for at, one in booked if at == row]
            assert free[line, row] == min(allocatable.get(resource, 0), LARGEST) - sum(taken)


@given(
    there=st.lists(amounts, min_size=ROWS, max_size=ROWS),
    booked=bookings,
    more=bookings,
    data=st.data(),
)
def test_what_is_booked_and_taken_back_leaves_no_trace(
    there: list[dict[str, int]],
    booked: list[tuple[int, dict[str, int]]],
    more: list[tuple[int, dict[str, int]]],
    data: st.DataObject,
) -> None:
    made = columns(there, booked)
    before = numbers(made)
    for row, requests in more:
        made.book(row, requests, +1)
    for row, requests in data.draw(st.permutations(more)):
        made.book(row, requests, -1)
    assert numbers(made) == before


@given(booked=bookings, more=bookings)
def test_what_is_booked_on_a_copy_changes_nothing_here(
    booked: list[tuple[int, dict[str, int]]], more: list[tuple[int, dict[str, int]]]
) -> None:
    made = columns([{"cpu": 5}] * ROWS, booked)
    before, copied = numbers(made), made.copy()
    assert numbers(copied) == before
    for row, requests in more:
        copied.book(row, requests, +1)
    assert numbers(made) == before
    assert numbers(copied) == numbers(columns([{"cpu": 5}] * ROWS, [*booked, *more]))


def test_resources_that_only_a_copy_has_seen_are_none_here() -> None:
    made, many = columns([{"cpu": 5}], []), {f"example.com/{number}": 1 for number in range(9)}
    made.copy().book(0, many, +1)
    assert not made.free(["example.com/8"], 1).any()


def test_names_that_users_invent_are_not_counted() -> None:
    made, invented = columns([{"cpu": 5}], []), {f"x.y/{number}": 1 for number in range(30_000)}
    known = set(made.resources)
    made.book(0, invented, +1)
    assert not made.free(invented, 1).any()
    assert not made.allocatable(invented, 1).any()
    assert set(made.resources) == known


def test_more_rows_keep_what_is_said_of_the_first() -> None:
    made = columns([{"cpu": 4}, {"cpu": 8}], [(1, {"cpu": 3})])
    before, width = numbers(made), made.width
    made.widen()
    assert made.width > width
    assert numbers(made) == before
    assert not made.free(RESOURCES, made.width)[:, ROWS:].any()
    made.book(made.width - 1, {"pods": 1}, +1)
    assert made.scored_load(made.width)[:, -1].tolist() == list(ASSUMED.values())


def test_a_row_that_is_cleared_is_empty_and_the_others_stay() -> None:
    made = columns([{"cpu": 4}, {"cpu": 8}], [(0, {"memory": 3}), (1, {"cpu": 3})])
    made.clear(0)
    assert numbers(made) == numbers(columns([{}, {"cpu": 8}], [(1, {"cpu": 3})]))


def test_new_amounts_of_a_node_take_the_place_of_all_earlier_ones() -> None:
    made = columns([{"cpu": 4, "nvidia.com/gpu": 8}], [])
    made.set_allocatable(0, {"cpu": 6})
    assert made.allocatable(("cpu", "nvidia.com/gpu"), 1).tolist() == [[6], [0]]


def test_a_pod_without_requests_weighs_what_is_assumed_and_takes_nothing() -> None:
    made = columns([{"cpu": 4}], [(0, {"pods": 1})])
    assert made.scored_load(1).ravel().tolist() == list(ASSUMED.values())
    assert made.free(["cpu", "memory"], 1).ravel().tolist() == [4, 0]


def test_ports_alone_weigh_nothing_in_scores() -> None:
    books = ledger(node("a", cpu="4"))
    books.claim("ports", Claim(node="a", requests={}, host_ports=(("TCP", 20000),)))
    assert not books.scored_load().any()


def test_a_node_with_more_resources_than_there_are_columns() -> None:
    many = {f"example.com/{number}": number + 1 for number in range(40)}
    made = Ledger([Node("n", many)])
    assert list(made.free(list(many))[:, 0]) == list(many.values())


def test_amounts_beyond_64_bits_never_turn_into_free_room() -> None:
    made = ledger(node("n"))
    for number in range(3):
        made.claim(number, Claim("n", {"cpu": 2**70, "memory": 2**63 - 1}))
    assert (made.free(["cpu", "memory"]) < 0).all()
    for number in range(3):
        made.drop(number)
    assert made.free(["cpu"])[0, 0] == 32_000
    assert LARGEST * 1000 < 2**63


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
    """A node of eight CPUs, of which three are taken; that is on offer."""
    made = Ledger([node("a", cpu="8")])
    made.claim("old", claim(3))
    made.offer()
    return made


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
    "the node is another one": ((shown(LABELLED),), 0, 5),
    "what comes free is taken": ((dropped("old"), claimed("new", claim(7))), 1, 1),
    "what comes free is taken and comes free": (
        (dropped("old"), claimed("new", claim(6)), dropped("new")),
        2,
        8,
    ),
}


@pytest.mark.parametrize(("changes", "before", "after"), CHANGES.values(), ids=CHANGES)
def test_of_a_node_is_offered(
    floor: Ledger, changes: tuple[Act, ...], before: int, after: int
) -> None:
    for change in changes:
        change(floor)
    assert (offered(floor), free(floor)) == (before, after)
    gained = floor.gains != floor.offered().gains
    assert floor.offer() == ([0] if before != after or gained else [])
    assert offered(floor) == after


def test_a_node_that_comes_is_offered_with_all_that_it_has_next(floor: Ledger) -> None:
    floor.set_node(node("b", cpu="4", gpus=2))
    assert (offered(floor, "b"), free(floor, "b")) == (0, 4)
    assert floor.offer() == [1]
    assert offered(floor, "b") == 4


def test_a_node_that_goes_leaves_nothing_to_offer(floor: Ledger) -> None:
    floor.drop("old")
    floor.remove_node("a")
    assert floor.offer() == []


def test_what_is_offered_without_some_claims_is_without_what_was_withheld(floor: Ledger) -> None:
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
def test_what_is_offered_only_shrinks_and_is_never_more_than_what_is_free(
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


Labels = Mapping[str, str] | None
"""The labels of a node; None where there is no node."""

LEVELS = ("zone", "rack")
DOMAINS: dict[str, tuple[list[Labels], list[int], list[int]]] = {
    "no node": ([], [], []),
    "one rack": ([{"zone": "a", "rack": "1"}] * 2, [0, 0], [0, 0]),
    "two racks of one zone": (
        [{"zone": "a", "rack": "2"}, {"zone": "a", "rack": "1"}],
        [0, 0],
        [1, 0],
    ),
    "racks of one name in two zones are two racks": (
        [{"zone": "b", "rack": "1"}, {"zone": "a", "rack": "1"}],
        [1, 0],
        [1, 0],
    ),
    "a node without a rack is in a zone only": ([{"zone": "a"}], [0], [-1]),
    "a rack without a zone is one of its own": (
        [{"rack": "1"}, {"zone": "a", "rack": "1"}],
        [-1, 0],
        [0, 1],
    ),
    "a node without labels is nowhere": ([{}], [-1], [-1]),
    "a row without a node is nowhere": ([None, {"zone": "a", "rack": "1"}], [-1, 0], [-1, 0]),
}


def nodes(labels: list[Labels]) -> list[Node | None]:
    return [None if one is None else Node("n", labels=one) for one in labels]


@pytest.mark.parametrize(("labels", "zones", "racks"), DOMAINS.values(), ids=DOMAINS)
def test_nodes_share_a_domain_that_agree_on_its_label_and_on_all_wider_ones(
    labels: list[Labels], zones: list[int], racks: list[int]
) -> None:
    found = Topology().of(LEVELS, nodes(labels))
    assert [level.tolist() for level in found] == [zones, racks]


def test_without_keys_there_is_no_level() -> None:
    assert Topology().of((), nodes([{"zone": "a"}])) == ()


def test_labels_are_read_anew_once_they_are_forgotten() -> None:
    topology = Topology()
    topology.of(("zone",), nodes([{"zone": "a"}, {"zone": "b"}]))
    topology.forget()
    (zones,) = topology.of(("zone",), nodes([{"zone": "a"}, {"zone": "a"}]))
    assert zones.tolist() == [0, 0]


def test_as_many_lists_of_keys_as_policies_have_are_answered_each_by_itself() -> None:
    topology, labels = Topology(), {f"k{number}": "x" for number in range(0, 40, 2)}
    for number in (*range(40), *range(40)):
        (level,) = topology.of((f"k{number}",), nodes([labels]))
        assert level.tolist() == [-1 if number % 2 else 0]


def test_a_ledger_numbers_domains_by_their_labels_whatever_the_order_of_nodes() -> None:
    made = [Node(name, labels={"zone": zone}) for name, zone in ("az", "by", "cz")]
    for order in (made, made[::-1]):
        on = Ledger(order)
        (zones,) = on.domains(("zone",))
        by_name = {one.name: int(zones[on.row(one.name) or 0]) for one in made}
        assert by_name == {"a": 1, "b": 0, "c": 1}


ALONE: dict[str, tuple[list[Labels], list[bool]]] = {
    "no node": ([], []),
    "two nodes with values of their own": ([{"host": "a"}, {"host": "b"}], [True, True]),
    "two of three with one value": (
        [{"host": "a"}, {"host": "b"}, {"host": "a"}],
        [False, True, False],
    ),
    "two nodes without the label": ([{}, {}], [True, True]),
    "a row without a node": ([None, {"host": "a"}], [True, True]),
}


@pytest.mark.parametrize(("labels", "want"), ALONE.values(), ids=ALONE)
def test_a_node_is_alone_in_its_domain_unless_another_has_its_value(
    labels: list[Labels], want: list[bool]
) -> None:
    assert Topology().alone("host", nodes(labels)).tolist() == want
