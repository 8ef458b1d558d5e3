"""Which nodes are possible for a pod."""

from kfext.model.constraints import Constraints
from tests.builders import ledger, node


def test_the_memory_for_constraints_has_a_bound() -> None:
    made = ledger(node("n", labels={"k": "7"}))
    for number in range(2000):
        possible = made.eligible(Constraints(node_selector=(("k", str(number)),)))
        assert possible[0] == (number == 7)
    assert len(made._eligible._masks) <= 256
