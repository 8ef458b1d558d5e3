"""The soak's checker on jobs with a changing number of workers."""

from dataclasses import replace
from typing import Any

import pytest

from e2e.soak.invariants import Checker, Limits
from e2e.soak.manifests import BY_HAND, HEEDED_SECONDS
from e2e.soak.scaling import MOST_CHANGES
from tests.unit.soak.raw import Raw, cluster, job, namespace, node, pod, view

LONG = 1000.0
RULES = {
    *("out_of_range", "resized_endlessly", "replaced", "servers_resized"),
    *("scaled_unasked", "wish_overruled", "grown_too_far", "work_lost"),
}
NODES = (node("n1"),)
SAVED = {
    "a moment ago": (99.0, 1.0, set()),
    "before a while of work": (70.0, 1.0, {"work_lost"}),
    "between two looks that were far apart": (70.0, 40.0, set()),
}
LATER = HEEDED_SECONDS + 1
OUT: dict[str, dict[str, Any]] = {
    "it has opted out": {"elastic": "off"},
    "a HorizontalPodAutoscaler scales it": {"autoscaled": True},
}
OFF: dict[str, Any] = {"elastic": "off"}
EDITED: tuple[tuple[int, dict[str, Any]], ...] = ((4, {}), (2, {}), (3, {"by_hand": 3}))
EDITS = {
    "kfext changes nothing more": (EDITED, set()),
    "kfext changes it again": ((*EDITED, (4, {"by_hand": 3})), {"wish_overruled"}),
}
FAR: dict[str, Any] = {"elastic": "1-9"}
GROWTH = {
    "to twice its size": ((3, FAR), (6, FAR), set()),
    "beyond twice its size": ((3, FAR), (7, FAR), {"grown_too_far"}),
}
SERVERS = {
    "their number stays": ((1, False), set()),
    "one is removed": ((0, False), {"servers_resized"}),
}
SAID = {
    "the reason is shown": ({"type": "Scaled", "reason": "Shrunk", "message": "so it is"}, False),
    "no message is shown": ({"type": "Scaled", "reason": "Shrunk", "message": ""}, True),
}


def sized(
    workers: int,
    *,
    by_hand: int = 0,
    suspend: bool = False,
    elastic: str = "2-4",
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
        elastic=elastic,
    )
    made["metadata"]["annotations"] |= {BY_HAND: str(by_hand)} if by_hand else {}
    if autoscaled:
        made["spec"]["elasticPolicy"] = {"metrics": [{"type": "Resource"}], "maxReplicas": 4}
    specs = made["spec"]["pytorchReplicaSpecs"]
    specs |= {
        type_: {**specs["Worker"], "replicas": count} for type_, count in (servers or {}).items()
    }
    return made


def pods(*uids: str) -> tuple[Raw, ...]:
    """The workers of the job, by their uids."""
    made = [pod(index, node="n1") for index in range(len(uids))]
    for body, uid in zip(made, uids, strict=True):
        body["metadata"]["uid"] = uid
    return tuple(made)


def judged(*looks: tuple[float, Raw, tuple[Raw, ...]], lost: str = "") -> set[str]:
    """Look at the job with its pods, at times; return which of the rules of sizes are broken."""
    checker = Checker(Limits(bind=5, create=5))
    if lost:
        taken = {"type": "DisruptionTarget", "reason": lost}
        gone = pod(0, node="n1")
        checker.pod({**gone, "status": {"conditions": [taken]}})
    for at, body, members in looks:
        views = (view("job", "Placed", "n1"),)
        seen = cluster(at=at, nodes=NODES, jobs=(body,), pods=members, views=views)
        checker.look(replace(seen, saved_at=at))
    return {violation.rule for violation in checker.violations} & RULES


ABCD = pods("a", "b", "c", "d")
SHRUNK = ((0.0, sized(4), ABCD), (1.0, sized(2), ABCD))
SIZES = {
    "kfext takes workers that the job can do without": (SHRUNK, set()),
    "kfext takes too many workers": (((0, sized(4), ()), (1, sized(1), ())), {"out_of_range"}),
    "kfext gives it more than it allows": (
        ((0, sized(4), ()), (1, sized(5), ())),
        {"out_of_range"},
    ),
    "a person takes more than it allows kfext to take": (
        ((0, sized(4), ()), (1, sized(1, by_hand=1), ())),
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
    "one kept worker is another pod now": (pods("a", "new"), sized(2), "", {"replaced"}),
    "a kept worker was lost with its node": (pods("a"), sized(2), "DeletionByTaintManager", set()),
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


@pytest.mark.parametrize(("saved_at", "apart", "broken"), SAVED.values(), ids=SAVED)
def test_a_job_is_interrupted_after_a_checkpoint_only(
    saved_at: float, apart: float, broken: set[str]
) -> None:
    checker = Checker(Limits(bind=5, create=5))
    for at, workers in ((100.0 - apart, 4), (100.0, 2)):
        views = (view("job", "Placed", "n1"),)
        seen = cluster(at=at, nodes=NODES, jobs=(sized(workers),), pods=ABCD, views=views)
        checker.look(replace(seen, saved_at=saved_at))
    assert {violation.rule for violation in checker.violations} & RULES == broken


@pytest.mark.parametrize("out", OUT.values(), ids=OUT)
def test_a_size_that_no_user_requested(out: dict[str, Any]) -> None:
    looks = [(0.0, sized(4, **out), ()), (LATER, sized(3, **out), ())]
    assert judged(*looks) == {"scaled_unasked"}


def test_a_size_in_a_namespace_that_is_not_opted_in() -> None:
    checker, shut = Checker(Limits(bind=5, create=5)), (namespace(managed=False),)
    for at, workers in [(0.0, 4), (LATER, 3)]:
        checker.look(cluster(at=at, nodes=NODES, jobs=(sized(workers),), namespaces=shut))
    assert {violation.rule for violation in checker.violations} == {"scaled_unasked"}


def test_a_job_that_opts_out_regains_its_submitted_size() -> None:
    sizes: tuple[tuple[int, dict[str, Any]], ...] = ((4, {}), (2, {}), (2, OFF), (4, OFF))
    looks = [(number * LATER, sized(n, **more), ()) for number, (n, more) in enumerate(sizes)]
    assert judged(*looks) == set()


@pytest.mark.parametrize(("sizes", "broken"), EDITS.values(), ids=EDITS)
def test_an_edit_of_a_size_by_a_person(
    sizes: tuple[tuple[int, dict[str, Any]], ...], broken: set[str]
) -> None:
    looks = [(float(number), sized(n, **more), ()) for number, (n, more) in enumerate(sizes)]
    assert judged(*looks) == broken


@pytest.mark.parametrize(("before", "after", "broken"), GROWTH.values(), ids=GROWTH)
def test_the_growth_of_a_job(
    before: tuple[int, dict[str, Any]], after: tuple[int, dict[str, Any]], broken: set[str]
) -> None:
    both = {**before[1], **after[1]}
    looks = [(0.0, sized(before[0], **before[1]), ()), (1.0, sized(after[0], **both), ())]
    assert judged(*looks) == broken


@pytest.mark.parametrize("type_", ["PS", "Chief", "Master"])
@pytest.mark.parametrize(("what", "broken"), SERVERS.values(), ids=SERVERS)
def test_servers_of_a_job_that_runs(type_: str, what: tuple[int, bool], broken: set[str]) -> None:
    count, suspend = what
    first, last = (sized(3, elastic="1-9", servers={type_: number}) for number in (1, count))
    between = [(1.0, sized(3, suspend=True, elastic="1-9", servers={type_: 1}), ())]
    looks = [(0.0, first, ()), *(between if suspend else []), (2.0, last, ()), (LONG, last, ())]
    assert judged(*looks) == broken


def silent(first: Raw, last: Raw, *conditions: dict[str, str]) -> bool:
    """Say whether a job with these conditions for long is sized in silence."""
    checker, said = Checker(Limits(bind=5, create=5)), view("job", "Placed", "n1")
    said["status"]["conditions"] = list(conditions)
    for at, body in [(0.0, first), (1.0, last), (LONG, last)]:
        checker.look(cluster(at=at, nodes=NODES, jobs=(body,), views=(said,)))
    return any(violation.rule == "sized_in_silence" for violation in checker.violations)


@pytest.mark.parametrize(("condition", "wrong"), SAID.values(), ids=SAID)
def test_the_message_about_a_size_that_is_not_the_requested_size(
    condition: dict[str, str], *, wrong: bool
) -> None:
    assert silent(sized(4), sized(2), condition) is wrong


SILENCE = {
    "kfext has shrunk it": (sized(4), sized(2), True),
    "a person has shrunk it": (sized(4), sized(2, by_hand=2), False),
    "no webhook took its Master for a worker": (
        *[sized(3, by_hand=4, servers={"Master": 1})] * 2,
        False,
    ),
}


@pytest.mark.parametrize(("first", "last", "wrong"), SILENCE.values(), ids=SILENCE)
def test_silence_about_a_size(first: Raw, last: Raw, *, wrong: bool) -> None:
    assert silent(first, last) is wrong


def test_an_autoscaler_may_take_a_job_back_to_its_most_workers() -> None:
    wanted = sized(6, by_hand=6, autoscaled=True)
    capped, lower = sized(4, by_hand=6, autoscaled=True), sized(3, by_hand=6, autoscaled=True)
    looks = ((0.0, wanted, ()), (LATER, wanted, ()))
    assert judged(*looks, (LATER + 20, capped, ())) == set()
    assert "scaled_unasked" in judged(*looks, (LATER + 20, lower, ()))
