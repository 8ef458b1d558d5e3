"""How a TrainingPlan shows an edited job, and which changes are also events."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from kfext import names
from kfext.controller.job_display import JobDisplay
from kfext.controller.training_plan import TrainingPlanStatus
from kfext.core.lifecycle.steps import (
    ForgetPlan,
    RequestCheckpoint,
    Rescale,
    Resize,
    RestartWorkers,
    SaveState,
    Step,
    Suspend,
)
from kfext.core.progress.followed import Followed
from kfext.core.progress.reported import Reported
from kfext.core.progress.stall import MOVES, Start
from kfext.model.cpu_size import CpuSize
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.verdict import Verdict
from kfext.state.running.policy import ConditionStatus
from tests.unit.sharing.stages import World, placed


class FakePlanWriter:
    """Records the last status to show, and in `recorded` the entries of the history."""

    def __init__(self) -> None:
        self.status = TrainingPlanStatus()
        self.progress_shown: Reported | None = None
        self.recorded: list[tuple[str, str, Sequence[str]]] = []

    def record(self, job: TrainingJob, what: str, why: str, *, nodes: Sequence[str]) -> None:
        self.recorded.append((what, why, nodes))

    def shows(self, job: TrainingJob) -> bool:
        return job.uid != "gone"

    def show(
        self, job: TrainingJob, status: TrainingPlanStatus, *, keeping: Collection[str]
    ) -> None:
        self.status = status

    def show_progress(self, job: TrainingJob, progress: Reported | None) -> None:
        self.progress_shown = progress

    def since(self, job: TrainingJob, type_: str) -> float:
        return 60.0

    def progress(self, job: TrainingJob) -> Reported:
        return self.progress_shown or Reported()

    def show_companion(self, job: TrainingJob, type_: str, shown: ConditionStatus | None) -> None:
        self.companion = (type_, shown)
        conditions = {type_: shown} if shown else {}
        self.status = replace(self.status, conditions=conditions)


def shown(world: World) -> TrainingPlanStatus:
    """Return the present status of the only job."""
    writer: Any = FakePlanWriter()
    events: Any = None
    (tracked,) = world.planner.cluster.jobs.values()
    JobDisplay(world.planner, writer, events).show(tracked, tracked.phase, tracked.verdict)
    status: TrainingPlanStatus = writer.status
    return status


def share_edited(world: World) -> str:
    """Return the message of the condition ShareEdited of the only job; empty without it."""
    condition = shown(world).conditions.get(names.REASON_SHARE_EDITED)
    return condition.verdict.message if condition else ""


def edit(world: World, share: str) -> None:
    world.raw["metadata"]["annotations"][names.GPU_SHARE] = share
    world.show()
    while world.step() is not None:
        pass


def test_an_edited_share_is_shown_until_the_job_has_it() -> None:
    world = placed()
    assert share_edited(world) == ""
    edit(world, "0.9")
    assert share_edited(world).startswith("kfext.dev/gpu-share of worker is 0.5 and was edited to")
    assert shown(world).reason == names.REASON_PLACED
    edit(world, "0.5")
    assert share_edited(world) == ""


@pytest.mark.parametrize("source", ["log", "off"])
def test_the_result_of_a_read_is_not_shown_if_the_setting_no_longer_allows_reads(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, writer, events = placed(), FakePlanWriter(), cast(Any, None)
    world.raw["metadata"]["annotations"][names.METRICS] = source
    world.show()
    monkeypatch.setattr(world.planner.progress, "reported", lambda _: Reported(cpu=0.5))
    (tracked,) = world.planner.cluster.jobs.values()
    JobDisplay(world.planner, cast(Any, writer), events).show_progress(tracked)
    assert (writer.progress_shown is not None) is (source == "log")


class FakeEvents:
    """Records the events."""

    def __init__(self) -> None:
        self.recorded: list[dict[str, Any]] = []

    def record(self, about: Any, verdict: Verdict, **event: Any) -> None:
        texts = {"reason": verdict.reason, "message": verdict.message}
        self.recorded.append({"about": about.name, **texts, **event})


def event(reason: str, action: str) -> dict[str, Any]:
    common = {"about": "train", "message": "beyond the quota", "warning": True}
    return {**common, "reason": reason, "action": action}


REFUSALS: dict[str, tuple[str, str | None, list[dict[str, Any]]]] = {
    "a refusal of CPU limits": (
        names.RESIZED,
        names.REASON_RESIZE_REFUSED,
        [event(names.REASON_RESIZE_REFUSED, "Resize")],
    ),
    "a refusal of a number of workers": (
        names.SCALED,
        names.REASON_SCALE_REFUSED,
        [event(names.REASON_SCALE_REFUSED, "Rescale")],
    ),
    "not a completed change": (names.RESIZED, names.REASON_CPU_MOVED, []),
    "not the lack of a condition": (names.RESIZED, None, []),
}


@pytest.mark.parametrize(("type_", "reason", "want"), REFUSALS.values(), ids=REFUSALS)
def test_F6_refusals_are_events(type_: str, reason: str | None, want: list[dict[str, Any]]) -> None:
    world, writer, events = placed(), FakePlanWriter(), FakeEvents()
    (tracked,) = world.planner.cluster.jobs.values()
    condition: ConditionStatus | None = None
    if reason is not None:
        condition = ConditionStatus(holds=False, verdict=Verdict(reason, "beyond the quota"))
    arguments: Any = (world.planner, writer, events)
    JobDisplay(*arguments).show_companion(tracked, type_, condition)
    assert events.recorded == want
    assert writer.companion == (type_, condition)


STALLED = Verdict(names.REASON_STALLED, "no counter has moved since 10:00:00 UTC")
NAMED = Verdict(names.REASON_STALLED, "worker-3 differs")
UNREAD = Verdict(names.REASON_LOG_UNAVAILABLE, "the kubelet does not answer")
READS: dict[str, tuple[list[Verdict], Verdict | None, list[Verdict]]] = {
    # the verdict of each read on the counters, the verdict shown before, and the events
    "it progresses": ([MOVES], None, []),
    "it is stalled": ([STALLED], None, [STALLED]),
    "it stays stalled, and a pod is named": ([STALLED, NAMED], None, [STALLED]),
    "it progresses and stalls again": ([STALLED, MOVES, STALLED], None, [STALLED, STALLED]),
    "its log cannot be read": ([UNREAD], None, []),
    "an earlier controller has reported it": ([NAMED], STALLED, []),
}


@pytest.mark.parametrize(("reads", "shown", "events"), READS.values(), ids=READS)
def test_a_stalled_job_is_reported_once(
    reads: list[Verdict],
    shown: Verdict | None,
    events: list[Verdict],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, writer, recorder = placed(), FakePlanWriter(), FakeEvents()
    writer.progress_shown = Reported(moves=shown)
    (tracked,) = world.planner.cluster.jobs.values()
    display = JobDisplay(world.planner, cast(Any, writer), cast(Any, recorder))
    for read in reads:
        reported = Reported(cpu=0.5, moves=read)
        monkeypatch.setattr(world.planner.progress, "reported", lambda _, r=reported: r)
        display.show_progress(tracked)
    results = [Verdict(record["reason"], record["message"]) for record in recorder.recorded]
    assert results == events
    assert all(record["warning"] for record in recorder.recorded)


def test_a_new_controller_counts_a_job_that_is_shown_as_stalled_without_a_new_event() -> None:
    world, writer, recorder = placed(), FakePlanWriter(), FakeEvents()
    writer.progress_shown = Reported(moves=STALLED)
    (tracked,) = world.planner.cluster.jobs.values()
    progress = world.planner.progress
    followed = progress._followed[tracked.job.uid] = Followed()
    followed.start = Start(0.0, 0.0, 0.0)
    JobDisplay(world.planner, cast(Any, writer), cast(Any, recorder)).show_progress(tracked)
    assert (progress.stalled, recorder.recorded) == (1, [])
    assert writer.progress(tracked.job).moves == STALLED


WHY = Verdict("Reason", "why it changes")
SAVED = JobState(reason="Moving", message="it goes to one node")
ON_B = Plan("uid-1", 2, {ReplicaKey("worker", 0): "b"})
POD = Pod("team", "train-worker-0", uid="pod")
STEPS: dict[str, tuple[str, Step, list[tuple[str, str, Sequence[str]]]]] = {
    # the executor, the step, and what is recorded
    "a new size": (
        names.SCALED,
        Rescale(ON_B, 1, JobState(), WHY),
        [(names.SCALED, WHY.message, ("b",))],
    ),
    "new CPU": (
        names.RESIZED,
        Resize(((POD, CpuSize(request=500)),), JobState(), WHY),
        [(names.RESIZED, WHY.message, ("n",))],
    ),
    "a resize that only forgets sizes": (names.RESIZED, Resize((), JobState(), WHY), []),
    "a stop": (names.MOVED, Suspend(SAVED), [(names.MOVED, SAVED.message, ("n",))]),
    "new workers in place of workers that hang": (
        names.SCALED,
        RestartWorkers((), JobState(), WHY),
        [(names.SCALED, WHY.message, ("n",))],
    ),
    "a request for a checkpoint": (names.MOVED, RequestCheckpoint((), 1, WHY), []),
    "a state": (names.SCALED, SaveState(JobState(), verdict=WHY), []),
    "a plan that is forgotten": (names.STOPPED, ForgetPlan(JobState()), []),
    "an abandoned start, which its next phase shows": ("", Suspend(SAVED), []),
}


@pytest.mark.parametrize(("executor", "step", "want"), STEPS.values(), ids=STEPS)
def test_a_change_of_a_running_job_is_recorded_with_its_reason(
    executor: str, step: Step, want: list[tuple[str, str, Sequence[str]]]
) -> None:
    world, writer = placed(), FakePlanWriter()
    (tracked,) = world.planner.cluster.jobs.values()
    tracked.executor_condition = executor
    JobDisplay(world.planner, cast(Any, writer), cast(Any, None)).record(tracked, step)
    assert writer.recorded == want


def test_nothing_is_recorded_for_a_job_without_a_training_plan() -> None:
    world, writer = placed(), FakePlanWriter()
    (tracked,) = world.planner.cluster.jobs.values()
    tracked.executor_condition, tracked.job = names.SCALED, replace(tracked.job, uid="gone")
    step = Rescale(ON_B, 1, JobState(), WHY)
    JobDisplay(world.planner, cast(Any, writer), cast(Any, None)).record(tracked, step)
    assert writer.recorded == []


def test_a_placed_job_shows_where_its_pods_are_and_what_they_request() -> None:
    facts = shown(placed()).facts
    assert facts.places == {"n": 1}
    assert facts.requests["nvidia.com/gpu"] == "1"
    assert (facts.minimum, facts.requested) == (None, None)
