"""How long kfext waits for a gang that cannot start, and the step after the wait."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.patience import claims_last
from kfext.core.lifecycle.steps import DeleteUnbound, Release, SaveState, Step, Suspend, Wait
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.names import (
    BINDING,
    GATED,
    REASON_BIND_TIMEOUT,
    REASON_CREATE_TIMEOUT,
    REASON_FOREIGN_GATE,
    REASON_NO_ELIGIBLE_NODE,
    REASON_NO_ROOM,
    REASON_TOO_BIG,
    REASON_WRITE_REFUSED,
)
from tests.builders import JobBuilder, job, ledger, node, pods, situation_of
from tests.unit.core.lifecycle.cases import (
    NOW,
    RUNNING,
    Case,
    begun,
    check_case,
    full,
    phase,
    plan,
    stopped,
    three,
    worker,
    workers,
)

RESIZED = CpuState(
    requested={"worker": PodCpu(20, None)},
    written={"worker-0": (PodCpu(700, None),)},
    disabled={"shift": "why"},
)


def gated_rest(
    want: type[Step], state: JobState, *, check: Callable[[Any], object], **more: Any
) -> Case:
    """One member runs, two are gated, and the nodes are full."""
    members = [worker(0, bound="b"), *workers(gated=True)[1:]]
    return begun(
        want, members, plan=plan("b", "b", "b"), state=state, on=full(), more=more, check=check
    )


DENIED = "0 of 3 pods exist; the operator reports: webhook a.b denied the request: no gates"
QUOTA = "0 of 3 pods exist; the operator reports: pods is forbidden: exceeded quota"


def not_created(
    want: type[Step],
    message: str,
    check: Callable[[Any], object],
    *,
    created: int = 0,
    confirmed: bool = False,
    **more: Any,
) -> Case:
    """At the third start, `created` of three pods exist. `message`: from the second start."""
    job = three().resumed()
    job = job.condition("Suspended", status="False") if confirmed else job
    state = JobState(strikes=2, reason=REASON_CREATE_TIMEOUT, message=message)
    more = {"waited": 30.0, "quiet": 30.0, **more}
    pods = workers(gated=True)[:created]
    return Case(want, job, pods, plan("a", "a", "a"), state, check=check, more=more)


def blames_a_policy(step: Any) -> bool:
    return stopped(REASON_WRITE_REFUSED, 3)(step) and bool(step.state.message)


NOT_CREATED: dict[str, Case] = {
    "a policy denies all pods": not_created(Suspend, DENIED, blames_a_policy),
    "a quota refuses all pods, and would refuse others": not_created(
        Suspend, QUOTA, stopped(REASON_CREATE_TIMEOUT, 3), confirmed=True
    ),
    "nothing is reported, and the operator has confirmed the start": not_created(
        Suspend, "0 of 3 pods exist", blames_a_policy, confirmed=True
    ),
    "nothing is reported, and the operator may be down": not_created(
        Suspend, "0 of 3 pods exist", stopped(REASON_CREATE_TIMEOUT, 3)
    ),
    "a policy denies some pods: a release would start half of the gang": not_created(
        Suspend, DENIED, stopped(REASON_CREATE_TIMEOUT, 3), created=2
    ),
    "some pods were created, and the operator knows no stages": not_created(
        Suspend, "2 of 3 pods exist", stopped(REASON_CREATE_TIMEOUT, 3), created=2, confirmed=True
    ),
    "a policy denies all pods of a required job": not_created(
        Suspend, DENIED, stopped(REASON_CREATE_TIMEOUT, 3), colocation="required"
    ),
}


@pytest.mark.parametrize("case", NOT_CREATED.values(), ids=NOT_CREATED)
def test_the_third_start_without_all_pods(case: Case) -> None:
    check_case(case)


STRIKES: dict[str, Case] = {
    "a lost member is not recreated, one runs and one is gated: a strike": begun(
        SaveState,
        [worker(0, bound="a"), worker(1, gated=True)],
        more={"waited": 30.0, "quiet": 30.0},
        check=lambda step: (
            (step.state.strikes, step.state.retry_at) == (1, NOW + 30)
            and "2 of 3 pods exist" in step.state.message
        ),
    ),
    "the third time: the gated pod is ungated": begun(
        Release,
        [worker(0, bound="a"), worker(1, gated=True)],
        state=JobState(strikes=2, retry_at=NOW),
        more={"waited": 90.0, "quiet": 90.0},
        check=lambda step: step.pods == () and step.verdict.reason == REASON_CREATE_TIMEOUT,
    ),
    "the third time of a required job: stopped": begun(
        Suspend,
        [worker(0, bound="a"), worker(1, gated=True)],
        state=JobState(strikes=2, retry_at=NOW),
        more={"waited": 90.0, "quiet": 90.0, "colocation": "required"},
        check=stopped(REASON_CREATE_TIMEOUT, 3),
    ),
    "one runs, no capacity for the rest, for bindTimeout: a strike": gated_rest(
        SaveState,
        JobState(),
        check=lambda step: (step.state.strikes, step.state.retry_at) == (1, NOW + 60),
        waited=60.0,
    ),
    "one runs, no capacity for the rest, soon after the last strike: no strike": gated_rest(
        Wait,
        JobState(strikes=1, retry_at=NOW + 1),
        check=lambda step: phase(GATED, REASON_NO_ROOM)(step) and step.again == 1.0,
        waited=9e9,
    ),
    "one runs, no capacity for the rest, the clock was set back: a new wait": gated_rest(
        SaveState,
        JobState(strikes=1, retry_at=NOW + 3600),
        check=lambda step: step.state.strikes == 2,
        waited=60.0,
    ),
    "one runs, no capacity for the rest, for the third time: the rest is left to kube-scheduler": (
        gated_rest(
            Release,
            JobState(strikes=2, retry_at=NOW),
            check=lambda step: (
                step.pods == ()
                and step.verdict.reason == REASON_NO_ROOM
                and "3 attempts: no capacity for the rest" in step.verdict.message
            ),
            waited=180.0,
        )
    ),
    "one runs, no capacity for the rest, for the third time, required: stopped": gated_rest(
        Suspend,
        JobState(strikes=2, retry_at=NOW),
        check=stopped(REASON_NO_ROOM, 3),
        waited=180.0,
        colocation="required",
    ),
    "no capacity for the rest of a required job that Kueue started: kfext never stops it": Case(
        Wait,
        three().resumed().queued_by_kueue(),
        [worker(0, bound="b"), *workers(gated=True)[1:]],
        plan("b", "b", "b"),
        JobState(strikes=2),
        on=full(),
        more={"waited": 9e9, "colocation": "required"},
        check=lambda step: phase(GATED, REASON_NO_ROOM)(step) and step.again is None,
    ),
    "no capacity for a preferred job that Kueue started, for the third time: released": Case(
        Release,
        three().resumed().queued_by_kueue(),
        workers(gated=True),
        state=JobState(strikes=2),
        on=full(),
        more={"waited": 60.0},
        check=lambda step: step.verdict.reason == REASON_NO_ROOM,
    ),
    "the last strike is less than bindTimeout ago: no second strike": begun(
        Wait,
        workers(pinned="a"),
        state=JobState(strikes=1, retry_at=NOW + 60),
        more={"waited": 60.0},
        check=lambda step: phase(BINDING)(step) and step.again == 60.0,
    ),
    "the third failure: released": begun(
        Release,
        workers(pinned="a"),
        state=JobState(strikes=2),
        more={"waited": 60.0},
        check=lambda step: len(step.pods) == 3 and step.verdict.reason == REASON_BIND_TIMEOUT,
    ),
    "the third failure of a required job: stopped": begun(
        Suspend,
        workers(pinned="a"),
        state=JobState(strikes=2),
        more={"waited": 60.0, "colocation": "required"},
        check=stopped(REASON_BIND_TIMEOUT, 3),
    ),
    "the third failure of a resized, required job: stopped, and the sizes are dropped": begun(
        Suspend,
        workers(pinned="a"),
        state=JobState(strikes=2, cpu=RESIZED),
        more={"waited": 60.0, "colocation": "required"},
        check=lambda step: step.state.cpu == CpuState(disabled=RESIZED.disabled),
    ),
    "the third failure of a required job that Kueue started: kfext never stops it": Case(
        DeleteUnbound,
        three().resumed().queued_by_kueue(),
        workers(pinned="a"),
        plan("a", "a", "a"),
        JobState(strikes=2),
        more={"waited": 60.0, "colocation": "required"},
    ),
}


@pytest.mark.parametrize("case", STRIKES.values(), ids=STRIKES.keys())
def test_every_wait_has_an_end(case: Case) -> None:
    check_case(case)


def test_a_required_gang_with_an_expected_lack_of_capacity_does_not_back_off() -> None:
    capacity = ledger(node("a", cpu="2"), node("b", cpu="4"))
    members = [worker(0, bound="a"), worker(1, bound="a"), worker(2, gated=True)]
    state = JobState(strikes=2, retry_at=NOW - 1, reason=REASON_NO_ROOM, message="no room")
    claims = {
        ("pod", pod.uid): Claim("a", pod.requests, job="uid-1") for pod in members if pod.node_name
    }
    for key, claim in claims.items():
        capacity.claim(key, claim)
    situation = situation_of(
        RUNNING, tuple(members), plan("a", "a", "a"), state, NOW, colocation="required", waited=61
    )
    step = next_step(situation, capacity)
    assert isinstance(step, Suspend)
    assert step.state.retry_at == 0.0


LARGER = workers(gated=True, spec={"containers": [{"resources": {"requests": {"cpu": "3"}}}]})
TAINT = {"key": "dedicated", "value": "team", "effect": "NoSchedule"}
POOL = ledger(node("a", cpu="4", taints=[TAINT]))
WITHOUT_CAPACITY: dict[str, Case] = {
    "its pods are larger than their template, and no node has capacity for them": Case(
        Suspend,
        three().resumed().created(NOW - 70),
        LARGER,
        plan("a", "a", "a"),
        JobState(queued_since=NOW - 70),
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
    "no node is eligible for its pods, as admission added no toleration: kfext remembers it": Case(
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
    "its pods are larger at each start, the third time": begun(
        Release,
        LARGER,
        state=JobState(strikes=2),
        check=lambda step: step.verdict.reason == REASON_TOO_BIG,
    ),
    "its pods are larger at each start, the third time, required": begun(
        Suspend,
        LARGER,
        state=JobState(strikes=2),
        more={"colocation": "required"},
        check=lambda step: stopped(REASON_TOO_BIG, 3)(step) and step.state.retry_at == NOW + 60,
    ),
    "no node has capacity any more, for a job that ran before": Case(
        Suspend,
        three().resumed().created(NOW - 70).condition("Running"),
        workers(gated=True),
        plan("a", "a", "a"),
        on=full(),
        check=lambda step: step.state.queued_since == 0.0,
    ),
    "no node has capacity, for a job that its user resumed late: it waits from now on": Case(
        Suspend,
        three().resumed().created(NOW - 900),
        workers(gated=True),
        on=full(),
        check=lambda step: step.state.queued_since == 0.0,
    ),
    "no node has capacity, for a job that ran after its release": Case(
        Suspend,
        three().resumed().created(NOW - 900).condition("Running"),
        workers(gated=True),
        state=JobState(queued_since=NOW - 800),
        on=full(),
        check=lambda step: step.state.queued_since == 0.0,
    ),
    "no node has capacity, for a job that its user resumed late, and that was placed before": Case(
        Suspend,
        three().resumed().created(NOW - 900),
        workers(gated=True),
        plan("a", "a", "a"),
        on=full(),
        check=lambda step: step.state.queued_since == 0.0,
    ),
}


@pytest.mark.parametrize("case", WITHOUT_CAPACITY.values(), ids=WITHOUT_CAPACITY.keys())
def test_a_gang_with_pods_that_find_no_capacity(case: Case) -> None:
    check_case(case)


def behind_a_gate(
    want: type[Step], *, waited: float, builder: JobBuilder | None = None, **more: Any
) -> Case:
    """A gang with one pod behind another system's gate."""
    check, state = more.pop("check", bool), more.pop("state", JobState())
    members = more.pop("members", [*workers(gated=True)[:2], GATED_TWICE])
    more["waited"] = waited
    return Case(
        want,
        builder or three().resumed(),
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
        builder=three().resumed().queued_by_kueue(),
        check=lambda step: phase(GATED, REASON_FOREIGN_GATE)(step) and step.again is None,
    ),
}


@pytest.mark.parametrize("case", GATES.values(), ids=GATES.keys())
def test_the_wait_for_the_gate_of_another_system_has_an_end(case: Case) -> None:
    check_case(case)


BY_KFEXT, BY_KUEUE = three().resumed(), three().resumed().queued_by_kueue()
CASES: dict[str, tuple[JobBuilder, Sequence[Pod], float]] = {
    "its pods are being created, and kfext suspends it if they are not": (BY_KFEXT, [], math.inf),
    "its pods are gated": (BY_KFEXT, workers(gated=True), math.inf),
    "its pods are pinned, and kfext deletes them if they are not bound": (
        BY_KFEXT,
        workers(pinned="a"),
        math.inf,
    ),
    "a pod that kfext's webhook missed": (BY_KFEXT, [*workers(gated=True)[1:], worker(0)], 50.0),
    "such a pod is being deleted": (BY_KFEXT, [worker(0, deleting=True)], math.inf),
    "such a pod is bound": (BY_KFEXT, workers(bound="a"), math.inf),
    "Kueue's job without pods": (BY_KUEUE, [], 50.0),
    "Kueue's job with one pod missing": (BY_KUEUE, workers(pinned="a")[1:], 50.0),
    "Kueue's job waits at the gate": (BY_KUEUE, workers(gated=True), 50.0),
    "Kueue's job is pinned": (BY_KUEUE, workers(pinned="a"), math.inf),
    "Kueue's job runs": (BY_KUEUE, workers(bound="a"), math.inf),
    "suspended": (three().suspended().queued_by_kueue(), [], math.inf),
    "ended": (three().resumed().queued_by_kueue().condition("Failed"), [], math.inf),
}


@pytest.mark.parametrize(("builder", "pods", "want"), CASES.values(), ids=CASES)
def test_when_claims_of_a_plan_end(builder: JobBuilder, pods: Sequence[Pod], want: float) -> None:
    unbound = {pod.uid: 10.0 for pod in pods if not pod.node_name}
    quiet = 10.0 if len(pods) < 3 else 0.0
    situation = situation_of(
        builder.build(), tuple(pods), plan("a", "a", "a"), unbound=unbound, quiet=quiet
    )
    assert claims_last(situation) == want


def test_without_a_plan_nothing_is_claimed() -> None:
    assert claims_last(situation_of(BY_KUEUE.build(), (), None, quiet=99.0)) == math.inf
