"""What makes a division over nodes good: the weights, and that they can be fitted to data."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.placement.division import DEFAULT, Weights, cost, even, fullest, instead
from kfext.core.placement.place import place
from kfext.model.verdict import Verdict
from tests.builders import job, ledger, limits, node

# Seconds of a training step of BERT with 6 samples per GPU, by the number of GPUs on each of up to
# four nodes. From the trace placements.csv for BERT that the authors of AdaptDL measured
# (github.com/petuum/adaptdl, branch osdi21-artifact, Apache-2.0) on g4dn.12xlarge in Kubernetes.
STEP_SECONDS = {
    (1, 1): 1.317,
    (2, 2): 1.980,
    (3, 3): 2.173,
    (4, 4): 2.489,
    (1, 1, 1): 1.166,
    (2, 2, 2): 1.379,
    (1, 1, 1, 1): 1.295,
    (2, 2, 2, 2): 1.472,
    (1, 2): 1.726,
    (1, 3): 1.984,
    (1, 1, 2): 1.168,
    (2, 2, 4): 1.423,
    (1, 3, 4): 1.388,
    (4,): 0.620,
}


def fitted() -> Weights:
    """The weights that explain the measured steps best, by least squares."""
    units = [Weights(*row) for row in np.eye(4)]
    measured = list(STEP_SECONDS)
    terms = [[*(cost(shares, unit) for unit in units), 1.0] for shares in measured]
    found, *_ = np.linalg.lstsq(np.array(terms), np.array(list(STEP_SECONDS.values())), rcond=None)
    return Weights(*found[:4].tolist())


ORDERS = {
    "four members": [(4,), (1, 1, 1, 1), (2, 2)],
    "six members": [(2, 2, 2), (3, 3)],
    "eight members": [(2, 2, 2, 2), (4, 4)],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_C2_weights_fitted_to_measured_steps_give_the_measured_order_back(
    order: list[tuple[int, ...]],
) -> None:
    assert all(STEP_SECONDS[one] < STEP_SECONDS[other] for one, other in pairwise(order))
    prices = [cost(shares, fitted()) for shares in order]
    assert prices == sorted(prices)
    assert len(set(prices)) == len(prices)


def test_C2_with_the_fitted_weights_the_solver_takes_what_was_measured_as_faster() -> None:
    on = ledger(*(node(name, gpus=2) for name in "abcd"))
    members = job().worker(4, gpus=1).members()
    for weights, nodes in ((fitted(), 4), (DEFAULT, 2)):
        found = place(members, on, limits(), weights=weights)
        assert not isinstance(found, Verdict)
        assert len(set(found.values())) == nodes


BETTER = {
    "one node before any set": ((64,), (32, 32)),
    "balanced before lopsided": ((6, 6), (10, 2)),
    "balanced before fewest": ((4, 4, 4), (7, 5)),
    "balanced over twice the nodes": ((3, 3, 3, 3), (7, 5)),
    "the fewest of the balanced": ((2, 2), (1, 1, 1, 1)),
    "a small difference is no reason for more nodes": ((51, 49), (25, 25, 25, 25)),
    "equal but for one is balanced": ((7, 6), (5, 4, 4)),
}


@pytest.mark.parametrize(("one", "other"), BETTER.values(), ids=BETTER.keys())
def test_which_division_is_better(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert cost(one) < cost(other)


def test_sharing_a_link_costs_what_its_weight_says() -> None:
    only = Weights(crossing=0.0, doubling=0.0, lopsided=0.0, sharing=1.0)
    assert (cost((2, 2, 2, 2), only), cost((4, 4), only)) == (1.0, 2.0)


def test_nodes_without_a_member_do_not_count() -> None:
    assert cost((0, 4, 0)) == cost((4,)) == 0


rooms = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@given(capacity=rooms, share=st.floats(0.01, 1))
def test_even_shares_fit_and_no_other_division_has_a_smaller_largest_share(
    capacity: list[int], share: float
) -> None:
    ordered, count = np.array(sorted(capacity, reverse=True)), max(1, round(sum(capacity) * share))
    shares = even(ordered, count)
    assert shares.sum() == count
    assert (shares <= ordered).all()
    assert (shares == sorted(shares, reverse=True)).all()
    below = int(shares.max()) - 1
    assert np.minimum(ordered, below).sum() < count
    assert all(one - shares.min() <= 1 or least == full
               for one in shares for least, full in zip(shares, ordered, strict=True)
               if least == shares.min())  # fmt: skip


@given(capacity=rooms, share=st.floats(0.01, 1))
def test_the_largest_share_is_that_of_the_even_division_for_every_number_of_nodes(
    capacity: list[int], share: float
) -> None:
    ordered, count = np.array(sorted(capacity, reverse=True)), max(1, round(sum(capacity) * share))
    sizes = np.flatnonzero(ordered.cumsum() >= count) + 1
    want = [even(ordered[:size], count).max() for size in sizes]
    assert fullest(ordered, count, sizes).tolist() == want


def test_what_is_said_of_more_nodes() -> None:
    assert instead([4, 4], [7, 1]) == ""
    assert instead([1, 1, 1], [2, 1]) == (
        "3 nodes with 1 pod each instead of 2 with 1 to 2 pods each, "
        "because the fullest node sets the pace of the job"
    )
