"""What has come free is on offer from the next call of `offer` on; until then, less is at most."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.model.node import Node
from tests.builders import node

LABELLED = replace(node("a", cpu="8"), labels={"zone": "x"})


def claim(cpu: int, on: str = "a") -> Claim:
    return Claim(on, {"cpu": 1000 * cpu, "pods": 1})


def free(ledger: Ledger, name: str = "a") -> int:
    """CPUs that are free on a node."""
    row = ledger.row(name)
    assert row is not None
    return int(ledger.free(["cpu"])[0, row]) // 1000


def offered(ledger: Ledger, name: str = "a") -> int:
    return free(ledger.offered(), name)


@pytest.fixture
def ledger() -> Ledger:
    """A node of eight CPUs, of which three are taken; that is on offer."""
    made = Ledger([node("a", cpu="8")])
    made.claim("old", claim(3))
    made.offer()
    return made


Act = Callable[[Ledger], object]


def claimed(key: str, what: Claim) -> Act:
    return lambda ledger: ledger.claim(key, what)


def dropped(key: str) -> Act:
    return lambda ledger: ledger.drop(key)


def handed_over(key: str, to: str) -> Act:
    return lambda ledger: ledger.hand_over(key, to)


def shown(what: Node) -> Act:
    return lambda ledger: ledger.set_node(what)


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
    ledger: Ledger, changes: tuple[Act, ...], before: int, after: int
) -> None:
    for change in changes:
        change(ledger)
    assert (offered(ledger), free(ledger)) == (before, after)
    gained = ledger.gains != ledger.offered().gains
    assert ledger.offer() == ([0] if before != after or gained else [])
    assert offered(ledger) == after


def test_a_node_that_comes_is_offered_with_all_that_it_has_next(ledger: Ledger) -> None:
    ledger.set_node(node("b", cpu="4", gpus=2))
    assert (offered(ledger, "b"), free(ledger, "b")) == (0, 4)
    assert ledger.offer() == [1]
    assert offered(ledger, "b") == 4


def test_a_node_that_goes_leaves_nothing_to_offer(ledger: Ledger) -> None:
    ledger.drop("old")
    ledger.remove_node("a")
    assert ledger.offer() == []


def test_what_is_offered_without_some_claims_is_without_what_was_withheld(ledger: Ledger) -> None:
    ledger.claim("job", Claim("a", {"cpu": 2000}, job="uid"))
    ledger.drop("old")
    assert free(ledger.offered()) == 3
    assert free(ledger.offered().without(lambda tier: tier.of_job)) == 5
    assert int(ledger.offered().free(["cpu"], ignoring=["job"])[0, 0]) == 5000


KEYS = st.sampled_from("xyz")
ACTS = st.one_of(
    st.tuples(st.just("claim"), KEYS, st.integers(1, 4), st.sampled_from("ab")),
    st.tuples(st.just("drop"), KEYS),
    st.tuples(st.just("node"), st.sampled_from("ab"), st.integers(1, 9)),
    st.tuples(st.just("offer")),
)


@given(acts=st.lists(ACTS, max_size=30))
def test_what_is_offered_only_shrinks_and_is_never_more_than_what_is_free(
    acts: list[tuple[Any, ...]],
) -> None:
    ledger = Ledger([node("a", cpu="8"), node("b", cpu="4")])
    ledger.offer()
    last = ledger.offered().free(["cpu", "pods"])
    for kind, *of in acts:
        match kind:
            case "claim":
                ledger.claim(of[0], claim(of[1], of[2]))
            case "drop":
                ledger.drop(of[0])
            case "node":
                ledger.set_node(node(of[0], cpu=str(of[1])))
            case "offer":
                ledger.offer()
                last = ledger.free(["cpu", "pods"])
        now = ledger.offered().free(["cpu", "pods"])
        assert np.all(now <= np.minimum(last, ledger.free(["cpu", "pods"])))
        last = now
