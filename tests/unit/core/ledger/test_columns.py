"""The numbers of the ledger: booked amounts, and topology domains."""

from collections.abc import Mapping

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


def columns(nodes: list[dict[str, int]], booked: list[tuple[int, dict[str, int]]]) -> Columns:
    table = Columns()
    for row, allocatable in enumerate(nodes):
        table.set_allocatable(row, allocatable)
    for row, requests in booked:
        table.book(row, requests, +1)
    return table


def numbers(table: Columns) -> list[list[list[int]]]:
    """The free and allocatable amounts and the scored load of all rows."""
    return [
        table.free(RESOURCES, ROWS).tolist(),
        table.allocatable(RESOURCES, ROWS).tolist(),
        table.scored_load(ROWS).tolist(),
    ]


@given(nodes=st.lists(amounts, min_size=ROWS, max_size=ROWS), booked=bookings)
def test_free_is_allocatable_less_booked_and_zero_for_resources_that_no_row_has(
    nodes: list[dict[str, int]], booked: list[tuple[int, dict[str, int]]]
) -> None:
    free = columns(nodes, booked).free(RESOURCES, ROWS)
    somewhere = set().union(ASSUMED, *nodes)
    for line, resource in enumerate(RESOURCES):
        if resource not in somewhere:
            assert free[line].tolist() == [0] * ROWS
            continue
        for row, allocatable in enumerate(nodes):
            taken = [min(amounts.get(resource, 0), LARGEST) for at, amounts in booked if at == row]
            assert free[line, row] == min(allocatable.get(resource, 0), LARGEST) - sum(taken)


@given(
    nodes=st.lists(amounts, min_size=ROWS, max_size=ROWS),
    booked=bookings,
    more=bookings,
    data=st.data(),
)
def test_a_booking_that_is_removed_leaves_no_trace(
    nodes: list[dict[str, int]],
    booked: list[tuple[int, dict[str, int]]],
    more: list[tuple[int, dict[str, int]]],
    data: st.DataObject,
) -> None:
    table = columns(nodes, booked)
    before = numbers(table)
    for row, requests in more:
        table.book(row, requests, +1)
    for row, requests in data.draw(st.permutations(more)):
        table.book(row, requests, -1)
    assert numbers(table) == before


@given(booked=bookings, more=bookings)
def test_a_booking_on_a_copy_leaves_the_original_unchanged(
    booked: list[tuple[int, dict[str, int]]], more: list[tuple[int, dict[str, int]]]
) -> None:
    table = columns([{"cpu": 5}] * ROWS, booked)
    before, copied = numbers(table), table.copy()
    assert numbers(copied) == before
    for row, requests in more:
        copied.book(row, requests, +1)
    assert numbers(table) == before
    assert numbers(copied) == numbers(columns([{"cpu": 5}] * ROWS, [*booked, *more]))


def test_resources_that_only_a_copy_knows_are_unknown_to_the_original() -> None:
    table, many = columns([{"cpu": 5}], []), {f"example.com/{number}": 1 for number in range(9)}
    table.copy().book(0, many, +1)
    assert not table.free(["example.com/8"], 1).any()


def test_invented_names_of_resources_are_not_counted() -> None:
    table, invented = columns([{"cpu": 5}], []), {f"x.y/{number}": 1 for number in range(30_000)}
    known = set(table.resources)
    table.book(0, invented, +1)
    assert not table.free(invented, 1).any()
    assert not table.allocatable(invented, 1).any()
    assert set(table.resources) == known


def test_more_rows_keep_the_numbers_of_the_first_rows() -> None:
    table = columns([{"cpu": 4}, {"cpu": 8}], [(1, {"cpu": 3})])
    before, width = numbers(table), table.width
    table.widen()
    assert table.width > width
    assert numbers(table) == before
    assert not table.free(RESOURCES, table.width)[:, ROWS:].any()
    table.book(table.width - 1, {"pods": 1}, +1)
    assert table.scored_load(table.width)[:, -1].tolist() == list(ASSUMED.values())


def test_clearing_a_row_empties_this_row_only() -> None:
    table = columns([{"cpu": 4}, {"cpu": 8}], [(0, {"memory": 3}), (1, {"cpu": 3})])
    table.clear(0)
    assert numbers(table) == numbers(columns([{}, {"cpu": 8}], [(1, {"cpu": 3})]))


def test_new_amounts_of_a_node_replace_all_earlier_amounts() -> None:
    table = columns([{"cpu": 4, "nvidia.com/gpu": 8}], [])
    table.set_allocatable(0, {"cpu": 6})
    assert table.allocatable(("cpu", "nvidia.com/gpu"), 1).tolist() == [[6], [0]]


def test_assumed_requests_count_in_scores_but_use_no_capacity() -> None:
    table = columns([{"cpu": 4}], [(0, {"pods": 1})])
    assert table.scored_load(1).ravel().tolist() == list(ASSUMED.values())
    assert table.free(["cpu", "memory"], 1).ravel().tolist() == [4, 0]


def test_a_claim_on_ports_alone_does_not_count_in_scores() -> None:
    capacity = ledger(node("a", cpu="4"))
    capacity.claim("ports", Claim(node="a", requests={}, host_ports=(("TCP", 20000),)))
    assert not capacity.scored_load().any()


def test_the_arrays_grow_with_the_resources_of_a_node() -> None:
    many = {f"example.com/{number}": number + 1 for number in range(40)}
    capacity = Ledger([Node("n", many)])
    assert list(capacity.free(list(many))[:, 0]) == list(many.values())


def test_amounts_beyond_64_bits_never_become_free_capacity() -> None:
    capacity = ledger(node("n"))
    for number in range(3):
        capacity.claim(number, Claim("n", {"cpu": 2**70, "memory": 2**63 - 1}))
    assert (capacity.free(["cpu", "memory"]) < 0).all()
    for number in range(3):
        capacity.drop(number)
    assert capacity.free(["cpu"])[0, 0] == 32_000
    assert LARGEST * 1000 < 2**63


Labels = Mapping[str, str] | None
"""The labels of a node, or None for a row without a node."""

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
    "a rack without a zone is its own domain": (
        [{"rack": "1"}, {"zone": "a", "rack": "1"}],
        [-1, 0],
        [0, 1],
    ),
    "a node without labels is nowhere": ([{}], [-1], [-1]),
    "a row without a node is nowhere": ([None, {"zone": "a", "rack": "1"}], [-1, 0], [-1, 0]),
}


def nodes(labels: list[Labels]) -> list[Node | None]:
    return [None if label is None else Node("n", labels=label) for label in labels]


@pytest.mark.parametrize(("labels", "zones", "racks"), DOMAINS.values(), ids=DOMAINS)
def test_nodes_with_equal_labels_for_a_level_and_all_wider_levels_share_its_domain(
    labels: list[Labels], zones: list[int], racks: list[int]
) -> None:
    result = Topology().domains(LEVELS, nodes(labels))
    assert [level.tolist() for level in result] == [zones, racks]


def test_without_keys_there_is_no_level() -> None:
    assert Topology().domains((), nodes([{"zone": "a"}])) == ()


def test_labels_are_read_again_once_they_are_forgotten() -> None:
    topology = Topology()
    topology.domains(("zone",), nodes([{"zone": "a"}, {"zone": "b"}]))
    topology.forget()
    (zones,) = topology.domains(("zone",), nodes([{"zone": "a"}, {"zone": "a"}]))
    assert zones.tolist() == [0, 0]


def test_each_list_of_topology_keys_has_its_own_levels() -> None:
    topology, labels = Topology(), {f"k{number}": "x" for number in range(0, 40, 2)}
    for number in (*range(40), *range(40)):  # more lists than are cached
        (level,) = topology.domains((f"k{number}",), nodes([labels]))
        assert level.tolist() == [-1 if number % 2 else 0]


def test_a_ledger_numbers_domains_by_their_labels_for_any_order_of_nodes() -> None:
    zoned = [Node(name, labels={"zone": zone}) for name, zone in ("az", "by", "cz")]
    for order in (zoned, zoned[::-1]):
        capacity = Ledger(order)
        (zones,) = capacity.domains(("zone",))
        by_name = {known.name: int(zones[capacity.row(known.name) or 0]) for known in zoned}
        assert by_name == {"a": 1, "b": 0, "c": 1}


ALONE: dict[str, tuple[list[Labels], list[bool]]] = {
    "no node": ([], []),
    "two nodes with values of their own": ([{"host": "a"}, {"host": "b"}], [True, True]),
    "two of three nodes with one value": (
        [{"host": "a"}, {"host": "b"}, {"host": "a"}],
        [False, True, False],
    ),
    "two nodes without the label": ([{}, {}], [True, True]),
    "a row without a node": ([None, {"host": "a"}], [True, True]),
}


@pytest.mark.parametrize(("labels", "want"), ALONE.values(), ids=ALONE)
def test_a_node_is_alone_in_its_domain_unless_another_node_has_its_label_value(
    labels: list[Labels], want: list[bool]
) -> None:
    assert Topology().alone("host", nodes(labels)).tolist() == want
