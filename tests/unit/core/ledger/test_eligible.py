"""Which nodes are possible for a pod: the verdict of each node, remembered."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.eligible import Eligibility
from kfext.core.ledger.fit import why_not
from kfext.model.constraints import Constraints
from kfext.model.gang_terms import GangTerm
from kfext.model.node import Node
from tests.builders import ledger, node

WIDTH = 4
ANYWHERE = Constraints()
IN_A = Constraints(node_selector=(("zone", "a"),))
ON_1 = Constraints(node_name="n1")
zones = st.none() | st.sampled_from("ab")


def made(row: int, zone: str | None) -> Node | None:
    return None if zone is None else Node(f"n{row}", labels={"zone": zone})


@given(
    at_first=st.lists(zones, max_size=WIDTH),
    changes=st.lists(st.tuples(st.integers(0, WIDTH - 1), zones), max_size=6),
)
def test_a_mask_says_what_each_node_says_however_often_nodes_change(
    at_first: list[str | None], changes: list[tuple[int, str | None]]
) -> None:
    nodes = [made(row, zone) for row, zone in enumerate(at_first)]
    eligibility = Eligibility()
    kinds = (ANYWHERE, IN_A, ON_1)
    for constraints in kinds:
        eligibility.of(constraints, nodes, width=WIDTH)
    nodes += [None] * (WIDTH - len(nodes))
    for row, zone in changes:
        nodes[row] = made(row, zone)
        eligibility.set(row, nodes[row])
    for constraints in kinds:
        mask = eligibility.of(constraints, nodes, width=WIDTH)
        assert mask.tolist() == [
            one is not None and why_not(constraints, one) is None for one in nodes
        ]
        counts = eligibility.obstacles(constraints, nodes, width=WIDTH)
        assert counts == Counter(
            why for one in nodes if one is not None and (why := why_not(constraints, one))
        )
        assert all(counts.values()), "what excludes no node any more is forgotten"


def test_what_is_exclusive_is_not_part_of_the_question() -> None:
    eligibility, nodes = Eligibility(), [Node("n0")]
    alone = Constraints(host_ports=(("TCP", 80),), apart=(GangTerm("train"),))
    found = eligibility.of(alone, nodes, width=WIDTH)
    assert found is eligibility.of(ANYWHERE, nodes, width=WIDTH)


def test_rows_beyond_the_nodes_are_not_possible() -> None:
    eligibility = Eligibility()
    assert eligibility.of(ANYWHERE, [Node("n0"), None], width=4).tolist() == [True] + [False] * 3


def test_more_rows_keep_the_verdicts_of_the_first() -> None:
    eligibility, nodes = Eligibility(), [Node("n0"), Node("n1")]
    eligibility.of(ON_1, nodes, width=2)
    eligibility.widen(4)
    assert eligibility.of(ON_1, nodes, width=4).tolist() == [False, True, False, False]
    eligibility.set(3, Node("n1"))
    assert eligibility.of(ON_1, nodes, width=4).tolist() == [False, True, False, True]


def test_the_memory_for_constraints_has_a_bound() -> None:
    made = ledger(node("n", labels={"k": "7"}))
    for number in range(2000):
        possible = made.eligible(Constraints(node_selector=(("k", str(number)),)))
        assert possible[0] == (number == 7)
    assert len(made._eligible._judged) <= 256
