"""Which domain each node is in."""

from collections.abc import Mapping

import pytest

from kfext.core.ledger.ledger import Ledger
from kfext.core.ledger.topology import Topology
from kfext.model.node import Node

Labels = Mapping[str, str] | None
"""The labels of a node; None where there is no node."""

KEYS = ("zone", "rack")
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
    found = Topology().of(KEYS, nodes(labels))
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
