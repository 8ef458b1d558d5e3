"""The rules of the soak's checker: a case that breaks each, and healthy states that break none."""

from collections import Counter
from typing import Any

import pytest

from e2e.soak import facts
from e2e.soak.invariants import Checker, Limits, Tally
from e2e.soak.memory import Memory
from tests.unit.soak.raw import Raw, cluster, job, namespace, node, pod, view
from tests.unit.soak.test_scaling import RULES as SIZE_RULES
from tests.unit.soak.test_stops import RULES as STOP_RULES

GATES = (facts.GATE,)
LONG = 1000.0
RESIZES = {"it is not granted": ("1", []), "it is granted anyway": ("65", ["overcommitted"])}
MANY_ATTEMPTS = Counter({"resize": 20, "submit": 20})


def gang(**options: Any) -> dict[str, tuple[Raw, ...]]:
    """Return the objects of a gang of two workers, placed and shown; `options` replace objects."""
    objects = {
        "nodes": (node("n1"), node("n2")),
        "jobs": (job(plan=["n1", "n1"]),),
        "pods": (pod(0, node="n1"), pod(1, node="n1")),
        "views": (view("job", "Placed", "n1"),),
    }
    return {**objects, **options}


def queued(**options: Any) -> dict[str, tuple[Raw, ...]]:
    """Return the objects of a job of two workers that waits for missing capacity."""
    full = pod(9, job="other", node="n1", gpus=8)
    objects = {
        "nodes": (node("n1"), node("n2", unschedulable=True)),
        "jobs": (job(held=True, suspend=True),),
        "pods": (full,),
        "views": (view("job", "Queued", reason="NoRoom"),),
    }
    return {**objects, **options}


HEALTHY = {
    "a gang on one node": gang(),
    "a job that waits because the nodes are full": queued(),
    "a job that waits while its namespace's quota denies it free capacity": queued(
        pods=(), quotas=({"metadata": {"namespace": "team"}},)
    ),
    "a job that its own deadline ended": gang(
        jobs=(job(conditions={"Failed": "it was active longer than specified deadline"}),),
        pods=(),
    ),
    "a job that a person suspended": gang(
        jobs=(job(suspend=True),), pods=(), views=(view("job", "Suspended", reason="ByUser"),)
    )
    | {"jobs": ({**job(suspend=True), "metadata": {
        **job()["metadata"], "annotations": {facts.BY_PERSON: facts.SUSPENDED}}},)},
    "pods that have ended take no capacity": gang(
        pods=(
            pod(0, node="n1"),
            pod(1, node="n1"),
            pod(9, job="past", node="n1", gpus=8, phase="Succeeded"),
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("objects", HEALTHY.values(), ids=HEALTHY.keys())
def test_a_healthy_state_may_last_forever(objects: dict[str, tuple[Raw, ...]]) -> None:
    checker = Checker(Limits(bind=5, create=5))
    for at in (0.0, LONG, 2 * LONG):
        assert checker.check(cluster(at=at, **objects)) == []


BROKEN = {
    "more GPUs are bound to a node than it has": (
        "overcommitted",
        gang(nodes=(node("n1", gpus=1),)),
    ),
    "a pod is pinned to a node that is full": (
        "overpromised",
        gang(pods=(pod(0, node="n1"), pod(1, pinned="n1"), pod(5, job="", node="n1", gpus=7))),
    ),
    "two plans promise the same capacity": (
        "double_booked",
        gang(
            jobs=(job(plan=["n1", "n1"]), job("late", plan=["n1"], size=1, gpus=7)),
            views=(view("job", "Placed", "n1"), view("late", "Planned")),
        ),
    ),
    "a job waits although it fits one node": ("idle_room", queued(pods=())),
    "a job waits for capacity that a forged plan claims for another operator's job": (
        "idle_room",
        queued(
            pods=(),
            jobs=(
                job(held=True, suspend=True),
                job("forged", plan=["n1"], size=1, gpus=8, policy={"managedBy": "another"}),
            ),
        ),
    ),
    "a pod runs on a different node than its pin": (
        "elsewhere",
        gang(
            pods=(pod(0, node="n1"), pod(1, node="n2", pinned="n1")),
            views=(view("job", "Placed", "n1", "n2"),),
        ),
    ),
    "the plan was changed under a pod that is bound": (
        "two_plans",
        gang(jobs=(job(plan=["n1", "n2"]),)),
    ),
    "a gang that must be on one node is on two": (
        "torn_apart",
        gang(
            jobs=(job(plan=["n1", "n2"], colocation="required"),),
            pods=(pod(0, node="n1"), pod(1, node="n2")),
            views=(view("job", "Placed", "n1", "n2"),),
        ),
    ),
    "half of a gang holds a node and the other half waits": (
        "half_held",
        gang(
            pods=(pod(0, node="n1"), pod(1, gates=GATES)),
            views=(view("job", "Gated", reason="NoRoom"),),
        ),
    ),
    "a pod is pinned to a removed node": (
        "unbound",
        gang(
            pods=(pod(0, pinned="n9"), pod(1, pinned="n9")),
            jobs=(job(plan=["n9", "n9"]),),
            views=(view("job", "Binding", reason="WaitingForBind"),),
        ),
    ),
    "a job is pinned in a namespace that is not managed": (
        "placed_unasked",
        gang(namespaces=(namespace(managed=False),)),
    ),
    "a job stays held in a namespace that is not managed": (
        "held_unasked",
        queued(namespaces=(namespace(managed=False),)),
    ),
    "the operator creates no more pods, and the capacity stays reserved": (
        "never_created",
        gang(pods=(pod(0, gates=GATES),), views=(view("job", "Planned", reason="WaitingForPods"),)),
    ),
    "pods are gated without a reason": (
        "gated_in_silence",
        gang(pods=(pod(0, gates=GATES), pod(1, gates=GATES)), views=()),
    ),
    "a pod of a deleted job is gated": (
        "gated_in_silence",
        gang(pods=(pod(0, job="gone", gates=GATES),), jobs=(), views=()),
    ),
    "a job is held without a reason": ("queued_in_silence", queued(views=())),
    "a job is shown as placed on a node where it is not": (
        "misreported",
        gang(views=(view("job", "Placed", "n2"),)),
    ),
    "a job failed for no reason of its own": (
        "failed",
        gang(jobs=(job(conditions={"Failed": "1 Worker replica(s) failed"}),), pods=()),
    ),
    "a job is suspended, and no client has done it": (
        "suspended_by_nobody",
        gang(jobs=(job(suspend=True),), pods=(), views=()),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "objects"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_is_found_once_it_lasts(rule: str, objects: dict[str, Any]) -> None:
    checker = Checker(Limits(bind=5, create=5))
    checker.check(cluster(at=0.0, **objects))
    checker.check(cluster(at=LONG, **objects))  # at the first check all pods count as new
    checker.check(cluster(at=2 * LONG, **objects))
    assert rule in {violation.rule for violation in checker.violations}
    assert len({(violation.rule, violation.key) for violation in checker.violations}) == len(
        checker.violations
    )


def test_every_rule_has_a_case() -> None:
    tested = {rule for rule, _ in BROKEN.values()} | {"survivors_alone", "restarted_endlessly"}
    tested |= SIZE_RULES | {"sized_in_silence"} | STOP_RULES
    assert tested == {rule.name for rule in Checker(Limits(bind=5, create=5)).rules}


def test_a_violation_that_ends_in_time_starts_a_new_count() -> None:
    checker, limits = Checker(Limits(bind=5, create=5)), Limits(bind=5, create=5)
    half = gang(pods=(pod(0, node="n1"), pod(1, gates=GATES)), views=(view("job", "Gated"),))
    for at in (0.0, limits.gang - 1):
        assert not checker.check(cluster(at=at, **half))
    checker.check(cluster(at=limits.gang - 0.5, **gang(pods=())))
    for at in (limits.gang, limits.gang + limits.bind):
        assert not checker.check(cluster(at=at, **half))


def test_a_gang_that_ran_whole_and_lost_a_member_may_wait_only_for_capacity() -> None:
    checker = Checker(Limits(bind=5, create=5))
    checker.check(cluster(at=0.0, **gang()))
    survivors = gang(
        pods=(pod(0, node="n1"), pod(1, gates=GATES)), views=(view("job", "Gated", "n1"),)
    )
    full = {**survivors, "nodes": (node("n1", gpus=1),)}
    for at in (0.0, LONG):
        assert not checker.check(cluster(at=at, **full))
    for at in (LONG, 2 * LONG):
        checker.check(cluster(at=at, **survivors))
    assert {violation.rule for violation in checker.violations} == {"survivors_alone"}


@pytest.mark.parametrize(("granted_cpu", "rules"), RESIZES.values(), ids=RESIZES.keys())
def test_an_in_place_resize_beyond_the_node_is_a_fault_only_once_it_is_granted(
    granted_cpu: str, rules: list[str]
) -> None:
    grown = pod(0, node="n1")
    grown["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "65"
    status = {"name": "pytorch", "resources": {"requests": {"cpu": granted_cpu}}}
    grown["status"]["containerStatuses"] = [status]
    result = Checker(Limits(bind=5, create=5)).check(cluster(at=0.0, **gang(pods=(grown,))))
    assert [violation.rule for violation in result] == rules


@pytest.mark.parametrize(
    ("done", "effects", "messages"),
    [
        pytest.param(MANY_ATTEMPTS, {}, 1, id="it was tried often"),
        pytest.param(MANY_ATTEMPTS, {"resize": 1}, 0, id="it took effect once"),
        pytest.param(Counter({"resize": 19}), {}, 0, id="it was tried a few times"),
    ],
)
def test_an_action_that_never_takes_effect_in_many_attempts_is_reported(
    done: Counter[str], effects: dict[str, int], messages: int
) -> None:
    assert len(Tally(done=done).in_vain(effects)) == messages


@pytest.mark.parametrize(
    ("submitted", "scaled", "messages"), [(400, 0, 1), (400, 1, 0), (50, 0, 0)]
)
def test_a_soak_of_many_jobs_in_which_none_is_scaled_is_reported(
    submitted: int, scaled: int, messages: int
) -> None:
    memory = Memory(create_timeout=5)
    memory.sizes.done += Counter(grown=scaled)
    assert len(Tally(done=Counter(submit=submitted)).unscaled(memory)) == messages
