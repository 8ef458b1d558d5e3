"""From a situation, said in a sentence, to the next step."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import plan_claims
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import (
    Amend,
    Bind,
    Evict,
    Release,
    Remember,
    Start,
    Step,
    Stop,
    Ungate,
    Wait,
)
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.policy import Placement
from kfext.model.state import JobState
from kfext.names import (
    BINDING,
    FINISHED,
    GATED,
    PHASE_RELEASED,
    PLACED,
    PLANNED,
    QUEUED,
    REASON_BIND_TIMEOUT,
    REASON_CREATE_TIMEOUT,
    REASON_FOREIGN_GATE,
    REASON_NO_ELIGIBLE_NODE,
    REASON_NO_ROOM,
    REASON_TOO_BIG,
    REASON_WAITING_FOR_SUSPEND,
    SUSPENDED,
)
from tests.builders import JobBuilder, affinity_to, job, ledger, node, pod, pods

NOW = 1000.0


def three(kind: str = "PyTorchJob") -> JobBuilder:
    """Three workers of one CPU each."""
    return job(kind).worker(3, cpu="1")


RUNNING = three().resumed().build()
TWO_NODES = ledger(node("a", cpu="4"), node("b", cpu="4"))


def full() -> Ledger:
    """Two nodes of four CPUs, none of them free."""
    return ledger(
        node("a", cpu="4"), node("b", cpu="4"), used={"a": {"cpu": "4"}, "b": {"cpu": "4"}}
    )


def plan(*places: str, uid: str = "uid-1", generation: int = 1) -> Plan:
    return Plan(uid, generation, {ReplicaKey("worker", n): to for n, to in enumerate(places)})


def workers(**more: Any) -> list[Pod]:
    return pods(RUNNING, **more)


def worker(index: int, **more: Any) -> Pod:
    return pod(RUNNING, "worker", index, **more)


@dataclass(frozen=True)
class Case:
    """`want` is the class of the step, `check` what else must hold of it."""

    want: type[Step]
    of: JobBuilder
    pods: Iterable[Pod] = ()
    plan: Plan | None = None
    state: JobState = field(default_factory=JobState)
    on: Ledger = TWO_NODES
    check: Callable[[Any], object] = bool
    more: Mapping[str, Any] = field(default_factory=dict)


def phase(wanted: str | None, reason: str = "") -> Callable[[Wait], bool]:
    def check(step: Wait) -> bool:
        return step.phase == wanted and (not reason or step.verdict.reason == reason)

    return check


def stopped(reason: str, strikes: int) -> Callable[[Stop], bool]:
    def check(step: Stop) -> bool:
        state = step.state
        return (state.reason, state.strikes, state.suspended_at) == (reason, strikes, NOW)

    return check


def moved_to(*places: str) -> Callable[[Start | Amend], bool]:
    return lambda step: step.plan.assignment == plan(*places).assignment


def stop_state(**more: Any) -> JobState:
    return JobState(suspended_at=NOW - 100, **more)


def was_suspended(since: float = NOW - 90) -> JobBuilder:
    return three().held().condition("Suspended", since=since)


QUEUE: dict[str, Case] = {
    "suspended by a person: respected": Case(Wait, three().suspended(), check=phase(SUSPENDED)),
    "suspended by a person while it ran under our plan: respected": Case(
        Wait, three().suspended(), workers(bound="a"), plan("a", "a", "a"), check=phase(SUSPENDED)
    ),
    "suspended in a namespace that nobody opted in: not ours to show": Case(
        Wait, three().suspended(), more={"managed": False}, check=phase(None)
    ),
    "suspended by a person after the namespace was opted out: still ours to show": Case(
        Wait,
        three().suspended(),
        plan=plan("a", "a", "a"),
        more={"managed": False},
        check=phase(SUSPENDED),
    ),
    "suspended by Kueue": Case(Wait, three().suspended().queued_by_kueue(), check=phase(SUSPENDED)),
    "held, but Kueue's webhook claimed it after ours": Case(
        Wait, three().held().queued_by_kueue(), check=phase(SUSPENDED)
    ),
    "there is room": Case(Start, three().held(), check=moved_to("a", "a", "a")),
    "a later start counts on from the last plan": Case(
        Start,
        three().held(),
        plan=plan("a", "a", "a", generation=4),
        check=lambda step: step.plan.generation == 5,
    ),
    "a start after a stop counts on from the plan that the stop took away": Case(
        Start,
        three().held(),
        state=JobState(generation=4),
        check=lambda step: step.plan.generation == 5,
    ),
    "stopped for a cause and not yet safe to resume: the cause is said first": Case(
        Wait,
        was_suspended(),
        workers(deleting=True),
        state=stop_state(message="exceeded quota"),
        check=lambda step: step.verdict.message.startswith("exceeded quota; 3 pods"),
    ),
    "colocation was switched off in the queue": Case(
        Release, three().held(), more={"colocation": "off"}, check=lambda step: not step.pods
    ),
    "colocation was switched off while the last pods end: not before they are gone": Case(
        Wait,
        was_suspended(),
        workers(deleting=True),
        state=stop_state(),
        more={"colocation": "off"},
        check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND),
    ),
    "no room: waits without an end for what runs": Case(
        Wait,
        three().held(),
        on=full(),
        more={"hopeless": 0.0},
        check=lambda step: (
            phase(QUEUED, REASON_NO_ROOM)(step)
            and step.again is None
            and "released" not in step.verdict.message
        ),
    ),
    "no room, and the policy has a bound that is not over": Case(
        Wait,
        three().held().created(NOW - 89),
        on=full(),
        more={"placement": Placement(release_after=90.0)},
        check=lambda step: phase(QUEUED, REASON_NO_ROOM)(step) and step.again == 1.0,
    ),
    "no room, and the policy's bound is over": Case(
        Release,
        three().held().created(NOW - 90),
        on=full(),
        more={"placement": Placement(release_after=90.0)},
        check=lambda step: step.verdict.reason == REASON_NO_ROOM,
    ),
    "the bound of the policy counts from the last stop": Case(
        Wait,
        was_suspended().created(0),
        state=stop_state(),
        on=full(),
        more={"placement": Placement(release_after=101.0)},
        check=lambda step: step.again == 1.0,
    ),
    "too big: told at once, released after a minute": Case(
        Wait,
        job().worker(3, cpu="3").held(),
        check=lambda step: (
            phase(QUEUED, REASON_TOO_BIG)(step)
            and step.again == 60.0
            and "60 s" in step.verdict.message
        ),
    ),
    "too big for a minute: released": Case(
        Release,
        job().worker(3, cpu="3").held(),
        more={"hopeless": 60.0},
        check=lambda step: step.verdict.reason == REASON_TOO_BIG,
    ),
    "queued for long, too big only since a moment ago: not released yet": Case(
        Wait,
        job().worker(3, cpu="3").held().created(0),
        more={"hopeless": 5.0},
        check=lambda step: step.again == 55.0,
    ),
    "required and too big: never released": Case(
        Wait,
        job().worker(3, cpu="3").held().created(0),
        more={"hopeless": 9e9, "colocation": "required"},
        check=lambda step: (
            phase(QUEUED, REASON_TOO_BIG)(step)
            and step.again is None
            and "never released" in step.verdict.message
        ),
    ),
    "required is not released by the policy's bound either": Case(
        Wait,
        three().held().created(0),
        on=full(),
        more={"colocation": "required", "placement": Placement(release_after=1.0)},
        check=phase(QUEUED, REASON_NO_ROOM),
    ),
    "required waits where preferred takes two nodes": Case(
        Wait,
        three().held(),
        on=ledger(node("a", cpu="2"), node("b", cpu="4"), used={"b": {"cpu": "2"}}),
        more={"colocation": "required"},
        check=phase(QUEUED, REASON_NO_ROOM),
    ),
    "preferred takes two nodes": Case(
        Start,
        three().held(),
        on=ledger(node("a", cpu="2"), node("b", cpu="4"), used={"b": {"cpu": "2"}}),
        check=lambda step: step.plan.nodes == ("a", "b"),
    ),
    "no node is possible": Case(
        Wait,
        job().worker(3, spec={"nodeSelector": {"zone": "x"}}).held(),
        check=phase(QUEUED, REASON_NO_ELIGIBLE_NODE),
    ),
    "more replicas than can ever be planned: answered at once": Case(
        Wait,
        job().worker(2**31 - 1, cpu="1").held(),
        check=lambda step: (
            phase(QUEUED, REASON_TOO_BIG)(step) and "2147483647" in step.verdict.message
        ),
    ),
    "a back-off": Case(
        Wait,
        was_suspended(),
        state=stop_state(retry_at=NOW + 7, reason=REASON_CREATE_TIMEOUT, message="quota"),
        check=lambda step: phase(QUEUED, REASON_CREATE_TIMEOUT)(step) and step.again == 7.0,
    ),
    "a back-off that is over": Case(
        Start, was_suspended(), state=stop_state(retry_at=NOW, reason=REASON_CREATE_TIMEOUT)
    ),
    "a node that did not take the pods is avoided": Case(
        Start,
        three().held(),
        state=JobState(excluded={"a": NOW + 1}),
        check=moved_to("b", "b", "b"),
    ),
    "a node is tried again after its time": Case(
        Start, three().held(), state=JobState(excluded={"a": NOW}), check=moved_to("a", "a", "a")
    ),
}

RESUME: dict[str, Case] = {
    "pods of the last start still end": Case(
        Wait,
        was_suspended(),
        workers(deleting=True)[:1],
        state=stop_state(),
        check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND),
    ),
    "pods of the last start have not begun to end": Case(
        Wait,
        was_suspended(),
        workers(bound="a"),
        state=stop_state(),
        check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND),
    ),
    "the operator has said nothing yet": Case(
        Wait, three().held(), state=stop_state(), check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND)
    ),
    "the operator still says that it runs": Case(
        Wait,
        three().held().condition("Suspended", status="False", since=NOW - 1),
        state=stop_state(),
        more={"waited": 9e9},
        check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND),
    ),
    "the operator's word is older than our suspend": Case(
        Wait,
        was_suspended(since=NOW - 101),
        state=stop_state(),
        check=lambda step: phase(QUEUED, REASON_WAITING_FOR_SUSPEND)(step) and step.again == 30.0,
    ),
    "the operator never saw the resume, so it has nothing new to say": Case(
        Start, was_suspended(since=NOW - 500), state=stop_state(), more={"waited": 30.0}
    ),
    "its word within the same second counts": Case(
        Start, was_suspended(since=NOW - 100), state=JobState(suspended_at=NOW - 100 + 0.9)
    ),
    "the operator's word is not two seconds old": Case(
        Wait,
        was_suspended(since=NOW - 1),
        state=stop_state(),
        check=lambda step: phase(QUEUED, REASON_WAITING_FOR_SUSPEND)(step) and step.again == 1.0,
    ),
    "the last pod went less than two seconds ago": Case(
        Wait,
        was_suspended(),
        state=stop_state(),
        more={"settled": 0.5},
        check=lambda step: step.again == 1.5,
    ),
    "all is quiet": Case(Start, was_suspended(), state=stop_state(), more={"settled": 2.0}),
    "the operator's clock is an hour ahead": Case(
        Start, was_suspended(since=NOW + 3600), state=stop_state(), more={"settled": 2.0}
    ),
}

BARRIER: dict[str, Case] = {
    "no plan, no gate: none of ours": Case(Wait, three().resumed(), workers(), check=phase(None)),
    "no pod yet": Case(
        Wait,
        three().resumed(),
        plan=plan("a", "a", "a"),
        check=lambda step: phase(PLANNED)(step) and step.again == 30.0,
    ),
    "some pods": Case(
        Wait,
        three().resumed(),
        workers(gated=True)[:2],
        plan("a", "a", "a"),
        more={"waited": 20.0, "quiet": 50.0},
        check=lambda step: (
            phase(PLANNED)(step) and "2 of 3" in step.verdict.message and step.again == 10.0
        ),
    ),
    "the operator is busy with another job's pods": Case(
        Wait,
        three().resumed(),
        workers(gated=True)[:2],
        plan("a", "a", "a"),
        more={"waited": 9e9, "quiet": 29.0},
        check=phase(PLANNED),
    ),
    "pods do not come": Case(
        Stop,
        three().resumed(),
        workers(gated=True)[:2],
        plan("a", "a", "a"),
        more={"waited": 30.0, "quiet": 30.0},
        check=stopped(REASON_CREATE_TIMEOUT, 1),
    ),
    "pods do not come, of a job that Kueue started": Case(
        Wait,
        three().resumed().queued_by_kueue(),
        workers(gated=True)[:2],
        more={"waited": 9e9, "quiet": 9e9},
        check=lambda step: phase(PLANNED)(step) and step.again is None,
    ),
    "a stop keeps the number of the plan that it takes away": Case(
        Stop,
        three().resumed(),
        workers(gated=True)[:2],
        plan("a", "a", "a", generation=7),
        more={"waited": 30.0, "quiet": 30.0},
        check=lambda step: step.state.generation == 7,
    ),
    "a member does not come back, others run, and nothing is held back": Case(
        Wait,
        three().resumed(),
        workers(bound="a")[:2],
        plan("a", "a", "a"),
        more={"waited": 9e9, "quiet": 9e9},
        check=lambda step: phase(PLACED)(step) and step.again is None,
    ),
    "a member does not come back, one runs and one is held back: a strike": Case(
        Remember,
        three().resumed(),
        [worker(0, bound="a"), worker(1, gated=True)],
        plan("a", "a", "a"),
        more={"waited": 30.0, "quiet": 30.0},
        check=lambda step: (
            (step.state.strikes, step.state.retry_at) == (1, NOW + 30)
            and "2 of 3 pods exist" in step.state.message
        ),
    ),
    "the third time: the one held back is let go": Case(
        Release,
        three().resumed(),
        [worker(0, bound="a"), worker(1, gated=True)],
        plan("a", "a", "a"),
        JobState(strikes=2, retry_at=NOW),
        more={"waited": 90.0, "quiet": 90.0},
        check=lambda step: step.pods == () and step.verdict.reason == REASON_CREATE_TIMEOUT,
    ),
    "the third time of a required job: stopped": Case(
        Stop,
        three().resumed(),
        [worker(0, bound="a"), worker(1, gated=True)],
        plan("a", "a", "a"),
        JobState(strikes=2, retry_at=NOW),
        more={"waited": 90.0, "quiet": 90.0, "colocation": "required"},
        check=stopped(REASON_CREATE_TIMEOUT, 3),
    ),
    "one of two lost members is back, behind the gate": Case(
        Wait,
        three().resumed(),
        [worker(0, bound="a"), worker(1, gated=True)],
        plan("a", "a", "a"),
        check=phase(GATED),
    ),
    "all are there and the plan holds": Case(
        Bind,
        three().resumed(),
        workers(gated=True),
        plan("b", "a", "a"),
        check=lambda step: [to for _, to in step.pins] == ["b", "a", "a"],
    ),
    "a pod that is being deleted does not count": Case(
        Wait,
        three().resumed(),
        [*workers(gated=True)[:2], worker(2, deleting=True)],
        plan("a", "a", "a"),
        check=phase(PLANNED),
    ),
    "a pod beyond the replicas is ignored": Case(
        Bind,
        three().resumed(),
        [*workers(gated=True), pod(RUNNING, "worker", 3, gated=True)],
        plan("a", "a", "a"),
        check=lambda step: len(step.pins) == 3,
    ),
    "a pod beyond the replicas does not stand in for a missing one": Case(
        Wait,
        three().resumed(),
        [*workers(gated=True)[:2], pod(RUNNING, "worker", 3, gated=True)],
        plan("a", "a", "a"),
        check=phase(PLANNED),
    ),
    "a gate of another system": Case(
        Wait,
        three().resumed(),
        [*workers(gated=True)[:2], worker(2, gated=True, gates=["other/gate"])],
        plan("a", "a", "a"),
        check=phase(GATED, REASON_FOREIGN_GATE),
    ),
    "the planned node is full by now": Case(
        Amend,
        three().resumed(),
        workers(gated=True),
        plan("a", "a", "a"),
        on=ledger(node("a", cpu="4"), node("b", cpu="4"), used={"a": {"cpu": "2"}}),
        check=lambda step: moved_to("b", "b", "b")(step) and step.plan.generation == 2,
    ),
    "the planned node is gone": Case(
        Amend,
        three().resumed(),
        workers(gated=True),
        plan("gone", "gone", "gone"),
        check=moved_to("a", "a", "a"),
    ),
    "the planned node was cordoned": Case(
        Amend,
        three().resumed(),
        workers(gated=True),
        plan("a", "a", "a"),
        on=ledger(node("a", cordoned=True), node("b")),
        check=moved_to("b", "b", "b"),
    ),
    "the room is gone everywhere": Case(
        Stop,
        three().resumed(),
        workers(gated=True),
        plan("a", "a", "a"),
        on=full(),
        check=stopped(REASON_NO_ROOM, 0),
    ),
    "the room is gone, of a job that Kueue started": Case(
        Wait,
        three().resumed().queued_by_kueue(),
        workers(gated=True),
        on=full(),
        check=phase(GATED, REASON_NO_ROOM),
    ),
    "required, and the room is in pieces": Case(
        Stop,
        three().resumed(),
        workers(gated=True),
        plan("a", "a", "a"),
        on=ledger(
            node("a", cpu="4"), node("b", cpu="4"), used={"a": {"cpu": "2"}, "b": {"cpu": "2"}}
        ),
        more={"colocation": "required"},
        check=stopped(REASON_NO_ROOM, 0),
    ),
    "resumed by hand: planned from the pods": Case(
        Amend,
        three().resumed(),
        workers(gated=True),
        check=lambda step: moved_to("a", "a", "a")(step) and step.plan.generation == 1,
    ),
    "started by Kueue: planned from the pods": Case(
        Amend, three().resumed().queued_by_kueue(), workers(gated=True), check=moved_to(*"aaa")
    ),
    "half of the gang came ungated and was bound: a fact": Case(
        Amend,
        three().resumed(),
        [worker(0, bound="b"), *workers(gated=True)[1:]],
        check=moved_to("b", "b", "b"),
    ),
    "half of the gang came ungated and is not bound, the plan holds": Case(
        Bind,
        three().resumed(),
        [worker(0), *workers(gated=True)[1:]],
        plan("a", "a", "a"),
        check=lambda step: [to for _, to in step.pins] == ["a", "a"],
    ),
    "half of the gang came ungated and is not bound, the room is gone: first see where it goes": (
        Case(
            Wait,
            three().resumed(),
            [worker(0), *workers(gated=True)[1:]],
            plan("gone", "gone", "gone"),
            more={"waited": 20.0},
            check=lambda step: phase(GATED)(step) and step.again == 40.0,
        )
    ),
    "half of the gang came ungated and is never bound: the rest is not held for ever": Case(
        Amend,
        three().resumed(),
        [worker(0), *workers(gated=True)[1:]],
        plan("gone", "gone", "gone"),
        more={"waited": 60.0},
        check=lambda step: len(step.plan.assignment) == 2,
    ),
    "half of the pins were written when we died": Case(
        Bind,
        three().resumed(),
        [worker(0, pinned="b"), *workers(gated=True)[1:]],
        plan("b", "b", "b"),
        check=lambda step: [(p.replica.index, to) for p, to in step.pins] == [(1, "b"), (2, "b")],
    ),
    "half of the pins are written, the room for the rest is gone: nothing is stopped": Case(
        Wait,
        three().resumed(),
        [worker(0, bound="b"), *workers(gated=True)[1:]],
        plan("b", "b", "b"),
        on=full(),
        check=lambda step: phase(GATED, REASON_NO_ROOM)(step) and step.again == 60.0,
    ),
    **{
        f"one runs, no room for the rest, {said}": Case(
            want,
            three().resumed(),
            [worker(0, bound="b"), *workers(gated=True)[1:]],
            plan("b", "b", "b"),
            state,
            full(),
            check,
            more,
        )
        for said, want, state, more, check in [
            (
                "for bindTimeout: a strike",
                Remember,
                JobState(),
                {"waited": 60.0},
                lambda step: (step.state.strikes, step.state.retry_at) == (1, NOW + 60),
            ),
            (
                "and the last strike is not bindTimeout ago: it does not count twice",
                Wait,
                JobState(strikes=1, retry_at=NOW + 1),
                {"waited": 9e9},
                lambda step: phase(GATED, REASON_NO_ROOM)(step) and step.again == 1.0,
            ),
            (
                "and the clock was set back an hour: the wait is no longer for it",
                Remember,
                JobState(strikes=1, retry_at=NOW + 3600),
                {"waited": 60.0},
                lambda step: step.state.strikes == 2,
            ),
            (
                "for the third time: the rest is left to kube-scheduler",
                Release,
                JobState(strikes=2, retry_at=NOW),
                {"waited": 180.0},
                lambda step: (
                    step.pods == ()
                    and step.verdict.reason == REASON_NO_ROOM
                    and "3 attempts: no room for the rest" in step.verdict.message
                ),
            ),
            (
                "for the third time, required: stopped",
                Stop,
                JobState(strikes=2, retry_at=NOW),
                {"waited": 180.0, "colocation": "required"},
                stopped(REASON_NO_ROOM, 3),
            ),
        ]
    },
    "no room for the rest of a required job that Kueue started: never stopped by us": Case(
        Wait,
        three().resumed().queued_by_kueue(),
        [worker(0, bound="b"), *workers(gated=True)[1:]],
        plan("b", "b", "b"),
        JobState(strikes=2),
        on=full(),
        more={"waited": 9e9, "colocation": "required"},
        check=lambda step: phase(GATED, REASON_NO_ROOM)(step) and step.again is None,
    ),
    "no room for a preferred job that Kueue started, for the third time: let go": Case(
        Release,
        three().resumed().queued_by_kueue(),
        workers(gated=True),
        state=JobState(strikes=2),
        on=full(),
        more={"waited": 60.0},
        check=lambda step: step.verdict.reason == REASON_NO_ROOM,
    ),
    "a member of a running gang came back: next to the survivors": Case(
        Amend,
        three().resumed(),
        [worker(0, bound="b"), worker(1, bound="b"), worker(2, gated=True)],
        plan("b", "b", "gone"),
        check=moved_to("b", "b", "b"),
    ),
    "a pod asks for more than its template since admission": Case(
        Amend,
        three().resumed(),
        [
            *workers(gated=True)[:2],
            worker(
                2,
                gated=True,
                spec={"containers": [{"resources": {"requests": {"cpu": "3"}}}]},
            ),
        ],
        plan("a", "a", "a"),
        check=lambda step: len(step.plan.nodes) == 2,
    ),
}

BINDS: dict[str, Case] = {
    "pinned, not bound yet": Case(
        Wait,
        three().resumed(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        more={"waited": 59.0},
        check=lambda step: phase(BINDING)(step) and step.again == 1.0,
    ),
    "all bound": Case(
        Wait, three().resumed(), workers(bound="a"), plan("a", "a", "a"), check=phase(PLACED)
    ),
    "all bound, some ended": Case(
        Wait,
        three().resumed(),
        [*workers(bound="a")[:2], worker(2, bound="a", phase="Succeeded")],
        plan("a", "a", "a"),
        check=phase(PLACED),
    ),
    "all bound after failed attempts: forgotten": Case(
        Remember,
        three().resumed(),
        workers(bound="b"),
        plan("b", "b", "b"),
        JobState(strikes=2, excluded={"a": NOW + 9}, suspended_at=5.0, generation=3),
        check=lambda step: step.state == JobState(suspended_at=5.0, generation=3),
    ),
    "one is not bound in time: moved, the bound ones stay": Case(
        Evict,
        three().resumed(),
        [*workers(bound="a")[:2], worker(2, pinned="a", unschedulable="no volume here")],
        plan("a", "a", "a"),
        more={"waited": 60.0},
        check=lambda step: (
            [p.replica.index for p in step.pods] == [2]
            and step.state.strikes == 1
            and step.state.excluded == {"a": NOW + 300}
            and step.state.suspended_at == 0.0
            and "no volume here" in step.state.message
        ),
    ),
    "a pod without a pin is kube-scheduler's business": Case(
        Wait,
        three().resumed(),
        workers(),
        plan("a", "a", "a"),
        more={"waited": 9e9},
        check=phase(BINDING),
    ),
    "two are pinned as an earlier plan said: deleted at once, and no strike": Case(
        Evict,
        three().resumed(),
        [worker(0, bound="b"), worker(1, pinned="a"), worker(2, pinned="a")],
        plan("b", "b", "b", generation=2),
        JobState(strikes=1),
        more={"waited": 2.0},
        check=lambda step: (
            [p.replica.index for p in step.pods] == [1, 2]
            and step.state.strikes == 1
            and step.state.excluded == {}
            and "earlier plan" in step.state.message
        ),
    ),
    "pinned as an earlier plan said, or by a plan that we are about to see": Case(
        Wait,
        three().resumed(),
        workers(pinned="a"),
        plan("b", "b", "b", generation=2),
        more={"waited": 1.5},
        check=lambda step: phase(BINDING)(step) and step.again == 0.5,
    ),
    "bound where an earlier plan said: a fact": Case(
        Wait,
        three().resumed(),
        [worker(0, bound="a"), *workers(bound="b")[1:]],
        plan("b", "b", "b", generation=2),
        check=phase(PLACED),
    ),
    "the last strike is not bindTimeout ago: it does not count twice": Case(
        Wait,
        three().resumed(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        JobState(strikes=1, retry_at=NOW + 60),
        more={"waited": 60.0},
        check=lambda step: phase(BINDING)(step) and step.again == 60.0,
    ),
    "one of a required job is not bound in time: its node stays in question": Case(
        Evict,
        three().resumed(),
        [*workers(bound="a")[:2], worker(2, pinned="a")],
        plan("a", "a", "a"),
        more={"waited": 60.0, "colocation": "required"},
        check=lambda step: step.state.strikes == 1 and step.state.excluded == {},
    ),
    "none of a required job is bound in time: another node": Case(
        Evict,
        three().resumed(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        more={"waited": 60.0, "colocation": "required"},
        check=lambda step: step.state.excluded == {"a": NOW + 300},
    ),
    "the third failure: released": Case(
        Release,
        three().resumed(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        JobState(strikes=2),
        more={"waited": 60.0},
        check=lambda step: len(step.pods) == 3 and step.verdict.reason == REASON_BIND_TIMEOUT,
    ),
    "the third failure of a required job: stopped": Case(
        Stop,
        three().resumed(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        JobState(strikes=2),
        more={"waited": 60.0, "colocation": "required"},
        check=stopped(REASON_BIND_TIMEOUT, 3),
    ),
    "the third failure of a required job that Kueue started: never stopped by us": Case(
        Evict,
        three().resumed().queued_by_kueue(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        JobState(strikes=2),
        more={"waited": 60.0, "colocation": "required"},
    ),
}

ENDS: dict[str, Case] = {
    "succeeded": Case(
        Wait,
        three().resumed().condition("Succeeded"),
        workers(gated=True),
        plan("a", "a", "a"),
        check=phase(FINISHED),
    ),
    "failed while suspended": Case(Wait, three().held().condition("Failed"), check=phase(FINISHED)),
    "failed, and pods that were pinned are never bound": Case(
        Evict,
        three().resumed().condition("Failed"),
        [worker(0, bound="a"), worker(1, pinned="a"), worker(2, pinned="a", deleting=True)],
        plan("a", "a", "a"),
        check=lambda step: [one.name for one in step.pods] == ["train-worker-1"],
        more={"waited": 60.0},
    ),
    "failed a moment ago, and kube-scheduler may still bind them": Case(
        Wait,
        three().resumed().condition("Failed"),
        workers(pinned="a"),
        plan("a", "a", "a"),
        check=lambda step: step.phase == FINISHED and step.again == 50.0,
        more={"waited": 10.0},
    ),
    "ended, and where its pods wait is the user's wish": Case(
        Wait,
        job().worker(3, spec={"affinity": affinity_to("a")}).resumed().condition("Failed"),
        pods(job().worker(3, spec={"affinity": affinity_to("a")}).build(), pinned="a"),
        plan("a", "a", "a"),
        check=phase(FINISHED),
        more={"waited": 60.0},
    ),
    "being deleted while queued": Case(Wait, three().held().deleting(), check=phase(FINISHED)),
    "being deleted while gated": Case(
        Wait,
        three().resumed().deleting(),
        workers(gated=True),
        plan("a", "a", "a"),
        check=phase(FINISHED),
    ),
    "another system runs it": Case(
        Wait, three().held(), check=phase(None), more={"managed_by": "kueue.x-k8s.io/multikueue"}
    ),
    "released, pods behind our gate": Case(
        Ungate,
        three().resumed().released(),
        [*workers(gated=True)[:2], worker(2, gated=True, deleting=True)],
        check=lambda step: len(step.pods) == 2,
    ),
    "released": Case(Wait, three().resumed().released(), workers(), check=phase(PHASE_RELEASED)),
    "released while suspended": Case(Wait, three().held().released(), check=phase(PHASE_RELEASED)),
    "released, we died before its stuck pods were deleted: they have their time": Case(
        Wait,
        three().resumed().released(),
        workers(pinned="a"),
        more={"waited": 59.0},
        check=lambda step: phase(PHASE_RELEASED)(step) and step.again == 1.0,
    ),
    "released, we died before its stuck pods were deleted": Case(
        Release,
        three().resumed().released(),
        [worker(0, bound="a"), *workers(pinned="a")[1:]],
        more={"waited": 60.0},
        check=lambda step: len(step.pods) == 2 and step.verdict.reason == REASON_BIND_TIMEOUT,
    ),
    "released, the user's own template pins its pods": Case(
        Wait,
        job().worker(3, spec={"affinity": affinity_to("a")}).resumed().released(),
        workers(pinned="a"),
        more={"waited": 9e9},
        check=phase(PHASE_RELEASED),
    ),
}

CASES = {**QUEUE, **RESUME, **BARRIER, **BINDS, **ENDS}
assert len(CASES) == sum(map(len, (QUEUE, RESUME, BARRIER, BINDS, ENDS)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_next_step(case: Case) -> None:
    more = dict(case.more)
    made = case.of
    if managed_by := more.pop("managed_by", ""):
        made.raw["spec"]["runPolicy"]["managedBy"] = managed_by
    situation = Situation(
        job=made.build(),
        pods=tuple(case.pods),
        plan=case.plan,
        state=case.state,
        now=NOW,
        **more,
    )
    step = next_step(situation, case.on)
    assert type(step) is case.want, step
    assert case.check(step), step


def test_backing_off_doubles_up_to_five_minutes() -> None:
    waits = []
    for strikes in range(7):
        state = JobState(strikes=strikes)
        waits.append(Situation(RUNNING, (), None, state, NOW).after_strike("r", "m").retry_at - NOW)
    assert waits == [15, 30, 60, 120, 240, 300, 300]


def test_a_plan_does_not_stand_in_its_own_way() -> None:
    own = plan("a", "a", "a")
    on = ledger(node("a", cpu="3"))
    for key, claim in plan_claims(RUNNING, own, workers(gated=True)).items():
        on.claim(key, claim)
    step = next_step(Situation(RUNNING, tuple(workers(gated=True)), own, JobState(), NOW), on)
    assert isinstance(step, Bind)
    cordoned = JobState(excluded={"b": NOW + 1})
    on.set_node(node("b", cpu="3"))
    step = next_step(Situation(RUNNING, tuple(workers(gated=True)), None, cordoned, NOW), on)
    assert isinstance(step, Amend)
    assert step.plan.nodes == ("a",)


def test_deciding_twice_changes_nothing() -> None:
    before = TWO_NODES.claims()
    situation = Situation(three().held().build(), (), None, JobState(), NOW)
    assert next_step(situation, TWO_NODES) == next_step(situation, TWO_NODES)
    assert TWO_NODES.claims() == before


def test_C2_a_start_on_more_nodes_than_it_must_says_why() -> None:
    room = ledger(node("a", cpu="7"), node("b", cpu="5"), node("c", cpu="4"), node("d", cpu="4"))
    held = job().worker(12, cpu="1").held().build()
    step = next_step(Situation(held, (), None, JobState(), NOW), room)
    assert isinstance(step, Start)
    assert len(step.plan.nodes) == 3
    assert "instead of 2 with" in step.verdict.message


@pytest.mark.parametrize("until", [NOW + 65, 2.0**62])
def test_a_job_that_backs_off_says_until_when(until: float) -> None:
    state = JobState(strikes=3, retry_at=until, reason=REASON_BIND_TIMEOUT, message="not bound")
    step = next_step(Situation(three().held().build(), (), None, state, NOW), TWO_NODES)
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert step.verdict.message.startswith("not bound; it backs off until ")
    assert until > 2 * NOW or step.verdict.message.endswith("00:17:45 UTC")


def test_a_required_gang_without_room_for_its_rest_does_not_back_off_from_what_is_foreseen() -> (
    None
):
    on = ledger(node("a", cpu="2"), node("b", cpu="4"))
    members = [worker(0, bound="a"), worker(1, bound="a"), worker(2, gated=True)]
    state = JobState(strikes=2, retry_at=NOW - 1, reason=REASON_NO_ROOM, message="no room")
    claims = {
        ("pod", pod.uid): Claim("a", pod.requests, job="uid-1") for pod in members if pod.node_name
    }
    for key, claim in claims.items():
        on.claim(key, claim)
    situation = Situation(
        RUNNING, tuple(members), plan("a", "a", "a"), state, NOW, colocation="required", waited=61
    )
    step = next_step(situation, on)
    assert isinstance(step, Stop)
    assert step.state.retry_at == 0.0


def test_what_an_eviction_has_left_over_is_evicted_before_the_rest_is_planned() -> None:
    state = JobState(strikes=1, excluded={"a": NOW + 300}, retry_at=NOW + 60)
    members = [worker(0, pinned="a"), worker(1, gated=True), worker(2, gated=True)]
    situation = Situation(RUNNING, tuple(members), plan("a", "a", "a"), state, NOW)
    step = next_step(situation, TWO_NODES)
    assert step == Evict((members[0],), state)


def test_a_pod_that_was_bound_after_all_to_an_excluded_node_stays() -> None:
    state = JobState(strikes=1, excluded={"a": NOW + 300}, retry_at=NOW + 60)
    members = [worker(0, pinned="a", bound="a"), worker(1, gated=True), worker(2, gated=True)]
    situation = Situation(RUNNING, tuple(members), plan("a", "a", "a"), state, NOW)
    assert isinstance(next_step(situation, TWO_NODES), Amend)
