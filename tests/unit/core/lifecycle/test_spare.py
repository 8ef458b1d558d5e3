"""A running gang is never stopped because more of its pods find no node."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.steps import DeleteUnbound, Pin, Release, Replan, Step, Suspend, Wait
from kfext.model.job_state import JobState
from kfext.model.plan import Plan, decode_plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.names import (
    PLACED,
    REASON_BIND_TIMEOUT,
    REASON_FOREIGN_GATE,
    REASON_HANDS_OFF,
    REASON_NO_ROOM,
    REASON_UNMODELLED,
    REASON_WAITING_FOR_PODS,
)
from tests.builders import ANY_SIZE, JobBuilder, job, ledger, node, pod, situation_of
from tests.unit.core.lifecycle.cases import NOW, plan

FULL = ledger(node("a", cpu="4"), used={"a": {"cpu": "4"}})
LONG_AGO = {"waited": 9e9, "quiet": 9e9}


def free(cpus: int) -> Ledger:
    """Node a with this many free CPUs and four pods of the gang."""
    return ledger(node("a", cpu=str(4 + cpus)), used={"a": {"cpu": "4"}})


def torchrun(workers: int = 8, **policy: Any) -> JobBuilder:
    return job().worker(workers, cpu="1").resumed().elastic(**(ANY_SIZE | policy))


def fixed(workers: int = 8) -> JobBuilder:
    return job().worker(workers, cpu="1").resumed()


def dynamic(workers: int = 8) -> JobBuilder:
    builder = job("TFJob").ps(1, cpu="1").worker(workers, cpu="1").resumed()
    builder.raw["spec"]["enableDynamicWorker"] = True
    return builder


def gang(
    builder: JobBuilder,
    *,
    runs: Iterable[int] = range(4),
    gated: Iterable[int] = (),
    pinned: Iterable[int] = (),
    **more: Any,
) -> list[Pod]:
    """Workers of a job: some run on node a, some are behind the gate, some are pinned there."""
    result = builder.build()
    return [
        *(pod(result, "worker", n, bound="a", phase="Running") for n in runs),
        *(pod(result, "worker", n, gated=True, **more) for n in gated),
        *(pod(result, "worker", n, pinned="a") for n in pinned),
    ]


@dataclass(frozen=True)
class Case:
    """A running gang on the ledger `on`, the class of its next step (`want`), a check of it."""

    want: type[Step]
    builder: JobBuilder
    pods: list[Pod]
    on: Ledger = FULL
    plan: Plan | None = field(default_factory=lambda: plan("a", "a", "a", "a"))
    state: JobState = field(default_factory=JobState)
    check: Callable[[Any], object] = bool
    more: dict[str, Any] = field(default_factory=lambda: LONG_AGO)
    colocation: str = "required"


def waits(reason: str, count: int, again: float | None = None) -> Callable[[Wait], bool]:
    def check(step: Wait) -> bool:
        assert step.verdict is not None
        counts = f"it trains, and {count} pod" in step.verdict.message
        return (step.phase, step.verdict.reason, step.again) == (PLACED, reason, again) and counts

    return check


def placed(*keys: int, late: Iterable[int] = ()) -> Callable[[Replan], bool]:
    workers = {ReplicaKey("worker", key) for key in keys}
    late_keys = frozenset(ReplicaKey("worker", key) for key in late)
    return lambda step: (set(step.plan.assignment), step.plan.late) == (workers, late_keys)


TWICE = JobState(strikes=2)
EIGHT = torchrun()
LATE = replace(plan(*"aaaaaaaa"), late=frozenset(ReplicaKey("worker", n) for n in range(4, 8)))
BACKOFF = JobState(strikes=3, retry_at=NOW + 60, reason=REASON_BIND_TIMEOUT, message="not bound")
HUGE = replace(EIGHT.build(), groups=(replace(EIGHT.build().groups[0], replicas=2**31 - 1),))
SCALED: dict[str, Case] = {
    "it is scaled up, and there is no capacity": Case(
        Wait, EIGHT, gang(EIGHT, gated=range(4, 8)), state=TWICE, check=waits(REASON_NO_ROOM, 4)
    ),
    "some of the new pods have capacity": Case(
        Replan,
        EIGHT,
        gang(EIGHT, gated=range(4, 8)),
        free(2),
        check=placed(*range(6), late=(4, 5)),
    ),
    "pods with capacity are ungated": Case(
        Pin,
        EIGHT,
        gang(EIGHT, gated=range(4, 8)),
        free(2),
        plan(*"aaaaaa"),
        check=lambda step: [pin.replica.index for pin, _ in step.pins] == [4, 5],
    ),
    "the other pods continue to wait": Case(
        Wait, EIGHT, gang(EIGHT, runs=range(6), gated=(6, 7)), check=waits(REASON_NO_ROOM, 2)
    ),
    "the operator creates the new pods": Case(
        Wait,
        EIGHT,
        gang(EIGHT, gated=(4, 5)),
        more={"waited": 9e9, "quiet": 20.0},
        check=lambda step: step.again == 10.0,
    ),
    "the operator cannot create all of the new pods": Case(
        Wait, EIGHT, gang(EIGHT, gated=(4, 5)), state=TWICE, check=waits(REASON_NO_ROOM, 2)
    ),
    "the operator cannot create all of the new pods, and the others have capacity": Case(
        Replan,
        EIGHT,
        gang(EIGHT, gated=(4, 5)),
        free(2),
        check=placed(*range(6), late=(4, 5)),
    ),
    "the operator cannot create any new pod": Case(
        Wait,
        EIGHT,
        gang(EIGHT),
        check=lambda step: (step.phase, step.verdict.reason) == (PLACED, REASON_WAITING_FOR_PODS),
    ),
    "another system gates the new pods": Case(
        Wait,
        EIGHT,
        gang(EIGHT, gated=range(4, 8), gates=["other/gate"]),
        free(4),
        state=TWICE,
        check=waits(REASON_FOREIGN_GATE, 4, again=60.0),
    ),
    "another system gates some of the new pods": Case(
        Replan,
        EIGHT,
        [
            *gang(EIGHT, gated=(4, 5), gates=["other/gate"]),
            *gang(EIGHT, runs=(), gated=(6, 7)),
        ],
        free(4),
        check=placed(*range(4), 6, 7, late=(6, 7)),
    ),
    "admission gives the new pods a term that kfext does not model": Case(
        Wait,
        EIGHT,
        gang(EIGHT, gated=range(4, 8), spec={"resourceClaims": [{"name": "x"}]}),
        free(4),
        check=waits(REASON_UNMODELLED, 4, again=15.0),
    ),
    "kube-scheduler binds none of the new pods": Case(
        DeleteUnbound,
        EIGHT,
        gang(EIGHT, pinned=range(4, 8)),
        plan=LATE,
        state=TWICE,
        check=lambda step: (
            (len(step.pods), step.state.strikes, step.state.excluded) == (4, 3, {})
            and step.state.retry_at > NOW
        ),
    ),
    "the new pods pause after that": Case(
        Wait,
        EIGHT,
        gang(EIGHT, gated=range(4, 8)),
        free(4),
        LATE,
        BACKOFF,
        check=waits(REASON_BIND_TIMEOUT, 4, again=60.0),
    ),
    "the new pods are tried again after the pause": Case(
        Pin, EIGHT, gang(EIGHT, gated=range(4, 8)), free(4), LATE, replace(BACKOFF, retry_at=NOW)
    ),
    "a job that is scaled though its workers cannot take part with others": Case(
        Wait, fixed(), gang(fixed(), gated=range(4, 8)), state=TWICE, check=waits(REASON_NO_ROOM, 4)
    ),
    "its new workers are created late": Case(
        Replan,
        fixed(),
        gang(fixed(), gated=range(4, 8)),
        free(4),
        check=placed(*range(8), late=range(4, 8)),
    ),
    "kube-scheduler binds none of its new workers": Case(
        DeleteUnbound,
        fixed(),
        gang(fixed(), pinned=range(4, 8)),
        plan=LATE,
        state=TWICE,
    ),
    "a server and the fewest of dynamic workers run": Case(
        Wait,
        dynamic(),
        [pod(dynamic().build(), "ps", 0, bound="a"), *gang(dynamic(), runs=[0], gated=range(1, 8))],
        state=TWICE,
        check=waits(REASON_NO_ROOM, 7),
    ),
}  # fmt: skip
LOST: dict[str, Case] = {
    "a worker of torchrun": Case(
        Wait, torchrun(4), gang(torchrun(4), runs=(0, 1, 2), gated=[3]), state=TWICE,
        check=waits(REASON_NO_ROOM, 1),
    ),
    "so many workers of torchrun that the others cannot train": Case(
        Suspend,
        torchrun(4, minReplicas=3),
        gang(torchrun(4, minReplicas=3), runs=(0, 1), gated=(2, 3)),
        state=TWICE,
    ),
    "the worker where the others meet": Case(
        Suspend, torchrun(4), gang(torchrun(4), runs=(1, 2, 3), gated=[0]), state=TWICE
    ),
    "a worker of a gang of a fixed size": Case(
        Suspend, fixed(4), gang(fixed(4), runs=(0, 1, 2), gated=[3]), state=TWICE
    ),
    "a worker of a gang of a fixed size that was scaled up": Case(
        Suspend, fixed(), gang(fixed(), runs=(0, 1, 2), gated=(3, 4, 5, 6, 7)), state=TWICE
    ),
    "a worker with capacity, where the others have none": Case(
        Replan,
        fixed(),
        gang(fixed(), runs=(0, 1, 2), gated=(3, 4, 5, 6, 7)),
        free(1),
        plan("a", "a", "a", "b"),
        check=placed(0, 1, 2, 3),
    ),
    "the parameter server": Case(
        Suspend,
        dynamic(4),
        [*gang(dynamic(4)), pod(dynamic(4).build(), "ps", 0, gated=True)],
        plan=Plan(
            "uid-1", 1, {ReplicaKey("ps", 0): "a", **plan(*"aaaa").assignment}
        ),
        state=TWICE,
    ),
    "a worker of a preferred job": Case(
        Release,
        torchrun(4),
        gang(torchrun(4), runs=(0, 1, 2), gated=[3]),
        state=TWICE,
        colocation="preferred",
    ),
    "a worker that had succeeded": Case(
        Replan,
        fixed(4),
        gang(fixed(4), runs=(0, 1, 2), gated=[3]),
        state=TWICE,
        check=placed(*range(4), late=[3]),
        more={**LONG_AGO, "succeeded": frozenset({ReplicaKey("worker", 3)})},
    ),
    "a worker that had succeeded: it waits once the success is recorded": Case(
        Wait,
        fixed(4),
        gang(fixed(4), runs=(0, 1, 2), gated=[3]),
        plan=replace(plan(*"aaaa"), late=frozenset({ReplicaKey("worker", 3)})),
        state=TWICE,
        check=waits(REASON_NO_ROOM, 1),
        more={**LONG_AGO, "succeeded": frozenset({ReplicaKey("worker", 3)})},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", (SCALED | LOST).values(), ids=SCALED | LOST)
def test_the_next_step_of_a_running_gang(case: Case) -> None:
    situation = situation_of(
        case.builder.build(),
        tuple(case.pods),
        case.plan,
        case.state,
        NOW,
        colocation=case.colocation,
        **case.more,
    )
    step = next_step(situation, case.on)
    assert type(step) is case.want, step
    assert case.check(step), step


def test_a_gang_scaled_beyond_all_bounds_continues_to_train() -> None:
    pods = gang(EIGHT, gated=range(4, 8))
    step = next_step(
        situation_of(HUGE, tuple(pods), None, JobState(), NOW, colocation="required"), FULL
    )
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert (step.phase, step.verdict.reason) == (PLACED, REASON_HANDS_OFF)


def test_pods_that_were_created_late_are_kept_with_the_plan() -> None:
    assert decode_plan(LATE.encode(), job_uid="uid-1") == LATE
