"""Parts of lifecycle cases: a job of three workers, plans, and checks."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.steps import Replan, Step, Suspend, Unsuspend, Wait
from kfext.core.queue.reservation import Reservation
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from tests.builders import JobBuilder, job, ledger, node, pod, pods, situation_of

NOW = 1000.0


def three(kind: str = "PyTorchJob") -> JobBuilder:
    """Three workers of one CPU each."""
    return job(kind).worker(3, cpu="1")


RUNNING = three().resumed().build()
TWO_NODES = ledger(node("a", cpu="4"), node("b", cpu="4"))
RACKS = ledger(
    node("a", cpu="4", labels={"rack": "1"}),
    node("b", cpu="4", labels={"rack": "2"}),
    node("c", cpu="4", labels={"rack": "2"}),
)
LITTLE_AND_LARGE = ledger(
    node("little", cpu="4", memory="1Ti"),
    node("large", cpu="64", memory="1Ti"),
    used={"little": {"cpu": "1"}, "large": {"cpu": "20"}},
)


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
    """`want` is the class of the step; `check` asserts more about it."""

    want: type[Step]
    of: JobBuilder
    pods: Iterable[Pod] = ()
    plan: Plan | None = None
    state: JobState = field(default_factory=JobState)
    on: Ledger = TWO_NODES
    check: Callable[[Any], object] = bool
    more: Mapping[str, Any] = field(default_factory=dict)


ON_A = plan("a", "a", "a")


def held(want: type[Step], **more: Any) -> Case:
    """A gang that kfext holds in the queue."""
    return Case(want, three().held(), **more)


def begun(
    want: type[Step], pods: Iterable[Pod] = (), *, plan: Plan | None = ON_A, **more: Any
) -> Case:
    """A gang that was started under a plan, on node a by default."""
    return Case(want, three().resumed(), pods, plan, **more)


def decide(case: Case) -> None:
    more = dict(case.more)
    made = case.of
    if managed_by := more.pop("managed_by", ""):
        made.raw["spec"]["runPolicy"]["managedBy"] = managed_by
    situation = situation_of(
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


def phase(wanted: str | None, reason: str = "") -> Callable[[Wait], bool]:
    def check(step: Wait) -> bool:
        said = step.verdict.reason if step.verdict else ""
        return step.phase == wanted and (not reason or said == reason)

    return check


def stopped(reason: str, strikes: int) -> Callable[[Suspend], bool]:
    def check(step: Suspend) -> bool:
        state = step.state
        return (state.reason, state.strikes, state.suspended_at) == (reason, strikes, NOW)

    return check


def moved_to(*places: str) -> Callable[[Unsuspend | Replan], bool]:
    return lambda step: step.plan.assignment == plan(*places).assignment


def stop_state(**more: Any) -> JobState:
    return JobState(suspended_at=NOW - 100, **more)


def was_suspended(since: float = NOW - 90) -> JobBuilder:
    return three().held().condition("Suspended", since=since)


def kept(until: float = NOW + 60) -> Reservation:
    """Two CPUs of node a that are reserved for another job."""
    claims: dict[Hashable, Claim] = {("reserved", "a"): Claim("a", {"cpu": 2000}, job="head")}
    return Reservation(
        job="head",
        nodes=("a",),
        waits_for=("x",),
        until=until,
        backfill_until=until if math.isfinite(until) else -math.inf,
        to_free=1.0,
        claims=claims,
    )


def with_kept_room(*, used: str = "0") -> Ledger:
    """Node a of four CPUs; two are reserved, and some may be used."""
    capacity = ledger(node("a", cpu="4"), used={"a": {"cpu": used}})
    for key, claim in kept().claims.items():
        capacity.claim(key, claim)
    return capacity
