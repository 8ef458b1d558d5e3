"""Gangs that are born pinned: which gangs are, and what kfext does until all pods are bound."""

from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest

from kfext import names
from kfext.controller.metrics import Metrics
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import QueueContext
from kfext.core.lifecycle.steps import (
    DeleteUnbound,
    Pin,
    Release,
    Replan,
    SaveState,
    Step,
    Suspend,
    Unsuspend,
    Wait,
    job_operations,
)
from kfext.model.job import TrainingJob, parse_job
from kfext.model.job_state import JobState, ObservedPods
from kfext.model.parameters import Placement
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import BINDING, PLACED, PLANNED, REASON_CREATE_TIMEOUT
from kfext.state.mirror.pod_backlog import still_to_come
from tests.builders import JobBuilder, job, situation_of
from tests.unit.core.lifecycle.cases import TWO_NODES, plan, worker, workers

UNDISTURBED = {"context": QueueContext(disturbed="")}
PLAN = plan("a", "a", "a")
WHY = Verdict("Why", "why")
Raw = dict[str, Any]


def held(**spec: Any) -> JobBuilder:
    return job().worker(3, cpu="1", spec=spec).held()


def gated_by(builder: JobBuilder, **more: Any) -> str:
    """Return why a job that starts waits at the gate, empty for a job that is born pinned."""
    step = next_step(situation_of(job=builder.build(), **{**UNDISTURBED, **more}), TWO_NODES)
    assert isinstance(step, Unsuspend)
    return step.gated_by


GATED: dict[str, tuple[JobBuilder, dict[str, Any], str]] = {
    "other pods wait": (held(), {"context": QueueContext()}, "pods"),
    "the namespace has a quota": (held(), {"context": QueueContext(disturbed="quota")}, "quota"),
    "its last attempt failed": (held(), {"state": JobState(strikes=1)}, "attempt"),
    "admission changed earlier pods": (
        held(),
        {"state": JobState(observed={"worker": ObservedPods(template=1)})},
        "attempt",
    ),
    "a RuntimeClass may add to its pods": (held(runtimeClassName="gvisor"), {}, "template"),
    "another system gates its pods": (held(schedulingGates=[{"name": "other"}]), {}, "template"),
    "the policy has switched it off": (
        held(),
        {"placement": Placement(born_pinned=False)},
        "policy",
    ),
}


def test_a_gang_is_born_pinned_if_no_other_pod_can_take_its_capacity() -> None:
    assert gated_by(held()) == ""


@pytest.mark.parametrize(("builder", "more", "why"), GATED.values(), ids=GATED)
def test_a_gang_waits_at_the_gate_if(builder: JobBuilder, more: dict[str, Any], why: str) -> None:
    assert gated_by(builder, **more) == why


STARTS: dict[str, tuple[Step, bool, dict[str, str]]] = {
    "a gang that is born pinned": (
        Unsuspend(PLAN, WHY, gated_by=""),
        False,
        {"how": "born pinned", "why": ""},
    ),
    "a gang that waits at the gate": (
        Unsuspend(PLAN, WHY, gated_by="pods"),
        False,
        {"how": "gated", "why": "pods"},
    ),
    "a gang that was not bound in time": (Suspend(JobState()), True, {"how": "stuck", "why": ""}),
}


@pytest.mark.parametrize(("step", "being_created", "labels"), STARTS.values(), ids=STARTS)
def test_the_gang_metric_counts(step: Step, *, being_created: bool, labels: dict[str, str]) -> None:
    metrics = Metrics()
    metrics.count(step, being_created=being_created)
    assert metrics.registry.get_sample_value("kfext_gangs_total", labels) == 1.0


# --- the places on the templates ------------------------------------------------------------------


def raw_after(raw: Raw, step: Step) -> Raw:
    """Return a job after the patch of a step."""
    job = parse_job(raw)
    assert job is not None
    after: Raw = jsonpatch.apply_patch(raw, job_operations(step, raw, job) or [])
    return after


def started() -> Raw:
    """Return a job after the patch that starts it born pinned."""
    return raw_after(held().raw, Unsuspend(PLAN, WHY, gated_by=""))


def parsed(raw: Raw) -> TrainingJob:
    job = parse_job(raw)
    assert job is not None
    return job


def test_the_patch_that_starts_the_job_writes_the_places_on_the_template() -> None:
    template = started()["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    places = '{"uid":"uid-1","nodes":["a"],"replicas":{"worker":[0,0,0]}}'
    assert template["metadata"]["annotations"][names.PLACES] == places
    assert parsed(started()).being_created


ENDS: dict[str, Step] = {
    "all its pods are bound": SaveState(JobState()),
    "it gets a new plan": Replan(plan("b", "b", "b", generation=2), WHY),
    "it is suspended": Suspend(JobState()),
    "unbound pods are deleted": DeleteUnbound((), JobState()),
    "it is released": Release((), WHY),
}


@pytest.mark.parametrize("step", ENDS.values(), ids=ENDS)
def test_the_places_are_removed_from_the_template_when(step: Step) -> None:
    assert not parsed(raw_after(started(), step)).being_created


def test_a_later_start_with_pods_at_the_gate_removes_stale_places() -> None:
    suspended = raw_after(started(), Suspend(JobState()))
    stale = jsonpatch.apply_patch(
        suspended,
        [
            {
                "op": "add",
                "path": "/spec/pytorchReplicaSpecs/Worker/template/metadata/annotations/"
                "kfext.dev~1places",
                "value": "{}",
            }
        ],
    )
    assert not parsed(raw_after(stale, Unsuspend(PLAN, WHY))).being_created


# --- while it is being created --------------------------------------------------------------------


def step_of(pods: list[Pod], **more: Any) -> Step:
    situation = situation_of(job=parsed(started()), pods=tuple(pods), plan=PLAN, **more)
    return next_step(situation, TWO_NODES)


def waits(phase: str) -> Callable[[Step], bool]:
    return lambda step: isinstance(step, Wait) and step.phase == phase


def stops(step: Step) -> bool:
    return isinstance(step, Suspend) and step.state.reason == REASON_CREATE_TIMEOUT


BOUND, PINNED = (
    [worker(0, bound="a"), worker(1, bound="a")],
    [worker(0, bound="a"), worker(1, bound="a"), worker(2, pinned="a")],
)
CREATED: dict[str, tuple[list[Pod], dict[str, Any], Callable[[Step], bool]]] = {
    "the third pod is not created yet": (BOUND, {"quiet": 1.0}, waits(PLANNED)),
    "the third pod is refused, so kfext stops the other two": (BOUND, {"quiet": 31.0}, stops),
    "all pods exist, and one is not bound yet": (PINNED, {}, waits(BINDING)),
    "a pod with the gate of another webhook is pinned to the node of the plan": (
        [*BOUND, worker(2, gated=True)],
        {},
        lambda step: isinstance(step, Pin) and [node for _, node in step.pins] == ["a"],
    ),
    "a pod is pinned to the node of an earlier plan, from the operator's stale cache": (
        [*BOUND, worker(2, pinned="b")],
        {"waited": 3.0},
        lambda step: isinstance(step, DeleteUnbound),
    ),
    "a pod is not bound in time": (
        PINNED,
        {"unbound": {PINNED[2].uid: 61.0}},
        lambda step: isinstance(step, DeleteUnbound),
    ),
    "all pods are bound, so later pods wait at the gate": (
        workers(bound="a"),
        {},
        lambda step: isinstance(step, SaveState),
    ),
}


@pytest.mark.parametrize(("pods", "more", "want"), CREATED.values(), ids=CREATED)
def test_the_step_of_a_gang_that_is_being_created(
    pods: list[Pod], more: dict[str, Any], want: Callable[[Step], bool]
) -> None:
    step = step_of(pods, **more)
    assert want(step), step


def test_a_gang_that_loses_a_pod_after_all_were_bound_is_not_stopped() -> None:
    whole = parsed(raw_after(started(), SaveState(JobState())))
    situation = situation_of(job=whole, pods=tuple(BOUND), plan=PLAN, quiet=31.0)
    assert waits(PLACED)(next_step(situation, TWO_NODES))


def test_the_places_are_removed_from_the_template_if_a_person_suspends_the_job() -> None:
    raw = started()
    raw["spec"]["runPolicy"]["suspend"] = True
    step = next_step(situation_of(job=parsed(raw), plan=PLAN), TWO_NODES)
    assert isinstance(step, SaveState)
    assert not parsed(raw_after(raw, step)).being_created


def test_the_missing_pods_of_a_gang_that_is_being_created_are_still_to_come() -> None:
    assert still_to_come(parsed(started()), BOUND) == 1
    whole = parsed(raw_after(started(), SaveState(JobState())))
    assert still_to_come(whole, BOUND) == 0
