"""Which of several nodes is best."""

from collections import Counter
from collections.abc import Mapping

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.placement.gang import members_of
from kfext.core.placement.place import place
from tests.builders import JobBuilder, job, ledger, node
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

    by_default = place([member], on, one_node=False)
    with_much = place([member], on, one_node=False, assumed={"cpu": 4000})

    assert nodes_of(by_default) == ["little"]
    assert nodes_of(with_much) == ["large"]
