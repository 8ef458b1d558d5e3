"""The numbers of the ledger."""

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.columns import LARGEST
from kfext.core.ledger.ledger import Ledger
from kfext.model.node import Node
from tests.builders import ledger, node


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
