"""Each rule of the simulation is broken once, on purpose."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kfext.core.patches.pod import resize
from kfext.model.cpu_size import CpuSize
from kfext.model.pod import ReplicaKey
from kfext.sim.jobs import JobSpec, Saving
from tests.unit.sim.bed import MASTER, SERVERS, STATIC, TORCHRUN, Bed
from tests.unit.sim.rules import GIVEN_BACK, REST, Rules

SAVES = replace(SERVERS, bounds=(2, 6), workers=4, steps=4000)
FILLS = replace(SERVERS, workers=3, bounds=(1, 4))
HEAD = replace(MASTER, name="head", arrives=50.0, leaders=0)
BEHIND = replace(HEAD, name="behind", arrives=60.0, workers=1)


def scales(*sizes: int, every: float = 2 * REST) -> Callable[[Bed], None]:
    def by_hand(bed: Bed) -> None:
        for size in sizes:
            bed.scale(size)
            bed.at(bed.clock.now + every)

    return by_hand


def resizes(*, limit: int | None = None, request: int | None = None) -> Callable[[Bed], None]:
    def by_hand(bed: Bed) -> None:
        (live, *_) = bed.job().pods.values()
        patch = resize(live.pod, CpuSize(limit, request), container=bed.job().job.kind.container)
        bed.api.resize_pod(live.pod, patch)
        bed.at(bed.clock.now + 2 * GIVEN_BACK)

    return by_hand


def loses(type_: str) -> Callable[[Bed], None]:
    return lambda bed: bed.kubelets.delete(bed.job().pods[ReplicaKey(type_, 0)])


@pytest.mark.parametrize(
    ("spec", "by_hand", "expected"),
    [
        pytest.param(SAVES, scales(5), None, id="a change within the bounds breaks no rule"),
        pytest.param(SAVES, scales(1), "has 1 workers beyond (2, 6)", id="below the minimum"),
        pytest.param(SAVES, scales(7), "has 7 workers beyond (2, 6)", id="above the maximum"),
        pytest.param(
            replace(SAVES, bounds=(1, 9), workers=2),
            scales(5),
            "grew to 5, and 2 was the largest seen",
            id="above twice the largest",
        ),
        pytest.param(
            SAVES, scales(3, 5, every=30.0), "went from 3 to 5 30 s after a change", id="no pause"
        ),
        pytest.param(SAVES, scales(5, 4, every=30.0), None, id="a revert needs no pause"),
        pytest.param(
            replace(SAVES, steps=8000),
            scales(*[3, 4] * 15, every=61.0),
            "changed its size 30 times",
            id="it changes too often",
        ),
        pytest.param(
            SAVES,
            scales(*[3, 4] * 3, every=200.0),
            "turned from growing to shrinking or back 5 times",
            id="it swings",
        ),
        pytest.param(MASTER, scales(1), "is not elastic and has 1 workers", id="rigid"),
        pytest.param(SERVERS, loses("ps"), "lost its ps while it ran", id="a server is taken"),
        pytest.param(
            MASTER, loses("master"), "lost its master while it ran", id="a master is taken"
        ),
        pytest.param(STATIC, loses("worker"), "failed", id="a job fails"),
        pytest.param(
            MASTER,
            resizes(limit=2000),
            "has a limit of 2000m in place of 1000m",
            id="a limit moves",
        ),
        pytest.param(
            replace(MASTER, cpu=500),
            resizes(request=600),
            "requests 600m, and nothing may be resized",
            id="a request stays raised",
        ),
        pytest.param(
            replace(MASTER, cpu=500, resize="cpu"),
            resizes(request=600),
            None,
            id="a request may move while its job lets it",
        ),
        pytest.param(TORCHRUN, scales(1), "before any checkpoint", id="all work is lost"),
        pytest.param(
            replace(TORCHRUN, saving=Saving.PERIODIC), scales(3), None, id="saved work is not lost"
        ),
    ],
)
def test_a_rule_of_one_job(
    spec: JobSpec, by_hand: Callable[[Bed], None], expected: str | None
) -> None:
    bed = Bed(spec, a=16000)
    rules = Rules(bed)
    by_hand(bed.at(100))
    bed.run()
    broken = rules.ended()
    if expected is None:
        assert broken == []
    else:
        assert any(expected in sentence for sentence in broken), broken


def test_a_job_that_never_ends_is_reported() -> None:
    bed = Bed(TORCHRUN)
    rules = Rules(bed)
    bed.at(100)
    assert [sentence for sentence in rules.ended() if "never ended" in sentence]


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        pytest.param(1, [], id="the head of the queue gets the freed capacity"),
        pytest.param(
            2,
            ["seed 0, 148 s: behind started at 103 s in the capacity that was freed for head"],
            id="a job behind it does not get that capacity, however well it fits",
        ),
    ],
)
def test_capacity_is_freed_for_the_head_of_the_queue(needs: int, expected: list[str]) -> None:
    bed = Bed(FILLS, replace(HEAD, workers=needs), BEHIND, a=4000)
    rules = Rules(bed)
    bed.at(100).scale(2)
    bed.at(200)
    assert rules.broken == expected


@pytest.mark.parametrize(
    ("giver", "waits", "expected"),
    [
        pytest.param(FILLS, HEAD, [], id="for a job that has waited"),
        pytest.param(
            replace(FILLS, priority="urgent"),
            replace(HEAD, priority="urgent"),
            [],
            id="for a job of its priority",
        ),
        pytest.param(
            FILLS, replace(HEAD, priority="urgent"), [], id="for a job of a higher priority"
        ),
        pytest.param(
            replace(FILLS, priority="urgent"),
            HEAD,
            ["seed 0, 100 s: train gave workers for a job of a lower priority"],
            id="for a job of a lower priority",
        ),
        pytest.param(
            FILLS,
            replace(HEAD, arrives=96.0),
            ["seed 0, 100 s: train gave workers, and no job had waited for 5 s"],
            id="for a job that came a moment ago",
        ),
    ],
)
def test_when_a_job_gives_workers(giver: JobSpec, waits: JobSpec, expected: list[str]) -> None:
    bed = Bed(giver, replace(waits, workers=1), a=4000)
    rules = Rules(bed)
    bed.at(100).scale(2)
    bed.at(200)
    assert rules.broken == expected


EARLY = "train grew without 10 s in which nothing started or changed"


@pytest.mark.parametrize(
    ("grows", "second", "expected"),
    [
        pytest.param(SERVERS, 100, [], id="once nothing has changed for a while"),
        pytest.param(SERVERS, 185, [EARLY], id="soon after another started"),
        pytest.param(TORCHRUN, 185, [], id="soon after another started, while it saved"),
        pytest.param(
            replace(SERVERS, cpu=2000),
            100,
            ["train grew beyond what it asked for, with 8000m of 8000m requested"],
            id="to the last core",
        ),
        pytest.param(replace(SERVERS, cpu=1900), 100, [], id="to all cores but a few percent"),
    ],
)
def test_when_a_job_grows(grows: JobSpec, second: float, expected: list[str]) -> None:
    later = replace(HEAD, arrives=180.0, workers=1)
    bed = Bed(replace(grows, steps=9000, saving=Saving.PERIODIC, every=10), later, a=8000)
    rules = Rules(bed)
    bed.at(second).scale(3)
    bed.at(second + 10)
    assert [sentence.partition(": ")[2] for sentence in rules.broken] == expected
