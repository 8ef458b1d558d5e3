import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from kfext.controller import training_plan_writer as module
from kfext.controller.training_plan import (
    Facts,
    TrainingPlanStatus,
    Transition,
    WrittenTrainingPlan,
    decode_training_plan,
    encode_status,
    status_of,
)
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.core.job_history import MAX_POINTS
from kfext.core.progress.reported import GrowthState, Progress, Reported
from kfext.core.queue.expected import ExpectedStart
from kfext.errors import ApiError, Conflict, NotFound, NotServed, Unavailable
from kfext.model.verdict import Verdict
from kfext.names import (
    BINDING,
    GATED,
    MOVED,
    PLACED,
    PLANNED,
    PROGRESS_KNOWN,
    PROGRESSING,
    QUEUED,
    REASON_CPU_MOVED,
    REASON_CPU_RESTORED,
    REASON_DIVERGED,
    REASON_LOG_FORBIDDEN,
    REASON_RECOGNISED,
    REASON_STALLED,
    REASON_WOULD_MOVE,
    RESIZED,
    SCALED,
    STOPPED,
    SUSPENDED,
)
from kfext.state.running.policy import ConditionStatus
from tests.builders import job

JOB = job().worker(2).build()
WAITS = status_of(JOB, phase=QUEUED, verdict=Verdict("NoRoom", "full"), nodes=())
RUNS = status_of(JOB, phase=PLACED, verdict=Verdict("Placed", "on a"), nodes=("a",))
RECOGNISED = Verdict(REASON_RECOGNISED, "the log shows loss")
DIVERGED = Verdict(REASON_DIVERGED, "the last value of loss is not a number")
AWAY = Unavailable(status=0, reason="", message="away")
NO_SUCH_KIND = NotServed(status=404, reason="", message="404 page not found")


class FakeApi:
    """TrainingPlans by name. `seconds`: the time of the writer's clock.

    `error`: raised by all writes. `existing`: a TrainingPlan that appears at the next creation.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.plans: dict[str, dict[str, Any]] = {}
        self.error: ApiError | None = None
        self.existing: dict[str, Any] | None = None
        self.patches = 0

    async def merge_patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        self.patches += 1
        plan = self.plans.get(path.split("/")[-2])
        if plan is None:
            raise NotFound(status=404, reason="NotFound", message="")
        plan.update(patch)
        return plan

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        name = body["metadata"]["name"]
        if self.existing is not None:
            self.plans[name], self.existing = self.existing, None
        if name in self.plans:
            raise Conflict(status=409, reason="AlreadyExists", message="")
        self.plans[name] = body
        return body


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(module, "_SAME_SECONDS", 0.001)
    return FakeApi()


def plan_writer(api: FakeApi) -> TrainingPlanWriter:
    return TrainingPlanWriter(client=api, wall=lambda: api.seconds)  # type: ignore[arg-type]


async def written_by_writer(api: FakeApi, status: TrainingPlanStatus) -> TrainingPlanWriter:
    """Return a writer that has written a status of the job."""
    writer = plan_writer(api)
    writer.show(JOB, status)
    await run(writer)
    return writer


async def run(writer: TrainingPlanWriter, seconds: float = 0.05) -> None:
    """Let a writer write for a moment."""
    try:
        async with asyncio.timeout(seconds):
            await writer.run()
    except TimeoutError:
        pass


async def test_a_missing_plan_is_created(api: FakeApi) -> None:
    await written_by_writer(api, WAITS)
    plan = api.plans["pytorchjob-train"]
    assert plan["status"]["phase"] == QUEUED
    (owner,) = plan["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("uid-1", True)


async def test_nothing_is_written_twice(api: FakeApi) -> None:
    writer = await written_by_writer(api, WAITS)
    before = api.patches
    writer.show(JOB, WAITS)
    await run(writer)
    assert api.patches == before


async def test_only_the_newest_status_is_written(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, WAITS)
    writer.show(JOB, RUNS)
    await run(writer)
    assert api.plans["pytorchjob-train"]["status"]["phase"] == PLACED
    assert api.patches == 1


STARTS = status_of(JOB, phase=PLANNED, verdict=Verdict("Planned", "to a"), nodes=("a",))
BINDS = status_of(JOB, phase=BINDING, verdict=Verdict("WaitingForBind", "1 of 2"), nodes=("a",))


async def test_a_job_that_starts_at_once_is_first_written_when_it_is_placed(api: FakeApi) -> None:
    writer = plan_writer(api)
    for status in (STARTS, BINDS, STARTS, BINDS):
        writer.show(JOB, status)
        await run(writer)
    assert api.plans == {}
    writer.show(JOB, RUNS)
    await run(writer)
    assert (api.plans["pytorchjob-train"]["status"]["phase"], api.patches) == (PLACED, 1)


async def test_a_phase_that_lasts_is_written(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PASSING_SECONDS", 0.03)
    writer = plan_writer(api)
    writer.show(JOB, STARTS)
    writer.show(JOB, BINDS)
    await run(writer, 0.2)
    assert (api.plans["pytorchjob-train"]["status"]["phase"], api.patches) == (BINDING, 1)


async def test_the_time_of_each_passing_phase_is_counted_anew(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PASSING_SECONDS", 0.02)
    writer = TrainingPlanWriter(client=api, monotonic=lambda: api.seconds)  # type: ignore[arg-type]
    writer.show(JOB, STARTS)
    api.seconds = 20.0
    await run(writer, 0.2)
    assert api.plans["pytorchjob-train"]["status"]["phase"] == PLANNED
    writer.show(JOB, BINDS)
    await run(writer, 0.2)
    assert api.plans["pytorchjob-train"]["status"]["phase"] == PLANNED
    writer.show(JOB, RUNS)
    await run(writer, 1.2)
    assert (api.plans["pytorchjob-train"]["status"]["phase"], api.patches) == (PLACED, 2)


async def test_a_new_message_that_waits_does_not_delay_the_next_phase(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PASSING_SECONDS", 0.01)
    writer = await written_by_writer(api, WAITS)
    monkeypatch.setattr(module, "_SAME_SECONDS", 1000.0)
    writer.show(JOB, replace(WAITS, message="fuller"))
    writer.show(JOB, BINDS)
    await run(writer)
    assert api.plans["pytorchjob-train"]["status"]["phase"] == BINDING


async def test_after_an_error_of_kfext_about_one_job_the_other_jobs_are_written(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(status: TrainingPlanStatus, *rest: Any, **more: Any) -> Any:
        if status == WAITS:
            raise TypeError("Integer exceeds 64-bit range")
        return encode_status(status, *rest, **more)

    monkeypatch.setattr(f"{module.__name__}.encode_status", encode)
    writer = plan_writer(api)
    writer.show(JOB, WAITS)
    writer.show(replace(JOB, uid="uid-2", name="other"), RUNS)
    await run(writer)
    assert api.plans["pytorchjob-other"]["status"]["phase"] == PLACED
    assert "status" not in api.plans.get("pytorchjob-train", {})


@pytest.mark.parametrize("error", [AWAY, NO_SUCH_KIND], ids=["away", "its kind was removed"])
async def test_a_failed_write_is_repeated_later(api: FakeApi, error: ApiError) -> None:
    writer = plan_writer(api)
    api.error = error
    writer.show(JOB, WAITS)
    await run(writer)
    assert not api.plans
    api.error = None
    await run(writer, 0.1)
    assert api.plans


async def test_a_plan_that_a_person_deleted_is_recreated(api: FakeApi) -> None:
    writer = await written_by_writer(api, WAITS)
    written = decode_training_plan(json.dumps(api.plans.pop("pytorchjob-train")).encode())
    writer.observe(None, written)
    writer.observe(written, None)
    await run(writer)
    assert api.plans


def test_deleted_plans_of_unknown_jobs_are_forgotten(api: FakeApi) -> None:
    writer = plan_writer(api)
    transitions = {"Resized": Transition(holds=True, since="1970-01-01T00:00:00Z")}
    versions = [WrittenTrainingPlan(f"uid-{count}", WAITS, transitions) for count in range(3)]
    for old, new in pairwise([None, *versions, None]):
        writer.observe(old, new)
    assert (writer._written, writer._transitions) == ({}, {})


async def test_a_plan_is_created_once_the_plan_of_an_earlier_job_is_deleted(api: FakeApi) -> None:
    api.plans["pytorchjob-train"] = {"spec": {"job": {"uid": "uid-0"}}, "metadata": {}}
    writer = await written_by_writer(api, WAITS)
    del api.plans["pytorchjob-train"]  # by the garbage collector
    await run(writer)
    assert api.plans["pytorchjob-train"]["spec"]["job"]["uid"] == "uid-1"


async def test_writes_that_always_fail_become_rarer(api: FakeApi) -> None:
    api.plans["pytorchjob-train"] = {"spec": {"job": {"uid": "orphaned"}}, "metadata": {}}
    writer = plan_writer(api)
    writer.show(JOB, WAITS)
    await run(writer, 0.3)
    assert 2 <= api.patches <= 10, "after 1, 2, 4... ms, instead of each ms"


async def test_after_an_outage_of_the_api_server_the_pauses_are_short_again(api: FakeApi) -> None:
    writer = plan_writer(api)
    api.error = AWAY
    writer.show(JOB, WAITS)
    await run(writer)
    assert writer._pause_seconds(JOB.uid) == module._PAUSE_SECONDS
    api.error = None
    await run(writer, 0.2)
    assert api.plans["pytorchjob-train"]["status"]["phase"] == QUEUED
    for status in (RUNS, WAITS, RUNS):
        writer.show(JOB, status)
        await run(writer, 0.02)
        assert api.plans["pytorchjob-train"]["status"]["phase"] == status.phase


async def test_a_plan_created_before_a_restart_of_kfext_is_written(api: FakeApi) -> None:
    api.existing = {"spec": {"job": {"uid": "uid-1"}}, "metadata": {}}
    await written_by_writer(api, WAITS)
    assert api.plans["pytorchjob-train"]["status"]["phase"] == QUEUED


async def test_a_deleted_job_is_no_longer_written(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, WAITS)
    writer.forget(JOB.uid)
    await run(writer)
    assert not api.plans


def test_a_written_plan_is_read_back() -> None:
    written = {
        "spec": {"job": {"uid": "u"}},
        "status": {
            "phase": PLACED,
            "nodes": ["a"],
            "workers": 2,
            "network": "pod",
            "reason": "Placed",
            "message": "on a",
        },
    }
    assert decode_training_plan(json.dumps(written).encode()).status == RUNS
    assert decode_training_plan(b"{}").status == TrainingPlanStatus()


INVALID = status_of(JOB, phase=QUEUED, verdict=Verdict("NoRoom", "full"), nodes=(), invalid="bad")
EDITED = status_of(JOB, phase=QUEUED, verdict=Verdict("NoRoom", "full"), nodes=(), edited="other")


@pytest.mark.parametrize(
    ("status", "type_"),
    [(INVALID, "SettingsInvalid"), (EDITED, "ShareEdited")],
    ids=["invalid settings", "an edited share"],
)
async def test_an_edit_without_effect_is_a_condition_until_it_is_corrected(
    api: FakeApi, status: TrainingPlanStatus, type_: str
) -> None:
    writer = plan_writer(api)
    results = []
    for current in (status, WAITS):
        writer.show(JOB, current)
        await run(writer)
        plan = api.plans["pytorchjob-train"]
        conditions = plan["status"]["conditions"]
        results.append([(condition["type"], condition["status"]) for condition in conditions])
        plan["spec"] = {"job": {"uid": JOB.uid}}
        assert decode_training_plan(json.dumps(plan).encode()).status == current
    assert results == [[("Placed", "False"), (type_, "True")], [("Placed", "False")]]


async def test_the_reason_of_a_placement_stays_once_the_job_is_placed(api: FakeApi) -> None:
    writer = plan_writer(api)
    why = "5 pods go to a, 3 workers fewer than asked for"
    placed = status_of(JOB, phase=PLACED, verdict=None, nodes=("a",), planned=why)
    writer.show(JOB, placed)
    await run(writer)
    plan = api.plans["pytorchjob-train"]
    (planned,) = (
        condition for condition in plan["status"]["conditions"] if condition["type"] == "Planned"
    )
    assert (planned["status"], planned["reason"], planned["message"]) == ("True", "Planned", why)
    plan["spec"] = {"job": {"uid": JOB.uid}}
    assert decode_training_plan(json.dumps(plan).encode()).status == placed


async def test_the_time_of_a_condition_changes_only_with_its_status(api: FakeApi) -> None:
    await written_by_writer(api, WAITS)
    before = api.plans["pytorchjob-train"]
    before["status"]["conditions"][0]["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    successor = plan_writer(api)
    successor.observe(None, decode_training_plan(json.dumps(before).encode()))
    times = []
    for status in (INVALID, RUNS):
        successor.show(JOB, status)
        await run(successor)
        (placed, *_) = api.plans["pytorchjob-train"]["status"]["conditions"]
        times.append(placed["lastTransitionTime"][:4])
    assert times == ["2020", "1970"]


def test_a_pytorchjob_and_a_tfjob_of_the_same_name_have_two_training_plans() -> None:
    other = job("TFJob").worker(1).build()
    assert JOB.training_plan != other.training_plan


def progress(step: int, *, known: Verdict = RECOGNISED, **more: Any) -> Reported:
    return Reported(Progress("loss", value=0.5, step=step, at=1.0), known=known, **more)


async def test_progress_is_shown_beside_the_phase_and_stays_when_that_changes(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show_progress(JOB, progress(1))  # its phase comes first
    writer.show(JOB, WAITS)
    await run(writer)
    assert api.plans["pytorchjob-train"]["status"]["progress"] is None
    writer.show_progress(JOB, progress(1000))
    writer.show(JOB, RUNS)
    await run(writer)
    status = api.plans["pytorchjob-train"]["status"]
    assert (status["phase"], status["progress"]["step"]) == (PLACED, 1000)
    (known,) = [
        condition for condition in status["conditions"] if condition["type"] == PROGRESS_KNOWN
    ]
    assert (known["status"], known["reason"]) == ("True", REASON_RECOGNISED)


@pytest.mark.parametrize(
    ("later", "writes"),
    [
        pytest.param([(progress(1009))], 1, id="the third digit"),
        pytest.param([(progress(1100))], 2, id="the second digit"),
        pytest.param([(progress(1000 + 30 * more)) for more in range(4)], 2, id="small changes"),
        pytest.param([progress(1000, known=DIVERGED)], 2, id="another reason"),
        pytest.param([Reported()], 1, id="nothing known since a restart"),
        pytest.param([(progress(1000, state=GrowthState.NEW))], 2, id="a growth state"),
    ],
)
async def test_progress_is_written_again_only_if_a_person_would_see_the_change(
    api: FakeApi, later: list[Reported], writes: int
) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    writer.show_progress(JOB, progress(1000))
    await run(writer)
    for reported in later:
        writer.show_progress(JOB, reported)
        await run(writer)
    assert api.patches == writes
    assert api.plans["pytorchjob-train"]["status"]["progress"]["step"] >= 1000


@pytest.mark.parametrize(
    ("status", "steps"), [(RUNS, [100]), (INVALID, [100, 500])], ids=["same phase", "new phase"]
)
async def test_progress_waits_after_a_write_unless_the_phase_changes_too(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, status: TrainingPlanStatus, steps: list[int]
) -> None:
    monkeypatch.setattr(module, "_SAME_SECONDS", 1000.0)
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    for step in range(1, 6):
        writer.show_progress(JOB, progress(100 * step))
        await run(writer)
    writer.show(JOB, status)
    await run(writer)
    assert api.patches == len(steps)
    assert api.plans["pytorchjob-train"]["status"]["progress"]["step"] == steps[-1]


async def test_delayed_progress_is_written_by_itself(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    for step in range(1, 6):
        writer.show_progress(JOB, progress(100 * step))
        await run(writer, 0.01)
    await run(writer, 0.5)
    assert api.plans["pytorchjob-train"]["status"]["progress"]["step"] == 500


async def test_progress_stays_after_a_restart_of_the_controller(api: FakeApi) -> None:
    first = plan_writer(api)
    first.show(JOB, RUNS)
    first.show_progress(JOB, progress(1000))
    await run(first)
    successor = plan_writer(api)
    raw = api.plans["pytorchjob-train"]
    successor.observe(None, decode_training_plan(json.dumps(raw).encode()))
    successor.show(JOB, RUNS)
    successor.show_progress(JOB, Reported())
    await run(successor)
    assert api.patches == 1
    successor.show_progress(JOB, Reported(known=Verdict(REASON_LOG_FORBIDDEN, "may not")))
    await run(successor)
    assert api.plans["pytorchjob-train"]["status"]["progress"]["step"] == 1000


async def test_the_first_read_of_a_log_without_progress_causes_no_write(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    await run(writer)
    writer.observe(None, decode_training_plan(json.dumps(api.plans["pytorchjob-train"]).encode()))
    writer.show_progress(JOB, Reported())
    await run(writer, 0.5)
    assert api.patches == 1


async def test_progress_of_a_job_that_opts_out_is_removed_with_its_curve(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    writer.show_progress(JOB, progress(1))
    await run(writer)
    writer.show_progress(JOB, None)
    await run(writer)
    status = api.plans["pytorchjob-train"]["status"]
    assert (status["progress"], status["curve"]) == (None, "")
    assert PROGRESS_KNOWN not in {condition["type"] for condition in status["conditions"]}


WOULD = ConditionStatus(holds=False, verdict=Verdict(REASON_WOULD_MOVE, "700m of 1400m"))
RAISED = ConditionStatus(holds=True, verdict=Verdict(REASON_CPU_MOVED, "700m of 1400m"))
BACK = ConditionStatus(holds=False, verdict=Verdict(REASON_CPU_RESTORED, "no pod needs it"))


def resized_condition(api: FakeApi) -> list[tuple[str, str, str, str]]:
    """Return status, reason, message and time of the condition Resized; empty if it is absent."""
    conditions = api.plans["pytorchjob-train"]["status"]["conditions"]
    return [
        (
            condition["status"],
            condition["reason"],
            condition["message"],
            condition["lastTransitionTime"],
        )
        for condition in conditions
        if condition["type"] == RESIZED
    ]


async def test_each_change_of_the_companion_is_shown_as_a_condition(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show_companion(JOB, RESIZED, WOULD)  # its phase comes first
    writer.show(JOB, RUNS)
    await run(writer)
    assert resized_condition(api) == []
    results = []
    for api.seconds, shown in ((60.0, WOULD), (120.0, RAISED), (180.0, BACK), (240.0, None)):
        writer.show_companion(JOB, RESIZED, shown)
        await run(writer)
        results.append(resized_condition(api))
    start = "1970-01-01T00:0"
    assert results == [
        [("False", REASON_WOULD_MOVE, "700m of 1400m", f"{start}1:00Z")],
        [("True", REASON_CPU_MOVED, "700m of 1400m", f"{start}2:00Z")],
        [("False", REASON_CPU_RESTORED, "no pod needs it", f"{start}3:00Z")],
        [],
    ]


async def test_the_companions_condition_keeps_its_time_with_its_status(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    times = []
    for api.seconds, shown in ((60.0, WOULD), (120.0, BACK)):
        writer.show_companion(JOB, RESIZED, shown)
        await run(writer)
        times += [since for *_, since in resized_condition(api)]
    assert times == ["1970-01-01T00:01:00Z"] * 2


async def test_the_companions_condition_stays_when_phase_and_progress_change(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    writer.show_companion(JOB, RESIZED, RAISED)
    writer.show_progress(JOB, progress(1))
    writer.show(JOB, WAITS, keeping={RESIZED})
    await run(writer)
    assert [status for status, *_ in resized_condition(api)] == ["True"]
    assert api.plans["pytorchjob-train"]["status"]["phase"] == QUEUED


async def test_the_companions_condition_stays_after_a_restart(api: FakeApi) -> None:
    first = plan_writer(api)
    first.show(JOB, RUNS)
    first.show_companion(JOB, RESIZED, RAISED)
    await run(first)
    before = resized_condition(api)
    api.seconds = 60.0
    successor = plan_writer(api)
    raw = api.plans["pytorchjob-train"]
    successor.observe(None, decode_training_plan(json.dumps(raw).encode()))
    successor.show(JOB, RUNS, keeping={RESIZED})
    await run(successor)
    assert (api.patches, resized_condition(api)) == (1, before)
    successor.show(JOB, RUNS)
    await run(successor)
    assert resized_condition(api) == [], "the job does not ask for changes any more"


async def test_a_new_message_of_the_companion_alone_is_queued_as_a_refresh(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    writer.show_companion(JOB, RESIZED, RAISED)
    await run(writer)
    before = writer._refreshes.qsize(), writer._news.qsize()
    writer.show_companion(
        JOB, RESIZED, ConditionStatus(holds=True, verdict=Verdict(REASON_CPU_MOVED, "650m"))
    )
    assert (writer._refreshes.qsize(), writer._news.qsize()) == (before[0] + 1, before[1])
    writer.show_companion(JOB, RESIZED, BACK)
    assert writer._news.qsize() == before[1] + 1


async def test_a_message_that_is_too_long_is_cut_and_written_once(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    long = ConditionStatus(holds=True, verdict=Verdict(REASON_CPU_MOVED, "x" * 2000))
    for _ in range(2):
        writer.show_companion(JOB, RESIZED, long)
        await run(writer)
    assert [len(words) for _, _, words, _ in resized_condition(api)] == [1024]
    raw = api.plans["pytorchjob-train"]
    successor = plan_writer(api)
    successor.observe(None, decode_training_plan(json.dumps(raw).encode()))
    successor.show(JOB, RUNS)
    successor.show_companion(JOB, RESIZED, long)
    await run(successor)
    assert api.patches == 1


STALLED = Reported(cpu=0.5, moves=Verdict(REASON_STALLED, "no counter has moved since 10:00"))


@pytest.mark.parametrize(("phase", "kept"), [(PLACED, True), (GATED, True), (SUSPENDED, False)])
async def test_a_job_is_stalled_while_its_pods_run(api: FakeApi, phase: str, kept: bool) -> None:
    writer = await written_by_writer(api, RUNS)
    writer.show_progress(JOB, STALLED)
    writer.show(JOB, replace(RUNS, phase=phase))
    assert writer.progress(JOB).moves == (STALLED.moves if kept else None)


async def test_a_new_controller_keeps_a_stall_and_writes_nothing(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    writer.show_progress(JOB, STALLED)
    await run(writer)
    before = api.patches
    again = plan_writer(api)
    again.observe(None, decode_training_plan(json.dumps(api.plans["pytorchjob-train"]).encode()))
    assert again.progress(JOB).moves == STALLED.moves
    again.show(JOB, RUNS)
    again.show_progress(JOB, Reported(cpu=0.5))
    await run(again)
    assert (api.patches, again.progress(JOB).moves) == (before, STALLED.moves)


SOON = ExpectedStart(1_800_000_600.0, 1_800_000_480.0, 1_800_000_900.0, after="PyTorchJob team/a")


def expected_start(api: FakeApi) -> Any:
    return api.plans["pytorchjob-train"]["status"]["expectedStart"]


async def test_an_expected_start_is_shown_while_the_job_is_queued(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show_expected(JOB, SOON)  # its phase comes first
    writer.show(JOB, WAITS)
    await run(writer)
    assert expected_start(api) is None
    writer.show_expected(JOB, SOON)
    writer.show(JOB, replace(WAITS, message="fuller"))
    await run(writer)
    assert (expected_start(api)["time"], expected_start(api)["after"]) == (
        "2027-01-15T08:10:00Z",
        SOON.after,
    )
    writer.show(JOB, RUNS)
    writer.show_expected(JOB, SOON)
    await run(writer)
    assert expected_start(api) is None


async def test_an_expected_start_stays_after_a_restart_of_the_controller(api: FakeApi) -> None:
    writer = await written_by_writer(api, WAITS)
    writer.show_expected(JOB, SOON)
    await run(writer)
    before = api.patches
    again = plan_writer(api)
    again.observe(None, decode_training_plan(json.dumps(api.plans["pytorchjob-train"]).encode()))
    again.show(JOB, WAITS)
    again.show_expected(JOB, SOON)
    await run(again)
    assert api.patches == before


def history_of(api: FakeApi) -> list[tuple[str, str, str]]:
    """Return the time of day, the kind and the reason of each written entry of the history."""
    entries = api.plans["pytorchjob-train"]["status"]["history"]
    return [(entry["time"][11:-1], entry["what"], entry["why"]) for entry in entries]


def curve_of(api: FakeApi) -> list[str]:
    curve: str = api.plans["pytorchjob-train"]["status"]["curve"]
    return curve.split(";")


async def test_phases_and_changes_are_recorded_with_their_times_and_reasons(api: FakeApi) -> None:
    writer = plan_writer(api)
    planned = replace(STARTS, conditions={PLANNED: PLANNED_TO_A})
    for api.seconds, status in ((0.0, WAITS), (60.0, planned), (61.0, BINDS), (62.0, RUNS)):
        writer.show(JOB, status)
    api.seconds = 100.0
    writer.record(JOB, SCALED, "scaled up from 2 to 3 workers: idle room pays", nodes=("a", "b"))
    for api.seconds, status in ((100.0, planned), (120.0, BINDS), (121.0, RUNS)):
        writer.show(JOB, status)
    await run(writer)
    assert history_of(api) == [
        ("00:00:00", QUEUED, "full"),
        ("00:01:00", PLANNED, "2 pods go to a"),
        ("00:01:02", PLACED, "on a"),
        ("00:01:40", SCALED, "scaled up from 2 to 3 workers: idle room pays"),
    ]
    assert api.plans["pytorchjob-train"]["status"]["history"][-1]["nodes"] == ["a", "b"]


PLANNED_TO_A = ConditionStatus(True, Verdict("Planned", "1970-01-01T00:01:00Z: 2 pods go to a"))


async def test_a_start_long_after_a_change_of_size_has_entries_of_its_own(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    writer.record(JOB, SCALED, "grows", nodes=("a",))
    for api.seconds, status in ((1.0, STARTS), (90.0, BINDS), (300.0, RUNS)):
        writer.show(JOB, status)
    await run(writer)
    kinds = [(at, what) for at, what, _ in history_of(api)]
    assert kinds[2:] == [("00:01:30", PLANNED), ("00:05:00", PLACED)]


async def test_a_new_reason_to_wait_is_recorded_and_new_numbers_are_not(api: FakeApi) -> None:
    writer = plan_writer(api)
    behind = status_of(JOB, phase=QUEUED, verdict=Verdict("Reserved", "kept"), nodes=())
    for status in (WAITS, replace(WAITS, message="fuller"), behind, behind, WAITS):
        writer.show(JOB, status)
    await run(writer)
    assert [why for _, _, why in history_of(api)] == ["full", "kept", "full"]


async def test_entries_of_the_history_and_points_of_the_curve_cause_no_patch(api: FakeApi) -> None:
    writes = []
    for more in (False, True):
        api.plans, api.patches = {}, 0
        writer = plan_writer(api)
        for step, status in enumerate((WAITS, RUNS, RUNS, INVALID, RUNS)):
            api.seconds += 10.0
            writer.show(JOB, status)
            writer.show_progress(JOB, progress(1000 + step // 2))
            await run(writer)
            if more:
                writer.record(JOB, RESIZED, f"change {step}", nodes=("a",))
                writer.show_progress(JOB, progress(1005 + step))
                writer.show(JOB, replace(status, facts=Facts({"a": step + 1})))
                await run(writer)
        writes.append(api.patches)
    assert writes[0] == writes[1] == 4
    reasons = {why for _, _, why in history_of(api)}
    assert "change 3" in reasons, "the last patch has the entry before it"
    assert len(curve_of(api)) > 1


async def test_the_curve_has_points_with_changes_too_small_for_the_progress(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    for api.seconds, step in ((10.0, 1000), (20.0, 1001), (30.0, 1001), (40.0, 1002)):
        writer.show_progress(JOB, progress(step))
        await run(writer)
    writer.show_progress(JOB, Reported())  # nothing known since a restart
    writer.show(JOB, INVALID)
    await run(writer)
    assert curve_of(api) == ["10,1000,0.5", "20,1001,0.5", "40,1002,0.5"]


async def test_the_values_of_an_earlier_metric_are_removed_from_the_curve(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.show(JOB, RUNS)
    for api.seconds, metric in ((10.0, "loss"), (20.0, "loss"), (30.0, "accuracy")):
        step = int(1000 * api.seconds)
        writer.show_progress(JOB, Reported(Progress(metric, value=api.seconds, step=step, at=1.0)))
        await run(writer)
    assert curve_of(api) == ["10,10000,", "20,20000,", "30,30000,30.0"]


def successor_of(api: FakeApi) -> TrainingPlanWriter:
    """Return the writer of a new controller that has read the TrainingPlan."""
    writer = plan_writer(api)
    writer.observe(None, decode_training_plan(json.dumps(api.plans["pytorchjob-train"]).encode()))
    return writer


async def test_a_new_controller_continues_with_the_history_and_writes_nothing(api: FakeApi) -> None:
    writer = await written_by_writer(api, RUNS)
    writer.record(JOB, RESIZED, "it would end first", nodes=("a",))
    api.seconds = 10.0
    writer.show_progress(JOB, progress(1000))
    await run(writer)
    before = history_of(api), curve_of(api), api.patches
    successor = successor_of(api)
    api.seconds = 60.0
    successor.show(JOB, RUNS)
    successor.show_progress(JOB, progress(1000))
    await run(successor)
    assert (history_of(api), curve_of(api), api.patches) == before
    successor.show(JOB, WAITS)
    await run(successor)
    assert [what for _, what, _ in history_of(api)] == [PLACED, RESIZED, QUEUED]
    assert curve_of(api) == ["10,1000,0.5"]


async def test_a_standby_reads_a_newer_history_and_the_leader_keeps_its_own(api: FakeApi) -> None:
    writer = await written_by_writer(api, WAITS)
    standby = successor_of(api)
    old = decode_training_plan(json.dumps(api.plans["pytorchjob-train"]).encode())
    writer.show(JOB, RUNS)
    await run(writer)
    new = decode_training_plan(json.dumps(api.plans["pytorchjob-train"]).encode())
    standby.observe(old, new)
    assert standby._histories[JOB.uid].phase == PLACED
    writer.record(JOB, RESIZED, "newer than its last patch", nodes=())
    writer.observe(old, new)
    assert writer._histories[JOB.uid].entries[-1].event == RESIZED


async def test_a_recreated_training_plan_has_no_history_but_the_present_phase(api: FakeApi) -> None:
    writer = await written_by_writer(api, WAITS)
    api.seconds = 60.0
    writer.show(JOB, RUNS)
    await run(writer)
    written = decode_training_plan(json.dumps(api.plans.pop("pytorchjob-train")).encode())
    writer.observe(None, written)
    writer.observe(written, None)
    await run(writer)
    assert history_of(api) == []
    api.seconds = 600.0
    writer.show(JOB, RUNS)
    writer.show(JOB, INVALID)
    await run(writer)
    assert [(at, what) for at, what, _ in history_of(api)] == [
        ("00:01:00", PLACED),
        ("00:10:00", QUEUED),
    ]


async def test_a_resource_that_a_job_no_longer_requests_is_removed(api: FakeApi) -> None:
    writer = await written_by_writer(
        api, replace(WAITS, facts=Facts(requests={"cpu": "1", "gpu": "1"}))
    )
    writer.show(JOB, replace(RUNS, facts=Facts(requests={"cpu": "2"})))
    await run(writer)
    requests = api.plans["pytorchjob-train"]["status"]["requests"]
    assert requests == {"cpu": "2", "gpu": None}, "null removes it"


def test_the_history_of_a_deleted_job_is_forgotten(api: FakeApi) -> None:
    writer = plan_writer(api)
    writer.record(JOB, RESIZED, "it would end first", nodes=())
    writer.forget(JOB.uid)
    assert writer._histories == {}


async def test_a_training_plan_has_at_most_8_kb(api: FakeApi) -> None:
    """The job has 8 nodes, texts of a usual length, and more changes than the history keeps."""
    nodes = tuple(f"gpu-pool-a-{number:04}.internal" for number in range(8))
    sentence = (
        "8 pods need 8 nvidia.com/gpu together; 4 free, 4 short; 3 jobs are ahead in the queue"
    )
    verdict = Verdict("NoRoom", sentence)
    conditions = {
        type_: ConditionStatus(True, Verdict(REASON_CPU_MOVED, sentence))
        for type_ in (PLANNED, RESIZED, SCALED, MOVED, STOPPED, PROGRESSING)
    }
    facts = Facts(dict.fromkeys(nodes, 8), {"cpu": "16000m", "memory": "1" * 12, "gpu": "8"})
    status = replace(
        status_of(JOB, phase=PLACED, verdict=verdict, nodes=nodes),
        conditions=conditions,
        facts=facts,
    )
    writer = plan_writer(api)
    writer.show(JOB, status)
    for number in range(2 * MAX_POINTS):
        api.seconds += 600.0
        loss = 1 / (number + 3)
        reported = Progress("eval_loss", value=loss, step=1000 * number, total=10**6, at=1.0)
        writer.show_progress(JOB, Reported(reported, known=RECOGNISED))
        writer.record(
            JOB, (SCALED, RESIZED, QUEUED)[number % 3], f"{number}: {sentence}", nodes=nodes
        )
    await run(writer)
    assert 6_000 < len(json.dumps(api.plans["pytorchjob-train"], separators=(",", ":"))) <= 8192
