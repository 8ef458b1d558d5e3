"""The rules that depend on the memory of the soak's checker."""

import pytest

from e2e.soak import facts
from e2e.soak.gangs import MAX_STARTS
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


@pytest.mark.parametrize(("seconds", "broken"), [(30.0, False), (6.0, True)])
def test_a_job_may_be_started_and_stopped_often_but_not_within_seconds(
    seconds: float, broken: bool
) -> None:
    checker = Checker(LIMITS)
    for number in range(2 * MAX_STARTS):
        for suspend in (True, False):
            jobs = (job(plan=["n1", "n1"], suspend=suspend, held=suspend),)
            checker.check(cluster(at=seconds * number, nodes=NODES, jobs=jobs, views=WAITS))
    assert ("restarted_endlessly" in rules(checker)) is broken


OTHERS = {"of a gang that began later": (1, 100), "of a gang that was whole before": (0, 1)}


@pytest.mark.parametrize(("began", "size"), OTHERS.values(), ids=OTHERS.keys())
def test_a_gang_need_not_wait_for_pods(began: int, size: int) -> None:
    checker = Checker(LIMITS)
    for at in range(200):
        pods = (pod(at, job="other", node="n2", gpus=0),)
        others = (job("other", size=size),) if at >= began else ()
        stuck = (job(plan=["n1", "n1"]),) if at >= 1 - began else ()
        checker.check(cluster(at=at, nodes=NODES, jobs=(*stuck, *others), pods=pods))
    assert "never_created" in rules(checker)


def rules_broken_by(*looks: tuple[float, tuple[Raw, ...], tuple[Raw, ...]]) -> set[str]:
    """Check half a gang at times, with namespaces and TrainingPlans; return the broken rules."""
    checker = Checker(LIMITS)
    for at, namespaces, views in looks:
        checker.check(cluster(at=at, namespaces=namespaces, views=views, **HALF))
    return rules(checker)


MANAGED = (namespace(),)


def test_the_time_limit_of_a_gang_begins_once_writes_are_no_longer_refused() -> None:
    looks = ((0.0, REFUSING, WAITS), (100.0, REFUSING, WAITS), (101.0, MANAGED, WAITS))
    assert "half_held" not in rules_broken_by(*looks, (101 + LIMITS.gang - 1, MANAGED, WAITS))
    assert "half_held" in rules_broken_by(*looks, (101 + LIMITS.gang, MANAGED, WAITS))


def test_a_reported_refusal_counts_only_if_writes_were_refused() -> None:
    assert "half_held" in rules_broken_by((0, MANAGED, REFUSED), (LIMITS.gang, MANAGED, REFUSED))


def test_a_waiting_job_needs_the_requests_that_its_last_pods_had() -> None:
    checker = Checker(LIMITS)
    pods = (pod(0, gpus=6, gates=(facts.GATE,)), pod(1, gpus=6, gates=(facts.GATE,)))
    running, waiting = job(plan=["n1", "n1"]), job(held=True, suspend=True)
    views = (view("job", "Queued", reason="NoRoom"),)
    checker.check(cluster(at=0, nodes=NODES, jobs=(running,), pods=pods, views=views))
    for at in (1, 1000):
        checker.check(cluster(at=at, nodes=NODES, jobs=(waiting,), views=views))
    assert "idle_room" not in rules(checker)
    for at in (2000, 3000):
        checker.check(cluster(at=at, nodes=(node("n3", gpus=12),), jobs=(waiting,), views=views))
    assert "idle_room" in rules(checker)
