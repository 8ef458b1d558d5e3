"""A job that kfext holds suspended, and when kfext may resume it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import QueueContext, Situation
from kfext.core.lifecycle.steps import Release, SaveState, Step, Unsuspend, Wait
from kfext.core.queue.quota import QuotaView
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Colocation, Range
from kfext.model.charge import PodCharge
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.job_state import JobState
from kfext.model.parameters import Placement
from kfext.model.pod import Pod
from kfext.model.quota import Quota, parse_quota
from kfext.model.verdict import Verdict
from kfext.names import (
    QUEUED,
    REASON_BACKING_OFF,
    REASON_BIND_TIMEOUT,
    REASON_CREATE_TIMEOUT,
    REASON_NO_ROOM,
    REASON_QUOTA,
    REASON_RESERVED,
    REASON_TOO_BIG,
    REASON_WAITING_FOR_OPERATOR,
    REASON_WAITING_FOR_SUSPEND,
    REASON_WRITE_REFUSED,
    SUSPENDED,
)
from tests.builders import ANY_SIZE, job, ledger, node, situation_of
from tests.unit.core.lifecycle.cases import (
    NOW,
    TWO_NODES,
    Case,
    check_case,
    full,
    held,
    moved_to,
    partly_reserved,
    phase,
    plan,
    reservation,
    stop_state,
    suspended_since,
    three,
    worker,
    workers,
)


def preemptible(*more: Claim) -> Ledger:
    """A node of four CPUs that are all used, but by pods of priority 0."""
    capacity = ledger(node("a", cpu="4"))
    for number, claim in enumerate((Claim("a", {"cpu": 4000, "pods": 1}, priority=0), *more)):
        capacity.claim(("low", number), claim)
    return capacity


def suspended(
    want: type[Step],
    pods: Iterable[Pod] = (),
    *,
    since: float = NOW - 90,
    state: JobState | None = None,
    **more: Any,
) -> Case:
    """A gang that kfext has stopped; `since`: when the operator reported that it is suspended."""
    return Case(want, suspended_since(since), pods, state=state or stop_state(), **more)


RESIZED = CpuState(
    requested={"worker": PodCpu(1000, None)},
    written={"worker-0": (PodCpu(1500, None),)},
    by=frozenset({"resize"}),
    disabled={"shift": "it has shown no gain"},
)
NO_PODS = {
    "metadata": {"namespace": "team", "name": "q"},
    "status": {"hard": {"pods": "0"}, "used": {"pods": "0"}},
}
QUEUE: dict[str, Case] = {
    "suspended by a person: respected": Case(Wait, three().suspended(), check=phase(SUSPENDED)),
    "suspended by a person while it ran under kfext's plan: respected": Case(
        Wait, three().suspended(), workers(bound="a"), plan("a", "a", "a"), check=phase(SUSPENDED)
    ),
    "suspended in a namespace that did not opt in: kfext shows nothing": Case(
        Wait, three().suspended(), more={"managed": False}, check=phase(None)
    ),
    "suspended by a person, with colocation off: kfext shows nothing": Case(
        Wait, three().suspended(), more={"colocation": Colocation.OFF}, check=phase(None)
    ),
    "suspended by a person after the namespace was opted out: kfext still shows it": Case(
        Wait,
        three().suspended(),
        plan=plan("a", "a", "a"),
        more={"managed": False},
        check=phase(SUSPENDED),
    ),
    "Kueue has taken over a job that kfext had started with fewer workers": Case(
        SaveState,
        three().suspended().queued_by_kueue(),
        state=JobState(requested=5, assigned=3),
        check=lambda step: (step.workers, step.state.requested, step.state.assigned) == (5, 0, 0),
    ),
    "Kueue has taken over such a job, and pods remain": Case(
        Wait,
        three().suspended().queued_by_kueue(),
        [worker(0, bound="a")],
        state=JobState(requested=5, assigned=3),
        check=phase(SUSPENDED),
    ),
    "a person has stopped such a job": Case(
        Wait, three().suspended(), state=JobState(requested=5, assigned=3), check=phase(SUSPENDED)
    ),
    "a person has stopped a job with CPU set by kfext: new pods have the user's CPU": Case(
        SaveState,
        three().suspended(),
        state=JobState(cpu=RESIZED),
        check=lambda step: step.state.cpu == CpuState(disabled=RESIZED.disabled),
    ),
    "a person is stopping such a job": Case(
        Wait,
        three().suspended(),
        [worker(0, bound="a")],
        state=JobState(cpu=RESIZED),
        check=phase(SUSPENDED),
    ),
    "a person has stopped a job with a disabled policy": Case(
        Wait,
        three().suspended(),
        state=JobState(cpu=CpuState(disabled=RESIZED.disabled)),
        check=phase(SUSPENDED),
    ),
    "suspended by Kueue": Case(Wait, three().suspended().queued_by_kueue(), check=phase(SUSPENDED)),
    "held, but Kueue's webhook claimed it after kfext's": Case(
        Wait, three().held().queued_by_kueue(), check=phase(SUSPENDED)
    ),
    "there is capacity": held(Unsuspend, check=moved_to("a", "a", "a")),
    "a later start has the number after the last plan": held(
        Unsuspend,
        plan=plan("a", "a", "a", generation=4),
        check=lambda step: step.plan.generation == 5,
    ),
    "a start after a stop has the number after the removed plan": held(
        Unsuspend, state=JobState(generation=4), check=lambda step: step.plan.generation == 5
    ),
    "colocation was switched off while the job is queued": held(
        Release, more={"colocation": "off"}, check=lambda step: not step.pods
    ),
    "no capacity: waits for running jobs without a bound": held(
        Wait,
        on=full(),
        more={"never_fits": 0.0},
        check=lambda step: (
            phase(QUEUED, REASON_NO_ROOM)(step)
            and step.again is None
            and "released" not in step.verdict.message
        ),
    ),
    "no capacity, within the policy's bound": Case(
        Wait,
        three().held().created(NOW - 89),
        on=full(),
        more={"placement": Placement(release_after=90.0)},
        check=lambda step: phase(QUEUED, REASON_NO_ROOM)(step) and step.again == 1.0,
    ),
    "no capacity, beyond the policy's bound": Case(
        Release,
        three().held().created(NOW - 90),
        on=full(),
        more={"placement": Placement(release_after=90.0)},
        check=lambda step: step.verdict.reason == REASON_NO_ROOM,
    ),
    "the policy's bound counts from the last stop": Case(
        Wait,
        suspended_since().created(0),
        state=stop_state(),
        on=full(),
        more={"placement": Placement(release_after=101.0)},
        check=lambda step: step.again == 1.0,
    ),
    "too big: shown at once, released after a minute": Case(
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
        more={"never_fits": 60.0},
        check=lambda step: step.verdict.reason == REASON_TOO_BIG,
    ),
    "queued for long, too big for a moment only: not released yet": Case(
        Wait,
        job().worker(3, cpu="3").held().created(0),
        more={"never_fits": 5.0},
        check=lambda step: step.again == 55.0,
    ),
    "required and too big: never released": Case(
        Wait,
        job().worker(3, cpu="3").held().created(0),
        more={"never_fits": 9e9, "colocation": "required"},
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
    "the operator has many other pods to create": held(
        Wait,
        more={"context": QueueContext(crowded=500)},
        check=lambda step: (
            phase(QUEUED, REASON_WAITING_FOR_OPERATOR)(step) and "500" in step.verdict.message
        ),
    ),
    "the operator has many other pods to create, beyond the policy's bound": Case(
        Release,
        three().held().created(NOW - 90),
        more={
            "context": QueueContext(crowded=500),
            "placement": Placement(release_after=90.0),
        },
        check=lambda step: step.verdict.reason == REASON_WAITING_FOR_OPERATOR,
    ),
    "no capacity, and pods of lower priority outside gangs: preempted after a minute": Case(
        Wait,
        three().held().created(NOW - 20),
        on=preemptible(),
        more={"context": QueueContext(priority=5, preempts=True)},
        check=lambda step: (
            phase(QUEUED, REASON_NO_ROOM)(step)
            and step.again == 40.0
            and "preempted for it after 60 s" in step.verdict.message
        ),
    ),
    "no capacity for a minute, and pods of lower priority outside gangs: it preempts them": Case(
        Unsuspend,
        three().held().created(NOW - 60),
        on=preemptible(),
        more={"context": QueueContext(priority=5, preempts=True)},
        check=lambda step: step.plan.nodes == ("a",) and step.gated_by == "others",
    ),
    "no capacity beside a gang of lower priority: kube-scheduler might break it, so it waits": Case(
        Wait,
        three().held().created(NOW - 60),
        on=preemptible(Claim("a", {"pods": 1}, priority=0, job="gang")),
        more={"context": QueueContext(priority=5, preempts=True)},
        check=lambda step: phase(QUEUED, REASON_NO_ROOM)(step) and step.again is None,
    ),
    "no capacity, and an autoscaler may add nodes: released after a minute": Case(
        Wait,
        three().held().created(NOW - 59),
        on=full(),
        more={"context": QueueContext(autoscaler=True)},
        check=lambda step: (
            phase(QUEUED, REASON_NO_ROOM)(step)
            and step.again == 1.0
            and "autoscaler" in step.verdict.message
        ),
    ),
    "no capacity for a minute, and an autoscaler may add nodes: released": Case(
        Release,
        three().held().created(NOW - 60),
        on=full(),
        more={"context": QueueContext(autoscaler=True)},
        check=lambda step: step.verdict.reason == REASON_NO_ROOM,
    ),
    "an autoscaler does not help where a quota stops the job: not released": Case(
        Wait,
        three().held().created(0),
        more={"context": QueueContext(autoscaler=True, quota=QuotaView((parse_quota(NO_PODS),)))},
        check=lambda step: (
            phase(QUEUED, REASON_QUOTA)(step) and "autoscaler" not in step.verdict.message
        ),
    ),
    "an autoscaler does not help where capacity is reserved: not released": Case(
        Wait,
        three().held().created(0),
        on=partly_reserved(),
        more={
            "context": QueueContext(autoscaler=True, reservation=reservation(), reserved_for="x")
        },
        check=phase(QUEUED, REASON_RESERVED),
    ),
    "the policy's bound also holds with an autoscaler": Case(
        Wait,
        three().held().created(NOW - 60),
        on=full(),
        more={"context": QueueContext(autoscaler=True), "placement": Placement(release_after=90.0)},
        check=lambda step: step.again == 30.0,
    ),
    "it backs off after a start without capacity: it does not count as waiting for capacity": held(
        Wait,
        state=JobState(strikes=2, reason=REASON_NO_ROOM, message="why", retry_at=NOW + 60),
        check=phase(QUEUED, REASON_BACKING_OFF),
    ),
    "required, and an autoscaler may add nodes: never released": Case(
        Wait,
        three().held().created(0),
        on=full(),
        more={"context": QueueContext(autoscaler=True), "colocation": "required"},
        check=phase(QUEUED, REASON_NO_ROOM),
    ),
    "no capacity: checked again when capacity is to be reserved for it": held(
        Wait,
        on=full(),
        more={"context": QueueContext(reservable_in=200.0)},
        check=lambda step: phase(QUEUED, REASON_NO_ROOM)(step) and step.again == 200.0,
    ),
    "no capacity, with a bound: checked again when capacity is to be reserved, if sooner": Case(
        Wait,
        three().held().created(NOW - 100),
        on=full(),
        more={
            "placement": Placement(release_after=900.0),
            "context": QueueContext(reservable_in=200.0),
        },
        check=lambda step: step.again == 200.0,
    ),
    "no capacity but on an excluded node: checked again when the exclusion ends": Case(
        Wait,
        three().held().created(0),
        on=ledger(node("a", cpu="4"), node("b", cpu="4"), used={"b": {"cpu": "2"}}),
        state=JobState(excluded={"a": NOW + 50, "gone": NOW - 1}),
        check=lambda step: phase(QUEUED, REASON_NO_ROOM)(step) and step.again == 50.0,
    ),
    "too big but for an excluded node: not released": Case(
        Wait,
        job().worker(3, cpu="3").held(),
        on=ledger(node("a", cpu="16"), node("b", cpu="4")),
        state=JobState(excluded={"a": NOW + 50}),
        more={"never_fits": 9e9},
        check=lambda step: phase(QUEUED, REASON_TOO_BIG)(step) and step.again == 50.0,
    ),
    "a back-off": suspended(
        Wait,
        state=stop_state(retry_at=NOW + 7, reason=REASON_CREATE_TIMEOUT, message="quota"),
        check=lambda step: phase(QUEUED, REASON_CREATE_TIMEOUT)(step) and step.again == 7.0,
    ),
    "a back-off that outlasts the policy's bound": Case(
        Wait,
        suspended_since().created(NOW - 95),
        state=stop_state(
            retry_at=NOW + 7, reason=REASON_CREATE_TIMEOUT, message="", queued_since=NOW - 95
        ),
        more={"placement": Placement(release_after=100.0)},
        check=lambda step: phase(QUEUED, REASON_CREATE_TIMEOUT)(step) and step.again == 5.0,
    ),
    "a back-off, beyond the policy's bound": suspended(
        Release,
        state=stop_state(retry_at=NOW + 7, reason=REASON_CREATE_TIMEOUT, message="quota"),
        more={"placement": Placement(release_after=100.0)},
        check=lambda step: (
            step.verdict.reason == REASON_CREATE_TIMEOUT and "quota" in step.verdict.message
        ),
    ),
    "a back-off of a required job, beyond the policy's bound": suspended(
        Wait,
        state=stop_state(retry_at=NOW + 7, reason=REASON_CREATE_TIMEOUT, message="quota"),
        more={"placement": Placement(release_after=100.0), "colocation": "required"},
        check=lambda step: phase(QUEUED, REASON_CREATE_TIMEOUT)(step) and step.again == 7.0,
    ),
    "a back-off written by a clock that was a day ahead": suspended(
        Unsuspend,
        state=stop_state(retry_at=NOW + 86400, reason=REASON_CREATE_TIMEOUT, message="quota"),
    ),
    "its pods were denied at three starts": suspended(
        Release,
        state=stop_state(strikes=3, reason=REASON_WRITE_REFUSED, message="no"),
        check=lambda step: step.verdict == Verdict(REASON_WRITE_REFUSED, "3 attempts: no"),
    ),
    "its pods were denied at three starts, and colocation is required": suspended(
        Wait,
        state=stop_state(strikes=3, retry_at=NOW + 7, reason=REASON_WRITE_REFUSED, message="no"),
        more={"colocation": "required"},
        check=phase(QUEUED, REASON_WRITE_REFUSED),
    ),
    "a back-off that is over": suspended(
        Unsuspend, state=stop_state(retry_at=NOW, reason=REASON_CREATE_TIMEOUT)
    ),
}


@pytest.mark.parametrize("case", QUEUE.values(), ids=QUEUE.keys())
def test_a_job_in_the_queue(case: Case) -> None:
    check_case(case)


def test_a_job_that_backs_off_says_until_when() -> None:
    state = JobState(strikes=3, retry_at=NOW + 65, reason=REASON_BIND_TIMEOUT, message="not bound")
    step = next_step(Situation(three().held().build(), (), None, state, NOW), TWO_NODES)
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert step.verdict.message == "not bound; it backs off until 00:17:45 UTC"


# --- quotas -----------------------------------------------------------------------------------


def quota(hard: Mapping[str, str], used: Mapping[str, str] | None = None, **spec: Any) -> Quota:
    raw = {"metadata": {"namespace": "team", "name": "q"}, "spec": spec}
    return parse_quota({**raw, "status": {"hard": hard, "used": used or {}}})


ONE_POD = {PodCharge(usage=(("pods", 1),)): 3}
QUOTAS: dict[str, tuple[QuotaView, bool]] = {
    "the quota allows all pods": (QuotaView((quota({"pods": "5"}, {"pods": "2"}),)), False),
    "one pod short": (QuotaView((quota({"pods": "5"}, {"pods": "3"}),)), True),
    "a job that started before uses it": (
        QuotaView((quota({"pods": "5"}),), pending=ONE_POD),
        True,
    ),
}


@pytest.mark.parametrize(("quota", "stops"), QUOTAS.values(), ids=QUOTAS)
def test_a_job_waits_for_the_quotas_of_its_namespace(quota: QuotaView, stops: bool) -> None:
    job = three().held().build()
    situation = Situation(job, (), None, JobState(), NOW, context=QueueContext(quota=quota))
    step = next_step(situation, TWO_NODES)
    if stops:
        assert isinstance(step, Wait)
        assert step.verdict is not None
        assert step.verdict.reason == REASON_QUOTA
    else:
        assert isinstance(step, Unsuspend)


def test_an_elastic_job_shows_what_keeps_its_fewest_workers_from_starting() -> None:
    training_job = job().worker(8, cpu="1").held().elastic(**ANY_SIZE).build()
    context = QueueContext(quota=QuotaView((quota({"pods": "5"}, {"pods": "4"}),)))
    situation = situation_of(
        training_job, (), None, JobState(), NOW, context=context, elastic=Range(3, 8)
    )
    step = next_step(situation, TWO_NODES)
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert step.verdict.message.startswith("it needs at least 3 of its 8 workers: quota team/q ")
    assert "the job needs 3, 2 short" in step.verdict.message


def test_a_quota_too_small_for_all_workers_makes_an_elastic_job_start_short() -> None:
    context = QueueContext(quota=QuotaView((quota({"pods": "5"}, {"pods": "1"}),)))
    capacity = ledger(node("a", cpu="8"))
    training_job = job().worker(8, cpu="1").held().elastic(**ANY_SIZE).build()
    situation = Situation(training_job, (), None, JobState(), NOW, context=context)
    step = next_step(replace(situation, settings=Settings(elastic=Range(2, 8))), capacity)
    assert isinstance(step, Unsuspend)
    assert len(step.plan.assignment) == 4
    rigid = next_step(situation, capacity)
    assert isinstance(rigid, Wait)


@pytest.mark.parametrize(
    ("elastic", "state", "want"),
    [
        (None, JobState(requested=2, assigned=3), 2),
        (None, JobState(requested=2, assigned=4), None),
        (None, JobState(requested=4, assigned=3), None),
        (Range(2, 8), JobState(requested=2, assigned=3), None),
    ],
    ids=["it opted out", "a person set the number", "kfext removed workers", "it may be scaled"],
)
def test_a_stopped_job_that_kfext_may_no_longer_scale_loses_its_added_workers(
    elastic: Range | None, state: JobState, want: int | None
) -> None:
    training_job = job().worker(3, cpu="1").held().elastic(**ANY_SIZE).build()
    step = next_step(situation_of(training_job, (), None, state, NOW, elastic=elastic), TWO_NODES)
    assert (step.workers if isinstance(step, SaveState) else None) == want


def test_a_job_that_a_quota_shrinks_waits_for_the_workers_that_the_quota_allows() -> None:
    training_job = job().worker(8, cpu="1").held().elastic(**ANY_SIZE).build()
    capacity = ledger(node("a", cpu="8"))
    capacity.claim("other", Claim("a", {"cpu": 4000}, job="other"))
    context = QueueContext(
        quota=QuotaView((quota({"pods": "6"}),)),
        duration=lambda: 300.0,
        ends=lambda: {"other": NOW + 100},
    )
    situation = situation_of(
        training_job, (), None, JobState(), NOW, context=context, elastic=Range(2, 8)
    )
    step = next_step(situation, capacity)
    assert isinstance(step, Wait)
    # With four of six workers the job takes 450 s, and all six start in 100 s.
    assert step.again == 100.0


def test_a_quota_is_checked_for_a_few_sizes_of_an_elastic_job_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    shortage = QuotaView.shortage

    def count_and_check(view: QuotaView, need: Any) -> Any:
        sizes.append(sum(need.values()))
        return shortage(view, need)

    monkeypatch.setattr(QuotaView, "shortage", count_and_check)
    context = QueueContext(quota=QuotaView((quota({"pods": "7"}),)))
    training_job = job().worker(10_000, cpu="1").elastic(**ANY_SIZE).held().build()
    situation = situation_of(training_job, elastic=Range(1, 10_000), context=context)
    step = next_step(situation, ledger(node("a", cpu="64")))
    assert isinstance(step, Unsuspend)
    assert len(step.plan.assignment) == 7
    assert len(sizes) < 20


def test_a_plan_too_large_for_the_annotations_is_not_made() -> None:
    training_job = job().worker(3, cpu="1").held().annotated("mine", "x" * 256_000).build()
    step = next_step(situation_of(training_job), ledger(node("a")))
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert step.verdict.reason == REASON_TOO_BIG
    assert "its annotations have room for 0 only" in step.verdict.message


RESUME: dict[str, Case] = {
    "stopped for a reason and not yet safe to resume: the reason is shown first": suspended(
        Wait,
        workers(deleting=True),
        state=stop_state(message="exceeded quota"),
        check=lambda step: step.verdict.message.startswith("exceeded quota; 3 pods"),
    ),
    "colocation was switched off while the last pods end: not before they are gone": suspended(
        Wait,
        workers(deleting=True),
        more={"colocation": "off"},
        check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND),
    ),
    "pods of the last start are still terminating": suspended(
        Wait, workers(deleting=True)[:1], check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND)
    ),
    "pods of the last start have not begun to end": suspended(
        Wait, workers(bound="a"), check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND)
    ),
    "the operator has reported nothing yet": held(
        Wait, state=stop_state(), check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND)
    ),
    "the operator still reports that it runs": Case(
        Wait,
        three().held().condition("Suspended", status="False", since=NOW - 1),
        state=stop_state(),
        more={"waited": 29.0},
        check=lambda step: (
            phase(QUEUED, REASON_WAITING_FOR_SUSPEND)(step)
            and step.again == 1.0
            and "30 s after its last pod" in step.verdict.message
        ),
    ),
    "the operator reports forever that it runs, as 1.8.0 does for a job with a ttl: resumed": Case(
        Unsuspend,
        three().held().condition("Suspended", status="False", since=NOW - 1),
        state=stop_state(),
        more={"waited": 30.0},
    ),
    "the operator never reports anything: resumed": held(
        Unsuspend, state=stop_state(), more={"waited": 30.0}
    ),
    "the operator reports nothing, and the last pod was removed a moment ago": held(
        Wait,
        state=stop_state(),
        more={"waited": 9e9, "settled": 20.0},
        check=lambda step: step.again == 10.0,
    ),
    "the operator reports nothing, and pods exist": Case(
        Wait,
        three().held(),
        workers(deleting=True),
        state=stop_state(),
        more={"waited": 9e9},
        check=phase(QUEUED, REASON_WAITING_FOR_SUSPEND),
    ),
    "pods of the last start do not terminate: the message names the nodes": suspended(
        Wait,
        [*workers(bound="b", deleting=True)[:2], worker(2, bound="a", deleting=True)],
        check=lambda step: step.verdict.message.endswith("terminating on a and b"),
    ),
    "it never had pods": held(Unsuspend),
    "the operator has reported nothing for a while": suspended(
        Wait, since=NOW - 101, more={"waited": 20.0}, check=lambda step: step.again == 10.0
    ),
    "the operator's report is older than kfext's suspend": suspended(
        Wait,
        since=NOW - 101,
        check=lambda step: phase(QUEUED, REASON_WAITING_FOR_SUSPEND)(step) and step.again == 30.0,
    ),
    "the operator never saw the resume, so it reports nothing new": suspended(
        Unsuspend, since=NOW - 500, more={"waited": 30.0}
    ),
    "its report within the same second counts": suspended(
        Unsuspend, since=NOW - 100, state=JobState(suspended_at=NOW - 100 + 0.9)
    ),
    "the operator's report is less than two seconds old": suspended(
        Wait,
        since=NOW - 1,
        check=lambda step: phase(QUEUED, REASON_WAITING_FOR_SUSPEND)(step) and step.again == 1.0,
    ),
    "the last pod was removed less than two seconds ago": suspended(
        Wait, more={"settled": 0.5}, check=lambda step: step.again == 1.5
    ),
    "nothing changes any more": suspended(Unsuspend, more={"settled": 2.0}),
    "the operator's clock is an hour ahead": suspended(
        Unsuspend, since=NOW + 3600, more={"settled": 2.0}
    ),
}


@pytest.mark.parametrize("case", RESUME.values(), ids=RESUME.keys())
def test_when_it_is_safe_to_resume(case: Case) -> None:
    check_case(case)
