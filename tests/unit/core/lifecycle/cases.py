"""Cases of the next step of a job: builders of the situation, and checks of the step."""

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


def plan(*nodes: str, uid: str = "uid-1", generation: int = 1) -> Plan:
    return Plan(uid, generation, {ReplicaKey("worker", n): node for n, node in enumerate(nodes)})


def workers(**more: Any) -> list[Pod]:
    return pods(RUNNING, **more)


def worker(index: int, **more: Any) -> Pod:
    return pod(RUNNING, "worker", index, **more)


@dataclass(frozen=True)
class Case:
    """A situation on the ledger `on`, the class of the next step (`want`), and a check of it."""

    want: type[Step]
    builder: JobBuilder
    pods: Iterable[Pod] = ()
    plan: Plan | None = None
    state: JobState = field(default_factory=JobState)
    on: Ledger = TWO_NODES
    check: Callable[[Any], object] = bool
    more: Mapping[str, Any] = field(default_factory=dict)


ON_A = plan("a", "a", "a")


def held(want: type[Step], **more: Any) -> Case:
    """The case of a gang that kfext holds in the queue."""
    return Case(want, three().held(), **more)


def begun(
    want: type[Step], pods: Iterable[Pod] = (), *, plan: Plan | None = ON_A, **more: Any
) -> Case:
    """The case of a gang that kfext has started under a plan, by default on node a."""
    return Case(want, three().resumed(), pods, plan, **more)


def check_case(case: Case) -> None:
    more = dict(case.more)
    if managed_by := more.pop("managed_by", ""):
        case.builder.raw["spec"]["runPolicy"]["managedBy"] = managed_by
    situation = situation_of(
        job=case.builder.build(),
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
    """Check that a wait shows this phase, and this reason unless it is empty."""

    def check(step: Wait) -> bool:
        shown = step.verdict.reason if step.verdict else ""
        return step.phase == wanted and (not reason or shown == reason)

    return check


def stopped(reason: str, strikes: int) -> Callable[[Suspend], bool]:
    """Check the reason and the strikes of a suspension."""

    def check(step: Suspend) -> bool:
        state = step.state
        return (state.reason, state.strikes, state.suspended_at) == (reason, strikes, NOW)

    return check


def moved_to(*nodes: str) -> Callable[[Unsuspend | Replan], bool]:
    return lambda step: step.plan.assignment == plan(*nodes).assignment


def stop_state(**more: Any) -> JobState:
    return JobState(suspended_at=NOW - 100, **more)


def suspended_since(since: float = NOW - 90) -> JobBuilder:
    return three().held().condition("Suspended", since=since)


def reservation(until: float = NOW + 60) -> Reservation:
    """The reservation of two CPUs of node a for a different job."""
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


def partly_reserved(*, used: str = "0") -> Ledger:
    """Node a of four CPUs; two are reserved, and other pods use `used` CPUs."""
    capacity = ledger(node("a", cpu="4"), used={"a": {"cpu": used}})
    for key, claim in reservation().claims.items():
        capacity.claim(key, claim)
    return capacity
