"""Which domain each node is in."""

from kfext.core.ledger.ledger import Ledger
from kfext.model.node import Node


def test_a_ledger_numbers_domains_by_their_labels_whatever_the_order_of_nodes() -> None:
    nodes = [Node(name, labels={"zone": zone}) for name, zone in ("az", "by", "cz")]
    for order in (nodes, nodes[::-1]):
        on = Ledger(order)
        (zones,) = on.domains(("zone",))
        by_name = {one.name: int(zones[on.row(one.name) or 0]) for one in nodes}
        assert by_name == {"a": 1, "b": 0, "c": 1}
