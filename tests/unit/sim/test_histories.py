"""The history of a job in a simulated cluster records each change once, with its reason."""

from dataclasses import replace
from typing import Any, cast

import pytest

from kfext.controller.job_display import JobDisplay
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.core.job_history import Entry
from kfext.model.moment import Moment
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Report, Tick
from tests.unit.sim.bed import GANG, LONG, Bed, scaled_bed
from tests.unit.sim.test_moves import spread_bed
from tests.unit.sim.test_preempt import URGENT, VICTIM, PreemptBed


class NoEvents:
    """Records no event."""

    def record(self, *about: Any, **event: Any) -> None:
        """Record nothing."""


def record_histories(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> TrainingPlanWriter:
    """Record the planner's decisions and writes as the controller does; nothing is sent."""
    writer = TrainingPlanWriter(client=cast(Any, None), wall=lambda: bed.clock.wall)
    monkeypatch.setattr(writer, "_enqueue", lambda uid: None)
    display = JobDisplay(bed.planner, writer, cast(Any, NoEvents()))
    tick, finish = bed.planner.tick, bed.planner.finish

    def tick_and_show(now: Moment) -> Tick:
        decided = tick(now)
        for report in decided.reports:
            display.show(report.tracked, report.phase, report.verdict)
        return decided

    def finish_and_record(tracked: TrackedJob, now: Moment, **outcome: Any) -> Report | None:
        if outcome["complete"] and not outcome["refused"]:
            display.record(tracked, bed.driver.written[-1].step)
        return finish(tracked, now, **outcome)

    monkeypatch.setattr(bed.planner, "tick", tick_and_show)
    monkeypatch.setattr(bed.planner, "finish", finish_and_record)
    return writer


def entries(writer: TrainingPlanWriter, name: str = "train") -> tuple[Entry, ...]:
    return writer._histories[f"uid-{name}"].entries


def changes_in(history: tuple[Entry, ...]) -> list[str]:
    """What each entry records, without the entries that say why the job waits."""
    return [entry.event for entry in history if entry.event != "Queued"]


def test_the_history_of_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = spread_bed()
    writer = record_histories(bed, monkeypatch)
    bed.at(300)
    history = entries(writer)
    assert changes_in(history) == ["Planned", "Placed", "Moved", "Planned", "Placed"]
    placed = [entry.nodes for entry in history if entry.event == "Placed"]
    assert placed == [("a", "b"), ("b",)]
    (moved,) = (entry for entry in history if entry.event == "Moved")
    assert (moved.nodes, moved.workers) == ((), 4)
    assert moved.why


def test_the_history_of_a_stop_for_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = PreemptBed(VICTIM, URGENT)
    writer = record_histories(bed, monkeypatch)
    bed.at(400)
    assert changes_in(entries(writer))[:3] == ["Planned", "Placed", "Stopped"]
    assert changes_in(entries(writer, "urgent"))[:2] == ["Planned", "Placed"]
    waits = [entry.why for entry in entries(writer, "urgent") if entry.event == "Queued"]
    assert len(set(waits)) == len(waits) > 0


def test_the_history_of_removed_and_restored_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = scaled_bed(LONG, replace(GANG, arrives=200.0))
    writer = record_histories(bed, monkeypatch)
    bed.at(1200)
    history = entries(writer)
    changes = [entry.workers for entry in history if entry.event == "Scaled"]
    assert changes == [2, 4]
    # The start of the new pods is a part of the change, and no entry of its own.
    assert changes_in(history) == ["Planned", "Placed", "Scaled", "Scaled"]
    assert all(entry.why for entry in history)
