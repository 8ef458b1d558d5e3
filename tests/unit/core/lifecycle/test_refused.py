"""A write that the API server refuses permanently holds up no job."""

from collections.abc import Mapping
from typing import Any

import pytest

from kfext.core.lifecycle.refused import instead_of, while_refused
from kfext.core.lifecycle.situation import Refused
from kfext.core.lifecycle.steps import (
    STEP_DESCRIPTIONS,
    Release,
    RequestCheckpoint,
    Rescale,
    Resize,
    RestartWorkers,
    SaveState,
    Step,
    Suspend,
    Ungate,
    Wait,
)
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import (
    FINISHED,
    GATED,
    PHASE_RELEASED,
    PLACED,
    PLANNED,
    QUEUED,
    REASON_NO_ROOM,
    REASON_WRITE_REFUSED,
)
from tests.builders import situation_of
from tests.unit.core.lifecycle.cases import (
    NOW,
    Case,
    begun,
    check_case,
    full,
    held,
    phase,
    plan,
    stopped,
    three,
    worker,
    workers,
)


def refusing(*steps: str, **more: Any) -> Mapping[str, Any]:
    return {"refused": {step: Refused("denied by policy", 200.0) for step in steps}, **more}


def waits(wanted: str, *, words: str = "denied by policy") -> Any:
    return lambda step: (
        phase(wanted, REASON_WRITE_REFUSED)(step)
        and step.again == 200.0
        and words in step.verdict.message
    )


REQUIRED = {"colocation": "required"}
REFUSED: dict[str, Case] = {
    "to unsuspend it: released": held(
        Release,
        more=refusing("Unsuspend"),
        check=lambda step: (
            step.verdict.reason == REASON_WRITE_REFUSED
            and "refuses to unsuspend it under its plan: denied by policy" in step.verdict.message
        ),
    ),
    "to unsuspend it, and to release it": held(
        Wait, more=refusing("Unsuspend", "Release"), check=waits(QUEUED)
    ),
    "to unsuspend it, and colocation is required": held(
        Wait, more=refusing("Unsuspend", **REQUIRED), check=waits(QUEUED, words="never released")
    ),
    "to unsuspend it, and there is no capacity now": held(
        Wait, on=full(), more=refusing("Unsuspend"), check=phase(QUEUED)
    ),
    "to pin its pods: released": begun(Release, workers(gated=True), more=refusing("Pin")),
    "to pin its pods, and to release it: ungated": begun(
        Ungate,
        workers(gated=True),
        more=refusing("Pin", "Release"),
        check=lambda step: len(step.pods) == 3,
    ),
    "any write": begun(
        Wait, workers(gated=True), more=refusing("Pin", "Release", "Ungate"), check=waits(GATED)
    ),
    "to stop it for lack of pods: it is not placed": begun(
        Wait, more=refusing("Suspend", **REQUIRED, waited=90.0, quiet=90.0), check=waits(PLANNED)
    ),
    "to pin its pods, and colocation is required: stopped": begun(
        Suspend,
        workers(gated=True),
        more=refusing("Pin", **REQUIRED),
        check=lambda step: (
            stopped(REASON_WRITE_REFUSED, 1)(step) and step.state.retry_at == NOW + 15
        ),
    ),
    "to pin or suspend it, and colocation is required": begun(
        Wait, workers(gated=True), more=refusing("Pin", "Suspend", **REQUIRED), check=waits(GATED)
    ),
    "to pin the rest of a required gang that runs in part: it continues": begun(
        Wait,
        [*workers(bound="a")[:2], worker(2, gated=True)],
        more=refusing("Pin", **REQUIRED),
        check=waits(GATED),
    ),
    "to pin the pods of a required job that Kueue started: only Kueue stops it": Case(
        Wait,
        three().resumed().queued_by_kueue(),
        workers(gated=True),
        plan("a", "a", "a"),
        more=refusing("Pin", **REQUIRED),
        check=waits(GATED),
    ),
    "its new plan": Case(Release, three().resumed(), workers(gated=True), more=refusing("Replan")),
    "to delete its unbound pods: released, which deletes them too": begun(
        Release,
        workers(pinned="a"),
        more=refusing("DeleteUnbound", waited=60.0),
        check=lambda step: len(step.pods) == 3,
    ),
    "to record that it was resumed by hand, with pods at the gate: released": Case(
        Release, three().held().resumed(), workers(gated=True), more=refusing("SaveState")
    ),
    "to record the state of a running job: it continues": Case(
        Wait,
        three().held().resumed(),
        workers(bound="a"),
        more=refusing("SaveState"),
        check=waits(PLACED),
    ),
    "to ungate the pods of a released job": Case(
        Wait,
        three().resumed().released(),
        workers(gated=True),
        more=refusing("Ungate"),
        check=waits(PHASE_RELEASED),
    ),
    "to delete pods of a job that has ended": Case(
        Wait,
        three().resumed().condition("Failed"),
        workers(pinned="a"),
        plan("a", "a", "a"),
        more=refusing("DeleteUnbound", waited=60.0),
        check=waits(FINISHED),
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_a_write_that_is_refused_permanently(case: Case) -> None:
    check_case(case)


CONTINUES: dict[str, tuple[Step, str]] = {
    "resized": (Resize((), JobState(), Verdict("R", "m")), "to resize its pods"),
    "asked for a checkpoint": (
        RequestCheckpoint((), 1, Verdict("R", "m")),
        "to ask it for a checkpoint",
    ),
    "given a new size": (
        Rescale(Plan("uid-1", 1), 2, JobState(), Verdict("R", "m")),
        "to give it another number of workers",
    ),
    "restarted": (
        RestartWorkers((), JobState(), Verdict("R", "m")),
        "to record why its workers are replaced",
    ),
}


@pytest.mark.parametrize("pods", [workers(bound="a"), workers(gated=True)], ids=["runs", "gated"])
@pytest.mark.parametrize(("step", "description"), CONTINUES.values(), ids=CONTINUES)
def test_a_running_job_continues_if_its_change_is_refused(
    step: Step, description: str, pods: list[Pod]
) -> None:
    job = three().resumed().build()
    refused = {type(step).__name__: Refused("denied by policy", 200.0)}
    situation = situation_of(job, tuple(pods), plan("a", "a", "a"), refused=refused)
    result = instead_of(situation, step)
    assert isinstance(result, Wait)
    assert result.verdict is not None
    assert f"refuses {description}: denied by policy" in result.verdict.message


def test_every_step_that_writes_can_be_refused() -> None:
    assert {*STEP_DESCRIPTIONS, Wait.__name__} == {step.__name__ for step in Step.__args__}


def test_a_job_shows_its_own_reason_if_only_the_record_of_its_settings_is_refused() -> None:
    builder = three().held()
    template = builder.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": {"kfext.dev/colocation": "preferred"}}
    more = refusing("SaveState", stated={"kfext.dev/network": "host"})
    check_case(Case(Wait, builder, on=full(), more=more, check=phase(QUEUED, REASON_NO_ROOM)))


def test_no_message_is_written_while_a_record_is_refused() -> None:
    wait = while_refused(three().held().build(), (), SaveState.__name__, "denied")
    assert wait is None
