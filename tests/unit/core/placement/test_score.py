"""Which of several nodes is best."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.placement.gang import gang, members_of
from kfext.core.placement.place import place
from kfext.core.placement.score import ranking
from tests.builders import JobBuilder, job, ledger, limits, node
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
    "equal nodes: the first by name": (job().worker(2, cpu="1"), {}, "a"),
}


@pytest.mark.parametrize(("made", "used", "want_node"), CHOICES.values(), ids=CHOICES.keys())
def test_which_node(
    made: JobBuilder, used: Mapping[str, Mapping[str, str]], want_node: str
) -> None:
    on = ledger(*(node(name, gpus=8) for name in "cab"), used=used)
    assert set(placed(made, on)) == {want_node}


def test_the_tightest_fit_is_by_what_would_be_left() -> None:
    on = ledger(
        node("four", gpus=4), node("eight", gpus=8), used={"four": {GPU: "1"}, "eight": {GPU: "3"}}
    )
    assert set(placed(job().worker(2, gpus=1), on)) == {"four"}


def test_jobs_without_requests_do_not_crowd_one_node() -> None:
    on = ledger(*(node(name, cpu="4", memory="8Gi") for name in "abcde"))
    for number in range(10):
        for index, where in enumerate(placed(job().worker(3), on)):
            on.claim((number, index), Claim(where, {"pods": 1}))
    assert Counter(claim.node for claim in on.claims().values()) == dict.fromkeys("abcde", 6)


def test_what_an_administrator_assumes_of_pods_without_requests_decides_between_nodes() -> None:
    on = ledger(
        node("little", cpu="4", memory="1Ti"),
        node("large", cpu="64", memory="1Ti"),
        used={"little": {"cpu": "1"}, "large": {"cpu": "20"}},
    )
    (member,) = members_of(job().worker(1).build())

    by_default = place([member], on, limits())
    with_much = place([member], on, limits(assumed={"cpu": 4000}))

    assert nodes_of(by_default) == ["little"]
    assert nodes_of(with_much) == ["large"]


@given(
    used=st.lists(st.integers(0, 32), min_size=1, max_size=6),
    gpus=st.integers(0, 2),
    data=st.data(),
)
def test_no_two_nodes_rank_alike_and_each_ranks_as_it_does_among_others(
    used: list[int], gpus: int, data: st.DataObject
) -> None:
    names = [f"n{number}" for number in range(len(used))]
    on = ledger(
        *(node(name, gpus=8) for name in names),
        used={name: {"cpu": str(cpus)} for name, cpus in zip(names, used, strict=True)},
    )
    ranks = ranking(gang(job().worker(2, gpus=gpus).members()), on, assumed={})
    rows = np.arange(len(used))
    some = np.array(data.draw(st.lists(st.sampled_from(rows.tolist()), min_size=1, unique=True)))
    assert len(set(ranks(rows).tolist())) == len(used)
    assert ranks(some).tolist() == ranks(rows)[some].tolist()
