"""What a forecast begins with."""

import pytest

from kfext.core.queue.duration import USUAL_SECONDS
from kfext.state.forecast.outset import MOST_ARRIVALS, MOST_JOBS, outset_of
from tests.unit.state.forecast.scene import NOW, Scene, ended, runs, waits


def test_ended_jobs_and_jobs_far_behind_are_left_out() -> None:
    many = [waits(f"job-{n:02}", 4, created=NOW - 3600 + n) for n in range(MOST_JOBS + 5)]
    scene = Scene(runs("first"), ended("old-1", seconds=10), *many)
    scene.tick()
    found = outset_of(scene.planner, scene.now)
    assert [job.uid for job in found.snapshot.jobs] == ["first", *found.waiting]
    assert found.waiting == tuple(f"job-{n:02}" for n in range(MOST_JOBS))
    assert {uid for uid, clocks in found.snapshot.clocks.items() if clocks.writing} == {"first"}


def test_the_lengths_of_jobs() -> None:
    jobs = runs("shows"), runs("silent", deadline=int(NOW) + 100), ended("new-1", seconds=70)
    scene = Scene(*jobs, waits("new-2"), waits("other"), shows=600)
    scene.tick()
    found = outset_of(scene.planner, scene.now).lengths
    shows, silent, new, other = (found[uid] for uid in ("shows", "silent", "new-2", "other"))
    assert (shows.seconds, shows.known) == (600, True)
    assert silent.most == pytest.approx(100, abs=2)
    assert not silent.known
    assert (new.seconds, new.known, new.typical) == (70, True, 70)
    assert (other.seconds, other.known) == (USUAL_SECONDS, False)


def test_jobs_that_came_lately_come_again_at_the_same_pace() -> None:
    scene = Scene(
        waits("old"), waits("first", created=NOW - 900), waits("second", created=NOW - 60)
    )
    scene.tick()
    found = outset_of(scene.planner, scene.now)
    assert [job.created - NOW for job in found.arrivals] == [900, 1740, 2700, 3540, 4500, 5340]
    assert {job.uid for job in found.arrivals}.isdisjoint(scene.planner.cluster.jobs)
    assert all(job.suspend and job.held and job.uid in found.lengths for job in found.arrivals)


def test_of_many_jobs_the_last_come_again() -> None:
    many = [waits(f"job-{n}", created=NOW - 2 * n) for n in range(MOST_ARRIVALS + 10)]
    scene = Scene(runs("first", 4), *many)
    scene.tick()
    arrivals = outset_of(scene.planner, scene.now).arrivals
    assert len(arrivals) == 3 * MOST_ARRIVALS
    assert arrivals[0].created == NOW
    assert arrivals[MOST_ARRIVALS].created == NOW + 2 * (MOST_ARRIVALS - 1)


def test_a_job_that_ran_comes_again_as_it_was_submitted() -> None:
    scene = Scene(runs("first", 2).created(NOW - 600), first=600)
    scene.tick()
    again = outset_of(scene.planner, scene.now).arrivals[0]
    assert (again.suspend, again.started, again.pods) == (True, 0.0, 2)
    assert "kfext.dev/plan" not in again.annotations
