import asyncio
import math
from typing import Any

import pytest

from kfext import names
from kfext.controller import reconciler
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Resize, Step, Unsuspend
from kfext.core.patches import job as job_patch
from kfext.core.settings.table import Settings
from kfext.errors import Conflict, Invalid, KfextError, Unavailable
from kfext.model.moment import Moment
from kfext.model.verdict import Verdict
from kfext.names import QUEUED, REASON_TOO_BIG
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner import planner as planner_module
from kfext.state.planner.planner import MAX_DECISIONS
from kfext.state.running.running_jobs import News
from tests.builders import node
from tests.gpu_builders import plain_node, sharing, slot
from tests.unit.controller.bench import Bench, gang, refusing, succeed
from tests.unit.controller.model import FakeApi


async def test_the_capacity_of_a_start_is_held_while_it_is_being_written(bench: Bench) -> None:
    async def answer(entry: TrackedJob, step: Step) -> bool:
        bench.submit(gang("second"))
        await bench.tick()
        return True

    bench.writer.answer = answer
    bench.submit(gang("first"))
    await bench.tick()
    assert bench.started() == ["first"]


async def test_a_loop_that_stood_still_pauses_for_events_before_the_next_tick(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = asyncio.Event()

    async def write(entry: TrackedJob, step: Step) -> bool:
        written.set()
        return True

    bench.writer.answer = write
    monkeypatch.setattr(reconciler, "_CATCH_UP_SECONDS", 0.1)
    loop = asyncio.create_task(bench.reconciler.run())
    await asyncio.sleep(0)
    bench.now = 20.0
    bench.submit(gang("one"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert bench.reconciler.since_tick() == 20.0
    await written.wait()
    assert bench.started() == ["one"]
    loop.cancel()


async def test_calm_is_called_only_after_ticks_that_leave_no_decision(bench: Bench) -> None:
    calm: list[float] = []
    bench.reconciler._calm = lambda now: calm.append(now.monotonic)
    for number in range(MAX_DECISIONS + 1):
        bench.submit(gang(f"job-{number}", cpu="9"))
    for _ in range(3):
        bench.now += 1.0
        await bench.tick()
    assert calm == [2.0, 3.0]


async def test_a_start_that_fails_once_keeps_its_hold_and_is_tried_again(bench: Bench) -> None:
    bench.writer.answer = refusing(Conflict(status=409, reason="Conflict", message="again"))
    bench.submit(gang("one"))
    await bench.tick()
    assert bench.planner.cluster.holds.holders() == ("one",)
    assert not bench.cluster.jobs["one"].busy
    assert "one" in bench.planner.alarms


async def test_a_start_that_fails_twice_releases_its_hold_and_is_tried_again(bench: Bench) -> None:
    bench.writer.answer = refusing(Conflict(status=409, reason="Conflict", message="again"))
    bench.submit(gang("one"))
    for _ in range(2):
        await bench.tick()
        bench.now += 5.0
    assert len(bench.writer.steps) == 2
    assert len(bench.cluster.ledger) == 0
    assert not bench.cluster.jobs["one"].busy
    assert "one" in bench.planner.alarms


async def test_only_one_step_of_a_job_is_written_at_a_time(bench: Bench) -> None:
    async def tick_during_write(entry: TrackedJob, step: Step) -> bool:
        bench.writer.answer = succeed
        bench.cluster.mark(entry.job.uid)
        await bench.tick()
        return True

    bench.writer.answer = tick_during_write
    bench.submit(gang("one", workers=1))  # there is capacity for it twice
    await bench.tick()
    assert len(bench.writer.steps) == 1
    assert "one" in bench.cluster.changed, "the next tick decides on it again"


async def test_a_step_that_was_written_in_part_is_tried_again(bench: Bench) -> None:
    async def partly(entry: TrackedJob, step: Step) -> bool:
        return False

    bench.writer.answer = partly
    bench.submit(gang("one"))
    await bench.tick()
    assert "one" in bench.planner.alarms


async def test_a_job_that_is_deleted_while_it_is_started_leaves_nothing(bench: Bench) -> None:
    builder = gang("one")
    api = FakeApi(builder.raw, [])

    async def delete_during_write(entry: TrackedJob, step: Step) -> bool:
        assert isinstance(step, Unsuspend)
        api.patch_job(job_patch.unsuspend_patch(entry.raw, entry.job, step.plan))
        bench.cluster.forget_job("one")
        bench.cluster.observe_job(api.job)  # the answer comes after the deletion
        return True

    bench.writer.answer = delete_during_write
    bench.submit(builder)
    await bench.tick()
    assert len(bench.cluster.ledger) == 0
    assert not bench.cluster.jobs


async def test_a_job_is_released_after_it_was_too_big_for_60_seconds(bench: Bench) -> None:
    bench.submit(gang("one", cpu="2"))
    await bench.tick()
    assert bench.reports[-1][2].reason == REASON_TOO_BIG  # type: ignore[union-attr]
    bench.now = 59.0
    bench.cluster.mark("one")
    await bench.tick()
    assert not bench.writer.steps
    bench.now = 60.0
    bench.cluster.mark("one")
    await bench.tick()
    assert [type(step).__name__ for _, step in bench.writer.steps] == ["Release"]


async def test_the_60_seconds_restart_if_a_job_fits_in_between(bench: Bench) -> None:
    bench.submit(gang("big", cpu="2"))
    await bench.tick()
    bench.now = 30.0
    bench.cluster.observe_node(None, node("b", cpu="4"))
    bench.cluster.observe_pod(None, None)
    bench.writer.answer = refusing(Conflict(status=409, reason="Conflict", message="again"))
    await bench.tick()
    assert bench.started() == ["big"]
    bench.cluster.observe_node(node("b", cpu="4"), None)
    bench.now = 70.0
    bench.cluster.mark("big")
    await bench.tick()
    assert bench.started() == ["big"]
    assert len(bench.writer.steps) == 1, "it has just become too big again"


async def test_a_job_has_one_alarm_after_a_second_decision(bench: Bench) -> None:
    bench.submit(gang("one", cpu="2"))
    await bench.tick()
    first = bench.planner.next_alarm()
    bench.now = 1.0
    bench.cluster.mark("one")
    await bench.tick()
    assert first == 60.0
    assert bench.planner.alarms.due(60.0) == ["one"]
    assert bench.planner.next_alarm() == math.inf


async def _fail_for_bad(entry: TrackedJob, step: Step) -> bool:
    if entry.job.uid == "bad":
        raise KeyError("a bug")
    return True


async def test_after_an_error_of_kfext_in_a_write_the_others_are_done(bench: Bench) -> None:
    bench.writer.answer = _fail_for_bad
    bench.submit(gang("bad", workers=1))
    bench.submit(gang("good", workers=1))
    await bench.tick()
    bench.now = 120.0
    bench.cluster.mark("bad")
    await bench.tick()
    assert bench.started()[:3] == ["bad", "good", "bad"]


@pytest.mark.parametrize(
    ("bad", "method"),
    [
        pytest.param("first", "finish", id="while its step ends"),
        pytest.param("second", "_record_step", id="while its decision is recorded"),
        pytest.param("second", "record", id="while it is queued"),
        pytest.param("second", "show", id="while it is shown"),
    ],
)
async def test_after_an_error_of_kfext_about_one_job_the_others_are_decided_on(
    bad: str, method: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = {"show": bench.display, "record": bench.planner.queue}
    owner: object = owners.get(method, bench.planner)
    original = getattr(owner, method)

    def fail_for_bad(tracked: TrackedJob, *rest: Any, **more: Any) -> Any:
        if tracked.job.uid == bad:
            raise KeyError("a bug")
        return original(tracked, *rest, **more)

    monkeypatch.setattr(owner, method, fail_for_bad)
    for created, uid in enumerate(("first", "second", "third")):  # there is capacity for one job
        bench.submit(gang(uid, created=created))
    await bench.tick()
    assert bench.started() == ["first"]
    assert [report[:2] for report in bench.reports if report[0] == "third"] == [("third", QUEUED)]


async def test_an_error_in_the_decision_on_one_job_does_not_stop_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_for_bad(situation: Situation, ledger: Ledger, *more: Any) -> Step:
        if situation.job.uid == "bad":
            raise KeyError("a bug")
        return next_step(situation, ledger, *more)

    monkeypatch.setattr(planner_module, "next_step", fail_for_bad)
    bench.submit(gang("bad", created=1))
    bench.submit(gang("good", created=2))
    await bench.tick()
    assert bench.started() == ["good"]


# --- the companion --------------------------------------------------------------------------------


BEYOND = Invalid(status=422, reason="Invalid", message="beyond the quota")
AWAY = Unavailable(status=0, reason="", message="no connection")


class FakeCompanion:
    """Resizes `job` at the next call of `steps`, or raises `error`.

    `requested`: the number of calls of `steps`. `outcomes`: whether each step was completed, and
    the final refusal. `looks_at`: the time for `next_look`.
    """

    def __init__(self, bench: Bench) -> None:
        self.requested = 0
        self.looks_at = math.inf
        self.outcomes: list[tuple[bool, str]] = []
        self.job = ""
        self.failures: list[tuple[TrackedJob, Exception]] = []
        self.error: Exception | None = None
        self._bench = bench
        bench.planner.companion = self  # type: ignore[assignment]

    def adopt(self, now: Moment) -> None:
        pass

    def observe(self, tracked: TrackedJob, settings: Settings) -> None:
        if self.error is not None:
            raise self.error

    def keeps_hold(self, uid: str) -> bool:
        return False

    may_return = keeps_hold

    def steps(self, now: Moment) -> list[tuple[TrackedJob, Step]]:
        self.requested += 1
        if self.error is not None:
            raise self.error
        if not self.job:
            return []
        tracked, self.job = self._bench.cluster.jobs[self.job], ""
        step = Resize((), tracked.state, Verdict(names.REASON_CPU_MOVED, "why"))
        tracked.decide(step, at=now.monotonic)
        tracked.executor_condition = "Resized"
        return [(tracked, step)]

    def news(self) -> list[News]:
        return []

    def next_look(self) -> float:
        return self.looks_at

    def finish(self, uid: str, by: str, *, complete: bool, final: str, now: float) -> None:
        self.outcomes.append((complete, final))


@pytest.mark.parametrize("complete", [True, False])
async def test_a_change_is_recorded_once_all_of_it_is_written(bench: Bench, complete: bool) -> None:
    async def answer(entry: TrackedJob, step: Step) -> bool:
        return complete

    companion = FakeCompanion(bench)
    bench.submit(gang("one"))
    await bench.tick()
    bench.display.recorded.clear()
    bench.writer.answer, companion.job = answer, "one"
    bench.now += 20.0
    await bench.tick()
    changes = [(uid, by) for uid, by, _ in bench.display.recorded if by]
    assert changes == ([("one", "Resized")] if complete else [])


async def test_jobs_are_placed_although_the_companion_raises_errors(bench: Bench) -> None:
    FakeCompanion(bench).error = KeyError("a bug")
    for uid in ("one", "two"):
        bench.submit(gang(uid, cpu="500m"))
        await bench.tick()
    assert set(bench.started()) == {"one", "two"}


async def test_the_companion_runs_once_no_decision_is_pending(bench: Bench) -> None:
    companion = FakeCompanion(bench)
    for number in range(MAX_DECISIONS + 1):
        bench.submit(gang(f"job-{number}", cpu="64"))
    await bench.tick()
    assert companion.requested == 0
    await bench.tick()
    assert companion.requested == 1


async def test_the_companion_runs_every_ten_seconds_beside_decisions(bench: Bench) -> None:
    companion = FakeCompanion(bench)
    for number in range(1000):
        bench.submit(gang(f"job-{number}", cpu=f"{2000 + number % 200}m", created=number))
    requested = []
    for _ in range(250):
        bench.now += 0.1
        bench.cluster.mark_queue()
        await bench.tick()
        requested.append(companion.requested)
    assert requested[98] == 0, "each tick leaves decisions"
    assert (requested[100], requested[-1]) == (1, 2)


async def test_the_companion_runs_when_its_next_look_is_due(bench: Bench) -> None:
    companion = FakeCompanion(bench)
    for number in range(MAX_DECISIONS + 1):
        bench.submit(gang(f"job-{number}", cpu="64"))
    companion.looks_at = 1.0
    bench.now = 1.0
    await bench.tick()
    assert companion.requested == 1


@pytest.mark.parametrize(
    ("error", "final"),
    [
        pytest.param(
            Invalid(status=422, reason="Invalid", message="beyond the quota"),
            "beyond the quota",
            id="refused",
        ),
        pytest.param(
            Unavailable(status=0, reason="", message="no connection"), "", id="not answered"
        ),
    ],
)
async def test_a_resize_that_fails_does_not_count_as_a_failed_placement(
    bench: Bench, error: KfextError, final: str
) -> None:
    companion = FakeCompanion(bench)
    bench.submit(gang("one", cpu="64"))
    await bench.tick()
    tracked, shown = bench.cluster.jobs["one"], len(bench.reports)
    companion.job = "one"
    bench.writer.answer = refusing(error)
    await bench.tick()
    assert [complete for complete, _ in companion.outcomes] == [False]
    assert final in companion.outcomes[0][1]
    assert tracked.settled
    assert not tracked.refusals
    assert len(bench.reports) == shown
    assert "one" in bench.cluster.changed


@pytest.mark.parametrize("complete", [True, False])
async def test_a_job_is_decided_on_again_after_its_resize(bench: Bench, *, complete: bool) -> None:
    async def answer(entry: TrackedJob, step: Step) -> bool:
        return complete

    companion = FakeCompanion(bench)
    bench.submit(gang("one", cpu="64"))
    await bench.tick()
    companion.job = "one"
    bench.writer.answer = answer
    await bench.tick()
    assert companion.outcomes == [(complete, "")]
    assert bench.cluster.jobs["one"].settled
    assert "one" in bench.cluster.changed


@pytest.mark.parametrize(
    "error", [Unavailable(status=503, reason="", message=""), KeyError("a bug")]
)
async def test_a_failed_reservation_of_a_gpu_is_retried_for_its_job(error: Exception) -> None:
    bench = Bench()
    bench.cluster.observe_node(None, plain_node("gpu"))
    bench.cluster.observe_card(None, slot("gpu"))
    bench.writer.card_error = error
    bench.submit(sharing().held())
    await bench.tick()
    await bench.tick()
    assert [step.place for step in bench.writer.card_steps] == [("gpu", 0)]
    bench.writer.card_error, bench.now = None, 60.0
    await bench.tick()
    await bench.tick()
    assert len(bench.writer.card_steps) == 2
