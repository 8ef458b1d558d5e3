"""The outset of a forecast: its jobs, their durations, and the expected arrivals."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.core.queue.duration import USUAL_SECONDS
from kfext.model.moment import Moment
from kfext.state.forecast.outset import MAX_ARRIVALS, MAX_JOBS, outset_of
from kfext.state.planner.planner import Planner, Tick
from kfext.state.planner.recording import snapshot_of
from tests.unit.state.forecast.scene import NOW, Scene, ended, runs, waits
from tests.unit.state.history import ACTS, CROWDED, History
from tests.unit.state.planner.test_recording import Script


def test_an_outset_has_no_ended_jobs_and_no_jobs_far_behind() -> None:
    many = [waits(f"job-{n:02}", 4, created=NOW - 3600 + n) for n in range(MAX_JOBS + 5)]
    scene = Scene(runs("first"), ended("old-1", seconds=10), *many)
    scene.tick()
    result = outset_of(scene.planner, scene.now)
    assert [job.uid for job in result.snapshot.jobs] == ["first", *result.waiting]
    assert result.waiting == tuple(f"job-{n:02}" for n in range(MAX_JOBS))
    assert {uid for uid, clocks in result.snapshot.clocks.items() if clocks.writing} == {"first"}


def test_the_durations_of_jobs_and_whether_they_are_known() -> None:
    jobs = runs("shows"), runs("silent", deadline=int(NOW) + 100), ended("new-1", seconds=70)
    scene = Scene(*jobs, waits("new-2"), waits("other"), shows=600)
    scene.tick()
    result = outset_of(scene.planner, scene.now).lengths
    shows, silent, new, other = (result[uid] for uid in ("shows", "silent", "new-2", "other"))
    assert (shows.seconds, shows.known) == (600, True)
    assert silent.most == pytest.approx(100, abs=2)
    assert not silent.known
    assert (new.seconds, new.known, new.typical) == (70, True, 70)
    assert (other.seconds, other.known) == (USUAL_SECONDS, False)


def test_recent_jobs_are_expected_to_arrive_again_at_the_same_rate() -> None:
    scene = Scene(
        waits("old"), waits("first", created=NOW - 900), waits("second", created=NOW - 60)
    )
    scene.tick()
    result = outset_of(scene.planner, scene.now)
    assert [job.created - NOW for job in result.arrivals] == [900, 1740, 2700, 3540, 4500, 5340]
    assert {job.uid for job in result.arrivals}.isdisjoint(scene.planner.cluster.jobs)
    assert all(job.suspend and job.held and job.uid in result.lengths for job in result.arrivals)


def test_only_the_last_of_many_jobs_are_expected_to_arrive_again() -> None:
    many = [waits(f"job-{n}", created=NOW - 2 * n) for n in range(MAX_ARRIVALS + 10)]
    scene = Scene(runs("first", 4), *many)
    scene.tick()
    arrivals = outset_of(scene.planner, scene.now).arrivals
    assert len(arrivals) == 3 * MAX_ARRIVALS
    assert arrivals[0].created == NOW
    assert arrivals[MAX_ARRIVALS].created == NOW + 2 * (MAX_ARRIVALS - 1)


def test_a_job_that_ran_is_expected_again_as_it_was_submitted() -> None:
    scene = Scene(runs("first", 2).created(NOW - 600), first=600)
    scene.tick()
    again = outset_of(scene.planner, scene.now).arrivals[0]
    assert (again.suspend, again.started, again.pods) == (True, 0.0, 2)
    assert "kfext.dev/plan" not in again.annotations


# --- nothing changes ----------------------------------------------------------------------------


class Recorder:
    """Draws, and records its draws."""

    def __init__(self, data: st.DataObject) -> None:
        self.drawn: list[Any] = []
        self._data = data

    def draw(self, strategy: Any, label: str | None = None) -> Any:
        self.drawn.append(self._data.draw(strategy, label=label))
        return self.drawn[-1]


def forecasting_tick(planner: Planner, now: Moment, *, tick: Any = Planner.tick) -> Tick:
    """Tick, and begin a forecast if no job is left to decide on."""
    result: Tick = tick(planner, now)
    if not result.remainder:
        outset_of(planner, now)
    return result


@pytest.mark.histories
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_taking_an_outset_does_not_change_later_decisions(data: st.DataObject) -> None:
    recorder = Recorder(data)
    acts = *data.draw(st.sampled_from([(), CROWDED])), *data.draw(st.lists(st.sampled_from(ACTS)))
    plain = History(recorder)  # type: ignore[arg-type]
    for act in acts:
        act(plain)
    with patch.object(Planner, "tick", forecasting_tick):
        twin = History(Script(*recorder.drawn))  # type: ignore[arg-type]
        for act in acts:
            act(twin)
    results = [
        (snapshot_of(history.planner, history.moment), history.jobs, history.pods)
        for history in (plain, twin)
    ]
    assert results[0] == results[1]
