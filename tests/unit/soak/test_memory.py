"""The memory of the soak's checker."""

import pytest

from e2e.soak import facts
from e2e.soak.gangs import MOST_STARTS
from e2e.soak.invariants import Checker, Limits
from tests.unit.soak.raw import Raw, cluster, job, namespace, node, pod, view

LIMITS = Limits(bind=5, create=5)
NODES = (node("n1"), node("n2"))
HALF = {
    "nodes": NODES,
    "jobs": (job(plan=["n1", "n1"]),),
    "pods": (pod(0, node="n1"), pod(1, gates=(facts.GATE,))),
}
REFUSED = (view("job", "Gated", reason=facts.WRITE_REFUSED),)
WAITS = (view("job", "Gated", reason="NoRoom"),)
REFUSING = (namespace(refuses="patches"),)


def rules(checker: Checker) -> set[str]:
    return {violation.rule for violation in checker.violations}


@pytest.mark.parametrize(("seconds", "found"), [(30.0, False), (6.0, True)])
def test_a_job_that_is_started_and_stopped_again_and_again(seconds: float, found: bool) -> None:
    checker = Checker(LIMITS)
    for number in range(2 * MOST_STARTS):
        for suspend in (True, False):
            jobs = (job(plan=["n1", "n1"], suspend=suspend, held=suspend),)
            checker.look(cluster(at=seconds * number, nodes=NODES, jobs=jobs, views=WAITS))
    assert ("restarted_endlessly" in rules(checker)) is found


OTHERS = {"that began later": (1, 100), "that was whole before": (0, 1)}


@pytest.mark.parametrize(("began", "size"), OTHERS.values(), ids=OTHERS.keys())
def test_a_gang_does_not_wait_for_pods_of_another(began: int, size: int) -> None:
    checker = Checker(LIMITS)
    for at in range(200):
        pods = (pod(at, job="other", node="n2", gpus=0),)
        others = (job("other", size=size),) if at >= began else ()
        stuck = (job(plan=["n1", "n1"]),) if at >= 1 - began else ()
        checker.look(cluster(at=at, nodes=NODES, jobs=(*stuck, *others), pods=pods))
    assert "never_created" in rules(checker)


def judged(*looks: tuple[float, tuple[Raw, ...], tuple[Raw, ...]]) -> set[str]:
    """Look at half a gang at times, in namespaces and with TrainingPlans; return broken rules."""
    checker = Checker(LIMITS)
    for at, namespaces, views in looks:
        checker.look(cluster(at=at, namespaces=namespaces, views=views, **HALF))
    return rules(checker)


MANAGED = (namespace(),)


def test_the_time_of_a_gang_begins_once_its_pods_are_not_refused() -> None:
    looks = ((0.0, REFUSING, WAITS), (100.0, REFUSING, WAITS), (101.0, MANAGED, WAITS))
    assert "half_held" not in judged(*looks, (101 + LIMITS.gang - 1, MANAGED, WAITS))
    assert "half_held" in judged(*looks, (101 + LIMITS.gang, MANAGED, WAITS))


def test_a_job_must_not_report_a_refusal_without_one() -> None:
    assert "half_held" in judged((0, MANAGED, REFUSED), (LIMITS.gang, MANAGED, REFUSED))


def test_a_job_waits_for_the_requests_of_its_last_pods() -> None:
    checker = Checker(LIMITS)
    made = (pod(0, gpus=6, gates=(facts.GATE,)), pod(1, gpus=6, gates=(facts.GATE,)))
    running, waiting = job(plan=["n1", "n1"]), job(held=True, suspend=True)
    views = (view("job", "Queued", reason="NoRoom"),)
    checker.look(cluster(at=0, nodes=NODES, jobs=(running,), pods=made, views=views))
    for at in (1, 1000):
        checker.look(cluster(at=at, nodes=NODES, jobs=(waiting,), views=views))
    assert "idle_room" not in rules(checker)
    for at in (2000, 3000):
        checker.look(cluster(at=at, nodes=(node("n3", gpus=12),), jobs=(waiting,), views=views))
    assert "idle_room" in rules(checker)
