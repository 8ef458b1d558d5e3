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
from kfext.state.planner.planner import MOST_DECISIONS
from kfext.state.running.running_jobs import News
from tests.builders import node
from tests.gpu_builders import plain_node, sharing, slot
from tests.unit.controller.bench import Bench, gang, refusing, succeed
from tests.unit.controller.model import FakeApi


async def test_a_step_that_is_being_written_already_counts(bench: Bench) -> None:
    async def slowly(entry: TrackedJob, step: Step) -> bool:
        bench.submit(gang("second"))
        await bench_tick_without_waiting()
        return True

    async def bench_tick_without_waiting() -> None:
        async with asyncio.TaskGroup() as writes:
            bench.reconciler.tick(writes)

    bench.writer.answer = slowly
    bench.submit(gang("first"))
    await bench.tick()
    assert bench.started() == ["first"]


async def test_a_loop_that_was_stopped_first_handles_the_events_of_that_time(
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


async def test_only_ticks_that_leave_no_decision_open_are_calm(bench: Bench) -> None:
    calm: list[float] = []
    bench.reconciler._calm = lambda now: calm.append(now.monotonic)
    for number in range(MOST_DECISIONS + 1):
        bench.submit(gang(f"job-{number}", cpu="9"))
    for _ in range(3):
        bench.now += 1.0
        await bench.tick()
    assert calm == [2.0, 3.0]


async def test_a_start_that_failed_once_keeps_its_capacity_and_is_tried_again(bench: Bench) -> None:
    bench.writer.answer = refusing(Conflict(status=409, reason="Conflict", message="again"))
    bench.submit(gang("one"))
    await bench.tick()
    assert bench.planner.cluster.holds.holders() == ("one",)
    assert not bench.cluster.jobs["one"].busy
    assert "one" in bench.planner.alarms


async def test_a_start_that_failed_again_releases_its_capacity_and_is_tried_again(
    bench: Bench,
) -> None:
    bench.writer.answer = refusing(Conflict(status=409, reason="Conflict", message="again"))
    bench.submit(gang("one"))
    for _ in range(2):
        await bench.tick()
        bench.now += 5.0
    assert len(bench.writer.steps) == 2
    assert len(bench.cluster.ledger) == 0
    assert not bench.cluster.jobs["one"].busy
    assert "one" in bench.planner.alarms


async def test_one_step_of_a_job_at_a_time(bench: Bench) -> None:
    async def during(entry: TrackedJob, step: Step) -> bool:
        bench.writer.answer = succeed
        bench.cluster.mark(entry.job.uid)
        async with asyncio.TaskGroup() as writes:
            bench.reconciler.tick(writes)
        return True

    bench.writer.answer = during
    bench.submit(gang("one", workers=1))  # there is capacity for it twice
    await bench.tick()
    assert len(bench.writer.steps) == 1
    assert "one" in bench.cluster.changed, "to be decided on again, now that it is written"


async def test_a_step_that_was_written_in_part_is_tried_again(bench: Bench) -> None:
    async def partly(entry: TrackedJob, step: Step) -> bool:
        return False

    bench.writer.answer = partly
    bench.submit(gang("one"))
    await bench.tick()
    assert "one" in bench.planner.alarms


async def test_a_job_that_is_deleted_while_it_is_started_leaves_nothing(bench: Bench) -> None:
    made = gang("one")
    api = FakeApi(made.raw, [])

    async def gone(entry: TrackedJob, step: Step) -> bool:
        assert isinstance(step, Unsuspend)
        api.patch_job(job_patch.unsuspend_patch(entry.raw, entry.job, step.plan))
        bench.cluster.forget_job("one")
        bench.cluster.observe_job(api.job)  # the answer comes after the news
        return True

    bench.writer.answer = gone
    bench.submit(made)
    await bench.tick()
    assert len(bench.cluster.ledger) == 0
    assert not bench.cluster.jobs


async def test_the_time_in_which_a_job_never_fits_counts_from_its_start(bench: Bench) -> None:
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


async def test_a_verdict_that_fits_in_between_restarts_the_count(bench: Bench) -> None:
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
    assert len(bench.writer.steps) == 1, "not released: hopeless for no time yet"


async def test_a_later_alarm_takes_the_place_of_an_earlier_one(bench: Bench) -> None:
    bench.submit(gang("one", cpu="2"))
    await bench.tick()
    first = bench.planner.next_alarm()
    bench.now = 1.0
    bench.cluster.mark("one")
    await bench.tick()
    assert first == 60.0
    assert bench.planner.alarms.due(60.0) == ["one"]
    assert bench.planner.next_alarm() == math.inf


async def _fail(entry: TrackedJob, step: Step) -> bool:
    if entry.job.uid == "bad":
        raise KeyError("a bug")
    return True


async def test_an_error_of_kfext_in_a_write_stops_no_other_write_and_it_is_tried_again(
    bench: Bench,
) -> None:
    bench.writer.answer = _fail
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
        pytest.param("second", "_enter", id="while its decision is entered"),
        pytest.param("second", "record", id="while it is queued"),
        pytest.param("second", "show", id="while it is shown"),
    ],
)
async def test_an_error_of_kfext_about_one_job_stops_no_other(
    bad: str, method: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = {"show": bench.display, "record": bench.planner.queue}
    owner: object = owners.get(method, bench.planner)
    real = getattr(owner, method)

    def fails(tracked: TrackedJob, *rest: Any, **more: Any) -> Any:
        if tracked.job.uid == bad:
            raise KeyError("a bug")
        return real(tracked, *rest, **more)

    monkeypatch.setattr(owner, method, fails)
    for created, uid in enumerate(("first", "second", "third")):  # there is capacity for one job
        bench.submit(gang(uid, created=created))
    await bench.tick()
    assert bench.started() == ["first"]
    assert [report[:2] for report in bench.reports if report[0] == "third"] == [("third", QUEUED)]


async def test_a_job_that_cannot_be_judged_does_not_stop_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(situation: Situation, ledger: Ledger, *more: Any) -> Step:
        if situation.job.uid == "bad":
            raise KeyError("a bug")
        return next_step(situation, ledger, *more)

    monkeypatch.setattr(planner_module, "next_step", odd)
    bench.submit(gang("bad", created=1))
    bench.submit(gang("good", created=2))
    await bench.tick()
    assert bench.started() == ["good"]


# --- the companion --------------------------------------------------------------------------------


BEYOND = Invalid(status=422, reason="Invalid", message="beyond the quota")
AWAY = Unavailable(status=0, reason="", message="no connection")


class FakeCompanion:
    """Begins to resize a job of the bench when it is asked next, or fails."""

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
        tracked.executor = "Resized"
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


async def test_an_error_in_the_companion_does_not_keep_jobs_from_being_placed(bench: Bench) -> None:
    FakeCompanion(bench).error = KeyError("a bug")
    for uid in ("one", "two"):
        bench.submit(gang(uid, cpu="500m"))
        await bench.tick()
    assert set(bench.started()) == {"one", "two"}


async def test_the_companion_decides_once_no_decision_on_a_placement_is_pending(
    bench: Bench,
) -> None:
    companion = FakeCompanion(bench)
    for number in range(MOST_DECISIONS + 1):
        bench.submit(gang(f"job-{number}", cpu="64"))
    await bench.tick()
    assert companion.requested == 0
    await bench.tick()
    assert companion.requested == 1


async def test_the_companion_has_a_turn_every_ten_seconds_even_if_decisions_are_pending(
    bench: Bench,
) -> None:
    companion = FakeCompanion(bench)
    for number in range(1000):
        bench.submit(gang(f"job-{number}", cpu=f"{2000 + number % 200}m", created=number))
    asked = []
    for _ in range(250):
        bench.now += 0.1
        bench.cluster.mark_queue()
        await bench.tick()
        asked.append(companion.requested)
    assert asked[98] == 0, "jobs are left in every tick"
    assert (asked[100], asked[-1]) == (1, 2)


async def test_the_companion_has_its_turn_when_its_next_look_is_due(bench: Bench) -> None:
    companion = FakeCompanion(bench)
    for number in range(MOST_DECISIONS + 1):
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
async def test_a_job_that_is_resized_is_decided_on_once_that_is_written(
    bench: Bench, *, complete: bool
) -> None:
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
async def test_a_gpu_is_reserved_for_a_job_that_shares_it_and_a_failure_is_retried(
    error: Exception,
) -> None:
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
