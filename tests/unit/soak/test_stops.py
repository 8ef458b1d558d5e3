"""The rules of the soak's checker on stopped jobs, drained nodes, and placeholders."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from e2e.soak import facts
from e2e.soak.capacity import Reserved, unbalanced
from e2e.soak.invariants import Checker, Limits, Tally
from e2e.soak.manifests import HEEDED_SECONDS
from e2e.soak.memory import Memory
from e2e.soak.stops import HOLD_SECONDS, MAX_PLACEHOLDERS, unused
from tests.unit.soak.raw import Raw, cluster, job, node, pod, view

LIMITS = Limits(bind=5, create=5)
LATER = HEEDED_SECONDS + 1
LONG = 1000.0
RULES = {
    *("stopped_unasked", "stopped_without_cause", "stopped_in_vain", "broken_for_a_gang"),
    *("planned_onto_drained", "too_many_placeholders", "asked_for_nobody"),
}
BOTH = (pod(0, node="n1"), pod(1, node="n1"))
ELSEWHERE = pod(7, job="", node="n2")
"""A pod that uses the second node, so that it is not free for waiting jobs."""
ROOM = (node("n1", gpus=2), node("n2", gpus=1))


def drained(name: str = "n1", value: str = "") -> Raw:
    taint = {"key": facts.DRAIN, "value": value, "effect": "PreferNoSchedule"}
    return node(name, gpus=2, unschedulable=True, taints=[taint])


def of_class(manifest: Raw, class_name: str) -> Raw:
    worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["template"]["spec"]["priorityClassName"] = class_name
    return manifest


def running(**annotations: Any) -> Raw:
    return job(plan=["n1", "n1"], **annotations)


def stopped(*, for_job: str = "", **annotations: Any) -> Raw:
    """Return the job after a stop. `for_job`: the job to start on its node; empty means none."""
    stop = {"for": for_job, "nodes": ["n1"], "at": 1} if for_job else {"at": 1}
    return job(held=True, suspend=True, state=json.dumps({"stop": stop}), **annotations)


def waiting(class_name: str = "soak-urgent", **more: Any) -> Raw:
    return of_class(job("first", held=True, suspend=True, **more), class_name)


def violated(
    *looks: tuple[float, dict[str, Any]], preempted: tuple[str, str] | None = None
) -> set[str]:
    """Check clusters at times; return the broken rules of `RULES`."""
    checker = Checker(LIMITS)
    for at, objects in looks:
        state = cluster(at=at, **{"nodes": ROOM, **objects})
        checker.check(replace(state, preempted=(preempted,) if preempted else ()))
    return {violation.rule for violation in checker.violations} & RULES


def stop(before: Raw, after: Raw, *others: Raw, nodes: tuple[Raw, ...] = ROOM) -> set[str]:
    """Return the rules that are broken by a stop of a job that has run for a while."""
    ran = {"jobs": (before, *others), "pods": BOTH, "nodes": nodes}
    ends = {"jobs": (after, *others), "pods": (), "nodes": nodes}
    return violated((0.0, ran), (LATER, ran), (LATER + 1, ends))


IN = {"preempt": "checkpoint"}
FORCED = (drained(value=facts.BY_FORCE), node("n2", gpus=1))
STOPS: dict[str, tuple[set[str], set[str]]] = {
    "for a job of higher priority, and it opted in": (
        stop(running(**IN), stopped(for_job="first", **IN), waiting()),
        set(),
    ),
    "for a job of higher priority, and it did not opt in": (
        stop(running(), stopped(for_job="first"), waiting()),
        {"stopped_unasked"},
    ),
    "for a job of equal priority": (
        stop(
            of_class(running(**IN), "soak-high"),
            of_class(stopped(for_job="first", **IN), "soak-high"),
            waiting("soak-high"),
        ),
        {"stopped_without_cause"},
    ),
    "for no job": (stop(running(**IN), stopped(**IN)), {"stopped_without_cause"}),
    "off a drained node": (
        stop(running(**IN), stopped(**IN), nodes=(drained(), node("n2"))),
        set(),
    ),
    "off a drained node, and it did not opt in": (
        stop(running(preempt="off"), stopped(preempt="off"), nodes=(drained(), node("n2"))),
        {"stopped_unasked"},
    ),
    "off a node that is drained by force": (stop(running(), stopped(), nodes=FORCED), set()),
    "for another, and it did not opt in, on a node that is drained by force": (
        stop(running(), stopped(for_job="first"), waiting(), nodes=FORCED),
        {"stopped_unasked"},
    ),
    "by a person": (
        stop(
            running(),
            {**(manifest := stopped()), "metadata": {**manifest["metadata"], "annotations": {
                facts.HELD: "true", facts.BY_PERSON: facts.SUSPENDED}}},
        ),
        set(),
    ),
    "to restart with fewer workers": (
        stop(running(elastic="1-2"), job(size=1, held=True, suspend=True, elastic="1-2")),
        set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("broken", "rules"), STOPS.values(), ids=STOPS)
def test_which_stops_of_a_running_job_are_allowed(broken: set[str], rules: set[str]) -> None:
    assert broken == rules


def test_a_gang_that_had_lost_a_member_was_not_stopped() -> None:
    half = {"jobs": (running(),), "pods": BOTH[:1]}
    assert violated((0.0, half), (LATER, half), (LATER + 1, {"jobs": (stopped(),)})) == set()


def test_a_gang_that_became_whole_just_as_kfext_gave_up_was_not_stopped() -> None:
    half = {"jobs": (running(),), "pods": BOTH[:1]}
    whole = {"jobs": (running(),), "pods": BOTH}
    given_up = {"jobs": (stopped(),)}
    assert (
        violated((0.0, half), (LATER, whole), (2 * LATER - 2, whole), (2 * LATER, given_up))
        == set()
    )


@pytest.mark.parametrize(
    "nodes",
    [(node("n2"),), (node("n1", taints=[{"key": "out", "effect": "NoExecute"}]), node("n2"))],
    ids=["its node is gone", "its node has a taint"],
)
def test_a_gang_that_lost_its_pods_with_their_node_was_not_stopped(nodes: tuple[Raw, ...]) -> None:
    ran = {"jobs": (running(),), "pods": BOTH}
    ends = {"jobs": (stopped(),), "nodes": nodes}
    assert violated((0.0, ran), (LATER, ran), (LATER + 1, ends)) == set()


TIME_OVER = HOLD_SECONDS + LIMITS.slack + LATER + 2
AFTERWARDS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "it does not start": ({}, {"stopped_in_vain"}),
    "it starts": (
        {"jobs": (stopped(for_job="first", **IN), job("first", plan=["n1", "n1"]))},
        set(),
    ),
    "it is deleted": ({"jobs": (stopped(for_job="first", **IN),)}, set()),
    "its user wants a different size": (
        {"jobs": (stopped(for_job="first", **IN), waiting(size=3))},
        set(),
    ),
    "the stopped job continues": ({"jobs": (running(**IN), waiting())}, set()),
    "the node is cordoned": ({"nodes": (node("n1", unschedulable=True),)}, set()),
    "a pod of no gang comes to the node": ({"pods": (pod(9, job="", node="n1"),)}, set()),
}


@pytest.mark.parametrize(("changes", "rules"), AFTERWARDS.values(), ids=AFTERWARDS)
def test_a_job_that_others_stop_for_must_start_unless_things_change(
    changes: dict[str, Any], rules: set[str]
) -> None:
    ran = {"jobs": (running(**IN), waiting()), "pods": BOTH}
    ends = {"jobs": (stopped(for_job="first", **IN), waiting()), "pods": ()}
    looks: list[tuple[float, dict[str, Any]]] = [
        (0.0, ran),
        (LATER, ran),
        (LATER + 1, ends),
        (LATER + 2, {**ends, **changes}),
    ]
    assert violated(*looks, (TIME_OVER, {**ends, **changes})) == rules


PREEMPTED = {
    "for a pod of another gang": ("other-worker-0", {"broken_for_a_gang"}),
    "for a pod of no gang": ("urgent", set()),
}


@pytest.mark.parametrize(("by", "rules"), PREEMPTED.values(), ids=PREEMPTED)
def test_kube_scheduler_must_not_preempt_a_gang_for_a_gang(by: str, rules: set[str]) -> None:
    other = job("other", size=1, plan=["n2"])
    gangs = {"jobs": (running(), other), "pods": (*BOTH, pod(0, job="other", pinned="n2"))}
    lost = {**gangs, "pods": (BOTH[0], pod(0, job="other", node="n2"))}
    assert violated((0.0, gangs), (1.0, lost), preempted=("job-worker-1", by)) == rules


PLANS = {
    "after the node was drained": (BOTH, {"planned_onto_drained"}),
    "where a pod is already": ((BOTH[0], pod(1, node="n2")), set()),
}


@pytest.mark.parametrize(("pods", "rules"), PLANS.values(), ids=PLANS)
def test_no_new_pod_is_planned_onto_a_drained_node(pods: tuple[Raw, ...], rules: set[str]) -> None:
    nodes = (node("n1"), drained("n2"))
    before = {"jobs": (job(plan=["n1"], size=1),), "pods": BOTH, "nodes": nodes}
    after = {"jobs": (job(plan=["n1", "n2"]),), "pods": pods, "nodes": nodes}
    assert violated((0.0, before), (LATER, after), (LATER + 1, after)) == rules
    assert violated((0.0, before), (1.0, after), (LATER, after)) == set()
    healed = {**after, "nodes": ROOM}
    assert violated((0.0, before), (LATER, after), (LATER + 1, healed)) == set()


def test_the_plan_of_a_job_that_a_person_suspends_and_resumes_is_not_new() -> None:
    nodes, plan = (node("n1"), drained("n2")), ["n1", "n2"]
    ran = {"jobs": (job(plan=plan),), "pods": BOTH, "nodes": nodes}
    suspended = {"jobs": (job(plan=plan, suspend=True),), "pods": (), "nodes": nodes}
    resumed = {**ran, "pods": ()}
    looks = (0.0, ran), (LATER, suspended), (LATER + 1, resumed), (LATER + 2, resumed)
    assert violated(*looks) == set()


def placeholder(number: int = 0, job_uid: str = "job", node: str = "") -> Raw:
    manifest = pod(number, job="", namespace=facts.NEW_NODES, node=node)
    manifest["metadata"]["labels"] = {facts.PLACEHOLDER_OF: job_uid}
    manifest["metadata"]["uid"] = manifest["metadata"]["name"] = f"placeholder-{number}"
    return manifest


def asking(since: float = 1.0) -> Raw:
    return job(held=True, suspend=True, state=json.dumps({"ask": {"number": 1, "since": since}}))


ASKS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "the job waits": ({"jobs": (asking(),), "pods": (placeholder(),)}, set()),
    "the job is gone": ({"pods": (placeholder(),)}, {"asked_for_nobody"}),
    "a person suspended the job": (
        {"jobs": (job(suspend=True, state="{}"),), "pods": (placeholder(),)},
        {"asked_for_nobody"},
    ),
    "there are too many": (
        {
            "jobs": (asking(),),
            "pods": tuple(placeholder(number) for number in range(MAX_PLACEHOLDERS + 1)),
        },
        {"too_many_placeholders"},
    ),
}


@pytest.mark.parametrize(("objects", "rules"), ASKS.values(), ids=ASKS)
def test_placeholders_exist_only_for_waiting_jobs(objects: dict[str, Any], rules: set[str]) -> None:
    assert violated((0.0, objects), (LONG, objects)) == rules


NEW = "2026-01-01T00:00:10Z"
NEW_NODES = {
    "that came after it asked": (NEW, 1767225605.0, False),
    "that was there before": (NEW, 1767225620.0, True),
}


@pytest.mark.parametrize(("created", "since", "idle"), NEW_NODES.values(), ids=NEW_NODES)
def test_a_job_that_asks_for_nodes_may_leave_only_a_new_node_idle(
    created: str, since: float, *, idle: bool
) -> None:
    checker, free_node = Checker(LIMITS), node("n1")
    free_node["metadata"]["creationTimestamp"] = created
    held = placeholder(1, node="n1")
    for at in (0.0, LONG):
        views = (view("job", "Queued", reason="WaitingForNodes"),)
        checker.check(
            cluster(at=at, nodes=(free_node,), jobs=(asking(since),), pods=(held,), views=views)
        )
    assert ("idle_room" in {violation.rule for violation in checker.violations}) is idle


def test_capacity_for_a_job_that_others_are_stopped_for_is_not_idle() -> None:
    checker = Checker(LIMITS)
    views = (view("job", "Queued", reason="NoRoom"), view("first", "Queued", reason="Preempting"))
    for at in (0.0, LONG):
        jobs = (job(held=True, suspend=True), waiting())
        checker.check(cluster(at=at, nodes=(node("n1", gpus=3),), jobs=jobs, views=views))
    assert not checker.violations


def test_an_added_node_without_pods_is_reported() -> None:
    added = node("n1")
    added["metadata"]["labels"] |= {facts.POOL: "soak"}
    assert len(unused(cluster(nodes=(added, node("n2"))))) == 1
    assert unused(cluster(nodes=(added,), pods=BOTH)) == []


@pytest.mark.parametrize("claims", [2, 3])
def test_a_placeholder_may_have_a_claim(claims: int) -> None:
    whole = cluster(jobs=(running(),), pods=(*BOTH, placeholder(5, node="n1")))
    assert unbalanced(whole, Reserved(claims, 0)) == []


DONE = Counter(submit=400, drain_node=20)
TALLIES = {
    "nothing happened": (Counter[str](), 0, 3),
    "all of it happened": (Counter(preempted=1, drained=1), 1, 0),
    "no job left a node": (Counter(preempted=1), 1, 1),
}


@pytest.mark.parametrize(("done", "added", "wrong"), TALLIES.values(), ids=TALLIES)
def test_a_soak_in_which_no_job_is_stopped_and_no_node_added_is_reported(
    done: Counter[str], added: int, wrong: int
) -> None:
    memory, tally = Memory(create_timeout=5), Tally(done=DONE, most=Counter({"nodes added": added}))
    memory.stops.done += done
    assert len(list(tally.unstopped(memory, autoscaler=True))) == wrong
