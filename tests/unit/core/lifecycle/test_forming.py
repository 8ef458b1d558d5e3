"""A gang from its start until all its pods are bound: it is bound as a whole, or holds nothing."""

from dataclasses import replace

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import pod_key
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import QueueContext
from kfext.core.lifecycle.steps import (
    DeleteUnbound,
    Pin,
    Release,
    SaveState,
    Suspend,
    Unsuspend,
    Wait,
)
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.names import (
    BINDING,
    GATED,
    PLANNED,
    REASON_BIND_TIMEOUT,
    REASON_NO_ROOM,
    REASON_WAITING_FOR_BIND,
)
from tests.builders import ledger, node, situation_of
from tests.unit.core.lifecycle.cases import (
    NOW,
    Case,
    begun,
    check_case,
    phase,
    plan,
    stopped,
    suspended_since,
    three,
    worker,
    workers,
)

FORMING = JobState(queued_since=NOW - 20)
WHOLE = JobState()
REPORT = "0/2 nodes are available: 1 Insufficient cpu"
REFUSED = [worker(0, bound="a"), worker(1, bound="a"), worker(2, pinned="a", unschedulable=REPORT)]


def nodes(pods: list[Pod], **used: str) -> Ledger:
    """Nodes a and b of four CPUs with these pods; other pods use `used` CPUs of each node."""
    amounts = {name: {"cpu": cpu} for name, cpu in used.items()}
    capacity = ledger(node("a", cpu="4"), node("b", cpu="4"), used=amounts)
    for pod in pods:
        if pod.home:
            capacity.claim(pod_key(pod.uid), Claim(pod.home, pod.requests, job="uid-1"))
    return capacity


def unplaced(want: type, state: JobState = FORMING, *, a: str, b: str, **more: object) -> Case:
    """Two members run on node a, and the third is refused; `a`, `b`: CPUs of other pods there."""
    kind = str(more.pop("kind", "PyTorchJob"))
    check = more.pop("check", bool)
    capacity = nodes(REFUSED, a=a, b=b)
    job = three(kind).resumed()
    if more.pop("kueue", False):
        job = job.queued_by_kueue()
    return Case(want, job, REFUSED, plan("a", "a", "a"), state, capacity, check, more)  # type: ignore[arg-type]


def gated_rest(want: type, state: JobState, **more: object) -> Case:
    """One member runs, two wait at the gate, and other pods have the rest of both nodes."""
    members = [worker(0, bound="a"), *workers(gated=True)[1:]]
    capacity, check = nodes(members, a="3", b="4"), more.pop("check", bool)
    job = three().resumed()
    return Case(want, job, members, plan("a", "a", "a"), state, capacity, check, more)  # type: ignore[arg-type]


LOSES_CAPACITY: dict[str, Case] = {
    "no node has capacity for the refused member: all free their nodes, with a back-off": (
        unplaced(
            Suspend,
            a="2",
            b="4",
            check=lambda step: (
                stopped(REASON_NO_ROOM, 1)(step)
                and step.state.retry_at == NOW + 15
                and step.state.queued_since == NOW - 20
                and step.state.message.startswith("2 of 3 pods were bound, and the others have no")
            ),
        )
    ),
    "the leader and a member run: the gang keeps its place in the queue": replace(
        unplaced(Suspend, a="2", b="4", check=lambda step: step.state.queued_since == NOW - 20),
        builder=three().resumed().condition("Running"),
    ),
    "another node has capacity: the refused member goes there at once": unplaced(
        DeleteUnbound,
        a="2",
        b="0",
        check=lambda step: (
            [pod.uid for pod in step.pods] == [REFUSED[2].uid]
            and step.state.strikes == 1
            and "the capacity on a; kube-scheduler reports: 0/2 nodes" in step.state.message
        ),
    ),
    "only one node is allowed, and it has lost capacity: all free it": unplaced(
        Suspend, a="2", b="0", colocation="required", check=stopped(REASON_NO_ROOM, 1)
    ),
    "the ledger shows its capacity, so kube-scheduler alone knows why: it waits": unplaced(
        Wait, a="1", b="4", check=phase(BINDING)
    ),
    "the gang was whole before: the members that train keep their nodes": unplaced(
        Wait, WHOLE, a="2", b="4", check=phase(BINDING)
    ),
    "Kueue started it: only Kueue suspends it": unplaced(
        Wait, a="2", b="4", kueue=True, check=phase(BINDING)
    ),
    "the rest waits at the gate and finds no capacity: all free their nodes at once": (
        gated_rest(Suspend, FORMING, waited=1.0, check=stopped(REASON_NO_ROOM, 1))
    ),
    "the rest of a gang that was whole waits at the gate, and the others train": gated_rest(
        Wait, WHOLE, waited=1.0, check=phase(GATED, REASON_NO_ROOM)
    ),
    "the third time, preferred: it is not released while members are bound": gated_rest(
        Suspend,
        replace(FORMING, strikes=2, retry_at=NOW),
        waited=90.0,
        check=stopped(REASON_NO_ROOM, 3),
    ),
    "not bound for the third time, for no reason that the ledger shows: not released in part": (
        unplaced(
            Suspend,
            replace(FORMING, strikes=2),
            a="1",
            b="4",
            waited=60.0,
            check=lambda step: stopped(REASON_BIND_TIMEOUT, 3)(step) and step.state.retry_at == 0.0,
        )
    ),
    "two of three pods exist and run, and the operator creates the third: it waits": begun(
        Wait, REFUSED[:2], state=FORMING, more={"quiet": 1.0}, check=phase(PLANNED)
    ),
    "two of three pods exist and run, and the third never came: all free their nodes": begun(
        Suspend, REFUSED[:2], state=FORMING, more={"quiet": 30.0}
    ),
}


@pytest.mark.parametrize("case", LOSES_CAPACITY.values(), ids=LOSES_CAPACITY.keys())
def test_a_gang_that_was_never_whole(case: Case) -> None:
    check_case(case)


def complete(want: type, state: JobState = FORMING, *, plain_pods: int = 3, **more: object) -> Case:
    """All pods of the gang are gated; `plain_pods` pods of other jobs are about to be bound."""
    job, check = three().resumed(), more.pop("check", bool)
    more["context"] = QueueContext(plain_pods=plain_pods)
    return Case(want, job, workers(gated=True), plan("a", "a", "a"), state, nodes([]), check, more)  # type: ignore[arg-type]


BESIDE_OTHERS: dict[str, Case] = {
    "pods that kfext does not place are bound first": complete(
        Wait,
        waited=1.0,
        check=lambda step: (
            phase(GATED, REASON_WAITING_FOR_BIND)(step)
            and step.again == 0.25
            and "3 pods of jobs that kfext does not place" in step.verdict.message
        ),
    ),
    "no such pod exists": complete(Pin, plain_pods=0, waited=1.0),
    "such pods take too long": complete(Pin, waited=5.0),
    "the gang was whole before": complete(Pin, WHOLE, waited=1.0),
}


@pytest.mark.parametrize("case", BESIDE_OTHERS.values(), ids=BESIDE_OTHERS.keys())
def test_a_complete_gang_beside_jobs_that_kfext_does_not_place(case: Case) -> None:
    check_case(case)


def stopped_thrice(reason: str) -> JobState:
    return JobState(strikes=3, suspended_at=NOW - 95, reason=reason, message="not bound")


AFTERWARDS: dict[str, Case] = {
    "its pods were not bound three times: the whole job is released from the queue": Case(
        Release, suspended_since(), state=stopped_thrice(REASON_BIND_TIMEOUT)
    ),
    "other pods took its capacity three times: it waits for its turn like any job": Case(
        Unsuspend, suspended_since(), state=stopped_thrice(REASON_NO_ROOM)
    ),
}


@pytest.mark.parametrize("case", AFTERWARDS.values(), ids=AFTERWARDS.keys())
def test_a_gang_that_was_suspended_in_part(case: Case) -> None:
    check_case(case)


def test_a_start_records_the_time_in_the_queue_until_the_gang_is_whole() -> None:
    queued = three().created(NOW - 70).held().build()
    step = next_step(situation_of(queued, now=NOW), nodes([]))
    assert isinstance(step, Unsuspend)
    assert step.state is not None
    assert step.state.queued_since == NOW - 70
    bound = tuple(workers(bound="a"))
    situation = situation_of(three().resumed().build(), bound, plan("a", "a", "a"), step.state, NOW)
    assert situation.forming
    whole = next_step(situation, nodes(list(bound)))
    assert whole == SaveState(replace(step.state, queued_since=0.0))
