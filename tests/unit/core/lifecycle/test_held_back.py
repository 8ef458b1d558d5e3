"""A gang that is whole and cannot pass the barrier."""

from typing import Any

import pytest

from kfext.core.lifecycle.steps import Release, SaveState, Step, Suspend, Wait
from kfext.model.job_state import JobState
from kfext.names import (
    GATED,
    REASON_FOREIGN_GATE,
    REASON_NO_ELIGIBLE_NODE,
    REASON_TOO_BIG,
)
from tests.builders import JobBuilder, job, ledger, node, pods
from tests.unit.core.lifecycle.cases import (
    NOW,
    Case,
    decide,
    full,
    phase,
    plan,
    stopped,
    three,
    worker,
    workers,
)

LARGER = workers(gated=True, spec={"containers": [{"resources": {"requests": {"cpu": "3"}}}]})
TAINT = {"key": "dedicated", "value": "team", "effect": "NoSchedule"}
POOL = ledger(node("a", cpu="4", taints=[TAINT]))
WITHOUT_ROOM: dict[str, Case] = {
    "its pods are larger than their template, and there is no room for them": Case(
        Suspend,
        three().resumed().created(NOW - 70),
        LARGER,
        plan("a", "a", "a"),
        check=lambda step: (
            stopped(REASON_TOO_BIG, 1)(step)
            and step.state.retry_at == 0.0
            and step.state.observed["worker"].requests["cpu"] == 3000
            and step.state.queued_since == NOW - 70
            and "a worker has 3 cpu instead of 1 cpu" in step.state.message
        ),
    ),
    "no node is eligible for its pods, as nothing tolerates the taint of their GPUs": Case(
        Suspend,
        job().worker(3, gpus=1).resumed(),
        pods(job().worker(3, gpus=1).build(), gated=True),
        plan("a", "a", "a"),
        on=ledger(node("a", gpus=8, taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])),
        check=lambda step: (
            stopped(REASON_NO_ELIGIBLE_NODE, 1)(step)
            and step.state.observed["worker"].untolerated
            and "no toleration for nvidia.com/gpu" in step.state.message
        ),
    ),
    "no node is eligible for its pods, as admission added no toleration: that is remembered": Case(
        Suspend,
        three().resumed().created(NOW - 70),
        workers(gated=True),
        plan("a", "a", "a"),
        on=POOL,
        check=lambda step: (
            stopped(REASON_NO_ELIGIBLE_NODE, 0)(step)
            and step.state.retry_at == 0.0
            and "admission added no toleration" in step.state.message
            and step.state.observed["worker"].tolerations == ()
        ),
    ),
    "its pods are larger at each start, the third time": Case(
        Release,
        three().resumed(),
        LARGER,
        plan("a", "a", "a"),
        JobState(strikes=2),
        check=lambda step: step.verdict.reason == REASON_TOO_BIG,
    ),
    "its pods are larger at each start, the third time, required": Case(
        Suspend,
        three().resumed(),
        LARGER,
        plan("a", "a", "a"),
        JobState(strikes=2),
        more={"colocation": "required"},
        check=lambda step: stopped(REASON_TOO_BIG, 3)(step) and step.state.retry_at == NOW + 60,
    ),
    "the room is gone everywhere, of a job that ran before": Case(
        Suspend,
        three().resumed().created(NOW - 70).condition("Running"),
        workers(gated=True),
        plan("a", "a", "a"),
        on=full(),
        check=lambda step: step.state.queued_since == 0.0,
    ),
}


@pytest.mark.parametrize("case", WITHOUT_ROOM.values(), ids=WITHOUT_ROOM.keys())
def test_a_gang_whose_pods_find_no_room(case: Case) -> None:
    decide(case)


def behind_a_gate(
    want: type[Step], *, waited: float, of: JobBuilder | None = None, **more: Any
) -> Case:
    """A gang of which another system's gate holds one pod."""
    check, state = more.pop("check", bool), more.pop("state", JobState())
    members = more.pop("members", [*workers(gated=True)[:2], GATED_TWICE])
    more["waited"] = waited
    return Case(
        want,
        of or three().resumed(),
        members,
        plan("a", "a", "a"),
        state,
        check=check,
        more=more,
    )


GATED_TWICE = worker(2, gated=True, gates=["other/gate"])
GATES: dict[str, Case] = {
    "for a while": behind_a_gate(
        Wait,
        waited=20.0,
        check=lambda step: phase(GATED, REASON_FOREIGN_GATE)(step) and step.again == 40.0,
    ),
    "for bindTimeout: stopped, with a back-off": behind_a_gate(
        Suspend,
        waited=60.0,
        check=lambda step: (
            stopped(REASON_FOREIGN_GATE, 1)(step) and step.state.retry_at == NOW + 15
        ),
    ),
    "for the third time": behind_a_gate(
        Release,
        waited=60.0,
        state=JobState(strikes=2),
        check=lambda step: step.verdict.reason == REASON_FOREIGN_GATE,
    ),
    "for the third time, required": behind_a_gate(
        Suspend,
        waited=60.0,
        state=JobState(strikes=2),
        colocation="required",
        check=stopped(REASON_FOREIGN_GATE, 3),
    ),
    "while another member runs: a strike": behind_a_gate(
        SaveState,
        waited=60.0,
        members=[*workers(bound="a")[:2], GATED_TWICE],
        check=lambda step: step.state.strikes == 1,
    ),
    "of a job that Kueue started: its gates are part of its admission": behind_a_gate(
        Wait,
        waited=9e9,
        of=three().resumed().queued_by_kueue(),
        check=lambda step: phase(GATED, REASON_FOREIGN_GATE)(step) and step.again is None,
    ),
}


@pytest.mark.parametrize("case", GATES.values(), ids=GATES.keys())
def test_the_wait_for_another_systems_gate_has_an_end(case: Case) -> None:
    decide(case)
