"""Which node, and which division of a gang, is better. F5 and C2 are ids in tests/statements.md."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.cards import as_sharing
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import gang, members_of
from kfext.core.placement.place import place
from kfext.core.placement.score import (
    DEFAULT,
    Weights,
    cost,
    even_node_counts,
    fullest,
    ranking,
    spread_reason,
)
from kfext.model.verdict import Verdict
from tests.builders import JobBuilder, job, ledger, limits, node
from tests.gpu_builders import sharing, sharing_node
from tests.unit.core.placement.answers import GPU, nodes_of, placed

CHOICES: dict[str, tuple[JobBuilder, Mapping[str, Mapping[str, str]], str]] = {
    "GPUs: the tightest fit": (
        job().worker(2, gpus=1, cpu="1"),
        {"a": {GPU: "2"}, "b": {GPU: "6"}, "c": {GPU: "7"}},
        "b",
    ),
    "GPUs equal: the least CPU allocated": (
        job().worker(2, gpus=1, cpu="1"),
        {"a": {GPU: "4", "cpu": "9"}, "b": {GPU: "4", "cpu": "3"}, "c": {GPU: "4", "cpu": "6"}},
        "b",
    ),
    "CPU: the least allocated, since pods may burst": (
        job().worker(2, cpu="1"),
        {"a": {"cpu": "9"}, "b": {"cpu": "3"}, "c": {"cpu": "20"}},
        "b",
    ),
    "Guaranteed CPU: the tightest fit": (
        job().worker(2, cpu="1", memory="1Gi", guaranteed=True),
        {"a": {"cpu": "9"}, "b": {"cpu": "3"}, "c": {"cpu": "20"}},
        "c",
    ),
    "a pod that is not Guaranteed decides for all": (
        job().master(cpu="1", memory="1Gi").worker(2, cpu="1", memory="1Gi", guaranteed=True),
        {"a": {"cpu": "9"}, "b": {"cpu": "3"}, "c": {"cpu": "20"}},
        "b",
    ),
    "CPU: the fewest free GPUs before the least allocated": (
        job().worker(2, cpu="1"),
        {"a": {GPU: "6", "cpu": "9"}, "b": {GPU: "7", "cpu": "20"}, "c": {GPU: "7", "cpu": "28"}},
        "b",
    ),
    "Guaranteed CPU: the fewest free GPUs before the tightest fit": (
        job().worker(2, cpu="1", memory="1Gi", guaranteed=True),
        {"a": {GPU: "6", "cpu": "20"}, "b": {GPU: "7", "cpu": "3"}, "c": {GPU: "7", "cpu": "9"}},
        "c",
    ),
    "equal nodes: the first by name": (job().worker(2, cpu="1"), {}, "a"),
}


@pytest.mark.parametrize(("builder", "used", "want_node"), CHOICES.values(), ids=CHOICES.keys())
def test_which_node_a_gang_gets(
    builder: JobBuilder, used: Mapping[str, Mapping[str, str]], want_node: str
) -> None:
    capacity = ledger(*(node(name, gpus=8) for name in "cab"), used=used)
    assert set(placed(builder, capacity)) == {want_node}


def test_a_share_that_fragments_all_nodes_equally_goes_where_the_fewest_gpus_are_free() -> None:
    capacity = Ledger([sharing_node("a"), sharing_node("b")])
    capacity.claim("whole", Claim("b", {GPU: 1, "cpu": 40_000}))
    members = members_of(as_sharing(sharing("0.5").suspended().build(), None))
    assert nodes_of(place(members, capacity, limits())) == ["b"]


@given(st.lists(st.tuples(st.integers(2, 16), st.integers(0, 16)), min_size=2, max_size=6))
def test_F5_a_new_job_never_goes_to_the_fullest_node_if_it_fits_an_emptier_node(
    sizes: list[tuple[int, int]],
) -> None:
    """FlowCon's manager places by reported contention, kfext by requested CPU."""
    names = [f"n{number}" for number in range(len(sizes))]
    capacity = ledger(
        *(node(name, cpu=str(cpu)) for name, (cpu, _) in zip(names, sizes, strict=True)),
        # A pod without a request would count as 100m.
        used={
            name: {"cpu": str(used)} for name, (_, used) in zip(names, sizes, strict=True) if used
        },
    )
    builder = job().worker(1, cpu="1")
    utilisation = {
        name: (used + 1) / cpu
        for name, (cpu, used) in zip(names, sizes, strict=True)
        if used + 1 <= cpu
    }
    if utilisation:
        (chosen,) = placed(builder, capacity)
        assert utilisation[chosen] == min(utilisation.values())


def test_the_tightest_fit_leaves_the_smallest_fraction_of_the_gpus_free() -> None:
    capacity = ledger(
        node("four", gpus=4), node("eight", gpus=8), used={"four": {GPU: "1"}, "eight": {GPU: "3"}}
    )
    assert set(placed(job().worker(2, gpus=1), capacity)) == {"four"}


def test_jobs_without_requests_are_spread_evenly() -> None:
    capacity = ledger(*(node(name, cpu="4", memory="8Gi") for name in "abcde"))
    for number in range(10):
        for index, where in enumerate(placed(job().worker(3), capacity)):
            capacity.claim((number, index), Claim(where, {"pods": 1}))
    assert Counter(claim.node for claim in capacity.claims().values()) == dict.fromkeys("abcde", 6)


@given(
    used=st.lists(st.integers(0, 32), min_size=1, max_size=6),
    gpus=st.integers(0, 2),
    data=st.data(),
)
def test_each_node_has_its_own_rank_for_any_selection_of_nodes(
    used: list[int], gpus: int, data: st.DataObject
) -> None:
    names = [f"n{number}" for number in range(len(used))]
    capacity = ledger(
        *(node(name, gpus=8) for name in names),
        used={name: {"cpu": str(cpus)} for name, cpus in zip(names, used, strict=True)},
    )
    ranks = ranking(gang(job().worker(2, gpus=gpus).members()), capacity)
    rows = np.arange(len(used))
    some = np.array(data.draw(st.lists(st.sampled_from(rows.tolist()), min_size=1, unique=True)))
    assert len(set(ranks(rows).tolist())) == len(used)
    assert ranks(some).tolist() == ranks(rows)[some].tolist()


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


def fitted_weights() -> Weights:
    """The weights that fit the measured step times best, by least squares."""
    units = [Weights(*row) for row in np.eye(4)]
    measured = list(STEP_SECONDS)
    terms = [[*(cost(node_counts, unit) for unit in units), 1.0] for node_counts in measured]
    result, *_ = np.linalg.lstsq(np.array(terms), np.array(list(STEP_SECONDS.values())), rcond=None)
    return Weights(*result[:4].tolist())


ORDERS = {
    "four members": [(4,), (1, 1, 1, 1), (2, 2)],
    "six members": [(2, 2, 2), (3, 3)],
    "eight members": [(2, 2, 2, 2), (4, 4)],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_C2_weights_fitted_to_measured_steps_reproduce_the_measured_order(
    order: list[tuple[int, ...]],
) -> None:
    assert all(STEP_SECONDS[division] < STEP_SECONDS[other] for division, other in pairwise(order))
    costs = [cost(node_counts, fitted_weights()) for node_counts in order]
    assert costs == sorted(costs)
    assert len(set(costs)) == len(costs)


def test_C2_with_the_fitted_weights_the_solver_prefers_the_placement_measured_as_faster() -> None:
    capacity = ledger(*(node(name, gpus=2) for name in "abcd"))
    members = job().worker(4, gpus=1).members()
    for weights, nodes in ((fitted_weights(), 4), (DEFAULT, 2)):
        placement = place(members, capacity, limits(), weights=weights)
        assert not isinstance(placement, Verdict)
        assert len(set(placement.values())) == nodes


BETTER = {
    "one node before several": ((64,), (32, 32)),
    "balanced before lopsided": ((6, 6), (10, 2)),
    "balanced before fewest": ((4, 4, 4), (7, 5)),
    "balanced over twice the nodes": ((3, 3, 3, 3), (7, 5)),
    "the fewest nodes of two balanced divisions": ((2, 2), (1, 1, 1, 1)),
    "a small imbalance before more nodes": ((51, 49), (25, 25, 25, 25)),
    "node counts that differ by one pod count as balanced": ((7, 6), (5, 4, 4)),
}


@pytest.mark.parametrize(("better", "other"), BETTER.values(), ids=BETTER.keys())
def test_which_division_is_better(better: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert cost(better) < cost(other)


def test_each_doubling_of_the_members_behind_a_link_costs_the_weight_sharing() -> None:
    weights = Weights(crossing=0.0, doubling=0.0, lopsided=0.0, sharing=1.0)
    assert (cost((2, 2, 2, 2), weights), cost((4, 4), weights)) == (1.0, 2.0)


def test_nodes_without_a_member_do_not_count() -> None:
    assert cost((0, 4, 0)) == cost((4,)) == 0


capacities = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@given(capacity=capacities, load=st.floats(0.01, 1))
def test_even_node_counts_fit_and_no_other_division_has_a_smaller_largest_count(
    capacity: list[int], load: float
) -> None:
    ordered, count = np.array(sorted(capacity, reverse=True)), max(1, round(sum(capacity) * load))
    node_counts = even_node_counts(ordered, count)
    assert node_counts.sum() == count
    assert (node_counts <= ordered).all()
    assert (node_counts == sorted(node_counts, reverse=True)).all()
    below = int(node_counts.max()) - 1
    assert np.minimum(ordered, below).sum() < count
    # A node with the fewest members is full, or all node counts differ by one at most.
    smallest = ordered[node_counts == node_counts.min()]
    assert node_counts.max() - node_counts.min() <= 1 or (smallest == node_counts.min()).all()


@given(capacity=capacities, load=st.floats(0.01, 1))
def test_the_smallest_possible_largest_count_is_the_largest_of_the_even_counts(
    capacity: list[int], load: float
) -> None:
    ordered, count = np.array(sorted(capacity, reverse=True)), max(1, round(sum(capacity) * load))
    sizes = np.flatnonzero(ordered.cumsum() >= count) + 1
    want = [even_node_counts(ordered[:size], count).max() for size in sizes]
    assert fullest(ordered, count, sizes).tolist() == want


def test_the_reason_for_more_nodes_than_the_fewest() -> None:
    assert spread_reason([4, 4], [7, 1]) == ""
    assert spread_reason([1, 1, 1], [2, 1]) == (
        "3 nodes with 1 pod each instead of 2 with 1 to 2 pods each, "
        "because the fullest node sets the pace of the job"
    )
