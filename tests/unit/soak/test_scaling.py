"""What the soak's checker makes of jobs whose number of workers changes."""

from dataclasses import replace

import pytest

from e2e.soak.invariants import Checker, Limits
from e2e.soak.manifests import BY_HAND
from e2e.soak.scaling import MOST_CHANGES
from tests.unit.soak.raw import Raw, cluster, job, node, pod, view

LONG = 1000.0
RULES = {
    *("out_of_range", "resized_endlessly", "replaced", "servers_resized"),
    *("scaled_unasked", "wish_overruled", "grown_too_far", "work_lost"),
}
NODES = (node("n1"),)


def sized(
    workers: int,
    *,
    by_hand: int = 0,
    suspend: bool = False,
    elastic: str = "2-4",
    queue: str = "",
    autoscaled: bool = False,
    servers: Raw | None = None,
) -> Raw:
    """A job that has so many workers, by a person's hand if `by_hand` is not 0.

    `servers` is how many pods it has of other types.
    """
    made = job(
        size=workers,
        plan=["n1"] * workers,
        suspend=suspend,
        held=suspend,
        labels={"kueue.x-k8s.io/queue-name": queue} if queue else {},
        elastic=elastic,
    )
    made["metadata"]["annotations"] |= {BY_HAND: str(by_hand)} if by_hand else {}
    if autoscaled:
        made["spec"]["elasticPolicy"] = {"metrics": [{"type": "Resource"}]}
    specs = made["spec"]["pytorchReplicaSpecs"]
    specs |= {
        type_: {**specs["Worker"], "replicas": count} for type_, count in (servers or {}).items()
    }
    return made


def pods(*uids: str) -> tuple[Raw, ...]:
    """The workers of the job, by their uids."""
    made = [pod(index, node="n1") for index in range(len(uids))]
    for one, uid in zip(made, uids, strict=True):
        one["metadata"]["uid"] = uid
    return tuple(made)


def judged(*looks: tuple[float, Raw, tuple[Raw, ...]], lost: str = "") -> set[str]:
    """Look at the job with its pods, at times; return which of the rules of sizes are broken."""
    checker = Checker(Limits(bind=5, create=5))
    if lost:
        taken = {"type": "DisruptionTarget", "reason": lost}
        gone = pod(0, node="n1")
        checker.pod({**gone, "status": {"conditions": [taken]}})
    for at, one, members in looks:
        views = (view("job", "Placed", "n1"),)
        seen = cluster(at=at, nodes=NODES, jobs=(one,), pods=members, views=views)
        checker.look(replace(seen, saved_at=at))
    return {one.rule for one in checker.violations} & RULES


ABCD = pods("a", "b", "c", "d")
SHRUNK = ((0.0, sized(4), ABCD), (1.0, sized(2), ABCD))
SIZES = {
    "kfext takes workers that the job can do without": (SHRUNK, set()),
    "kfext takes more than that": (((0, sized(4), ()), (1, sized(1), ())), {"out_of_range"}),
    "kfext gives it more than it allows": (
        ((0, sized(4), ()), (1, sized(5), ())),
        {"out_of_range"},
    ),
    "a person takes more than it allows kfext to take": (
        ((0, sized(4), ()), (1, sized(1, by_hand=1), ())),
        set(),
    ),
    "kfext takes some of many workers that a person gave it": (
        ((0, sized(4), ()), (1, sized(9, by_hand=9), ()), (2, sized(6, by_hand=9), ())),
        set(),
    ),
    "a person has taken back what another gave it": (
        ((0, sized(4), ()), (1, sized(9, by_hand=9), ()), (2, sized(3, by_hand=3), ())),
        set(),
    ),
    "kfext gives it what a person took back": (
        (
            (0, sized(4), ()),
            (1, sized(9, by_hand=9), ()),
            (2, sized(3, by_hand=3), ()),
            (3, sized(6, by_hand=3), ()),
        ),
        {"out_of_range"},
    ),
    "kfext gives it back its own size, as nothing came of a person's edit": (
        (
            (0, sized(9, by_hand=9), ()),
            (1, sized(3, by_hand=9), ()),
            (2, sized(3, by_hand=3), ()),
            (3, sized(9, by_hand=3), ()),
        ),
        set(),
    ),
    "it has opted out, and was submitted with another size": (
        ((0, sized(9, elastic="off"), ()),),
        set(),
    ),
}


@pytest.mark.parametrize(("looks", "broken"), SIZES.values(), ids=SIZES)
def test_a_size_that_a_job_allows_or_a_person_wrote(
    looks: tuple[tuple[float, Raw, tuple[Raw, ...]], ...], broken: set[str]
) -> None:
    _, last, members = looks[-1]
    assert judged(*looks, (LONG, last, members)) == broken


STAYING = {
    "the workers that it keeps stay": (pods("a", "b"), sized(2), "", set()),
    "one of those is another pod now": (pods("a", "new"), sized(2), "", {"replaced"}),
    "one of those is gone": (pods("a"), sized(2), "", {"replaced"}),
    "its node's end took one": (pods("a"), sized(2), "DeletionByTaintManager", set()),
    "it was suspended then": (pods(), sized(2, suspend=True), "", set()),
    "a person took one more": (pods("a"), sized(1, by_hand=1), "", set()),
}


@pytest.mark.parametrize(("left", "last", "lost", "broken"), STAYING.values(), ids=STAYING)
def test_workers_that_a_change_of_size_leaves_alone(
    left: tuple[Raw, ...], last: Raw, lost: str, broken: set[str]
) -> None:
    looks = (*SHRUNK, (2.0, last, left), (LONG, last, left))
    assert judged(*looks, lost=lost) == broken


@pytest.mark.parametrize(
    ("seconds", "by_hand", "broken"),
    [(5.0, False, {"resized_endlessly"}), (30.0, False, set()), (5.0, True, set())],
    ids=["too often", "now and then", "by people"],
)
def test_a_size_that_changes_again_and_again(
    seconds: float, by_hand: bool, broken: set[str]
) -> None:
    sizes = [2 + number % 2 for number in range(2 * MOST_CHANGES)]
    looks = [
        (seconds * number, sized(size, by_hand=size if by_hand else 0), ())
        for number, size in enumerate(sizes)
    ]
    assert judged(*looks) == broken


def test_a_job_that_is_started_with_fewer_workers_was_not_scaled() -> None:
    checker = Checker(Limits(bind=5, create=5))
    for at, one in enumerate([sized(4, suspend=True), sized(2)]):
        checker.look(cluster(at=at, nodes=NODES, jobs=(one,)))
    assert not checker.memory.sizes.done


SAVED = {
    "a moment ago": (99.0, 1.0, set()),
    "before its work of a while": (70.0, 1.0, {"work_lost"}),
    "between two looks that were far apart": (70.0, 40.0, set()),
}


@pytest.mark.parametrize(("saved_at", "apart", "broken"), SAVED.values(), ids=SAVED)
def test_a_job_is_interrupted_after_a_checkpoint_only(
    saved_at: float, apart: float, broken: set[str]
) -> None:
    checker = Checker(Limits(bind=5, create=5))
    for at, workers in ((100.0 - apart, 4), (100.0, 2)):
        views = (view("job", "Placed", "n1"),)
        seen = cluster(at=at, nodes=NODES, jobs=(sized(workers),), pods=ABCD, views=views)
        checker.look(replace(seen, saved_at=saved_at))
    assert {one.rule for one in checker.violations} & RULES == broken
