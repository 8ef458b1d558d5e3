"""The rate of a job by window, and its remaining work."""

import math
from dataclasses import replace

import pytest

from kfext.core.progress.followed import INTERVAL
from kfext.core.progress.reported import Progress
from kfext.model.cpu_use import CpuUse
from kfext.state.running.cpu.history import History, Work
from kfext.state.running.proposal import Measure

SCAN = 10.0


def report(step: int | None, at: float | None) -> Progress:
    return Progress(step=step, at=at)


def test_a_window_ends_after_INTERVAL_however_often_jobs_are_scanned() -> None:
    history = History()
    ended = [history.add_interval(Progress(), 1, now=scan * SCAN) for scan in range(1, 9)]
    assert ended == [True, False, False, True, False, False, True, False]
    assert history.values_of(Measure.USE) == (1, 1, 1)


Report = tuple[int | None, float | None]
RATES: dict[str, tuple[list[Report], float | None]] = {
    "steps a second between two windows": ([(100, 5), (160, 35)], 2.0),
    "steps a second between only the last two windows": ([(0, 0), (600, 30), (660, 60)], 2.0),
    "by the times in the log, not by kfext's": ([(100, 5), (160, 25)], 3.0),
    "none in the first window": ([(100, 5)], None),
    "none without a step": ([(100, 5), (None, 35)], None),
    "none without a time": ([(100, 5), (160, None)], None),
    "none in the window after a window without a step": ([(100, 5), (None, 35), (160, 65)], None),
    "none if no new report came": ([(100, 5), (100, 5)], None),
    "none if the clock of the job went back": ([(100, 35), (160, 5)], None),
    "none if its steps went back": ([(160, 5), (100, 35)], None),
    "zero if it prints without progress": ([(100, 5), (100, 35)], 0.0),
}


@pytest.mark.parametrize(("reports", "want"), RATES.values(), ids=RATES)
def test_the_rate_is_the_rate_in_the_last_window(reports: list[Report], want: float | None) -> None:
    history = History()
    for number, (step, at) in enumerate(reports):
        history.add_interval(report(step, at), None, now=number * INTERVAL)
    assert history.rate == want


def test_only_the_last_windows_with_a_value_are_kept() -> None:
    history = History()
    for number, use in enumerate([1, 2, None, 3, None, 4, 5]):
        history.add_interval(Progress(), use, now=number * INTERVAL)
    assert history.values_of(Measure.USE) == (2, 3, 4, 5)
    assert history.values_of(Measure.RATE) == ()


def test_a_window_in_progress_continues_after_forget() -> None:
    history = History()
    history.add_interval(report(100, 5), 1, now=0)
    history.forget()
    assert history.values_of(Measure.USE) == ()
    assert not history.add_interval(report(130, 20), 1, now=SCAN)
    assert history.add_interval(report(160, 35), 1, now=INTERVAL)
    assert history.values_of(Measure.RATE) == (2.0,)


def at(step: int | None, seconds: float = 0.0, *, total: int | None = 1000) -> Progress:
    return Progress(metric="loss", step=step, total=total, at=seconds)


def measure(work: Work, cores: float, seconds: float, pod: str = "p") -> None:
    work.measure(pod, CpuUse(cores, at=seconds, window=15.0))


def measured(*steps: tuple[float, int, float], late: float = 0.0) -> Work:
    """Return the work of a job; `steps`: the seconds, the step, and the cores used until then.

    `late`: each use was measured this many seconds before the time of its step.
    """
    work = Work()
    for seconds, step, cores in steps:
        measure(work, cores, seconds - late)
        work.add_progress(at(step, seconds))
    return work


STEADY = [(30.0 * index, 100 * index, 0.5) for index in range(5)]
REMAINING: dict[str, tuple[Work, Progress, float | None]] = {
    "unknown before any step": (measured(), at(10), math.inf),
    "unknown after one step": (measured((0, 10, 1.0)), at(10), math.inf),
    "by the CPU time of its steps": (measured(*STEADY), at(400), 90.0),
    "however late its use was measured": (measured(*STEADY, late=12.0), at(400), 90.0),
    "by the mean CPU time of all steps": (measured(*STEADY, (150, 450, 0.25)), at(450), 82.5),
    "unknown if its use was measured before its first step": (
        measured((0, 0, 1.0), (30, 100, 0.5), late=60.0), at(100), math.inf
    ),
    "unknown before 10 s": (
        measured((0, 0, 1.0), (4, 40, 0.5), (8, 80, 0.5)), at(80), math.inf
    ),
    "as before after its steps went back, until there are new measurements": (
        measured(*STEADY, (150, 50, 0.9)), at(50), 142.5
    ),
    "nothing after the last step": (measured((0, 0, 1.0)), at(1000), 0.0),
    "nothing after more than the last step": (measured((0, 0, 1.0)), at(1200), 0.0),
    "none if it prints no total": (measured(*STEADY), at(400, total=None), None),
    "none if it prints no steps": (measured(), at(None), None),
}  # fmt: skip


@pytest.mark.parametrize(("work", "progress", "want"), REMAINING.values(), ids=REMAINING)
def test_the_remaining_work_of_a_job(work: Work, progress: Progress, want: float | None) -> None:
    assert work.remaining(progress) == pytest.approx(want)


def test_the_first_reported_rate_gives_an_earlier_step() -> None:
    work = Work()
    for seconds, step in ((20.0, 50), (30.0, 100)):
        measure(work, 0.5, seconds)
        work.add_progress(replace(at(step, seconds), rate=5.0))
    assert work.remaining(at(100)) == pytest.approx(90.0)


def test_a_falling_cpu_use_does_not_make_steps_seem_longer() -> None:
    """Its use is known 20 s late, so it seems higher than during its last steps."""
    work, step, cpu = Work(), 0.0, []
    for second in range(0, 200, 10):
        cores = 1.0 if second < 100 else 0.25
        cpu.append(cores)
        if second >= 30:
            measure(work, cpu[-4], second - 20)
        work.add_progress(at(round(step), second))
        step += cores * 10 / 0.05
    assert work.remaining(at(0)) == pytest.approx(50.0, rel=0.05)


@pytest.mark.parametrize("later", [-12.0, 0.0, 3.0, 12.0])
def test_the_remaining_work_does_not_depend_on_when_the_use_is_measured(later: float) -> None:
    work = Work()
    for index in range(6):
        measure(work, 0.5, 30.0 * index + later)
        work.add_progress(at(100 * index, 30.0 * index))
    assert work.remaining(at(500)) == pytest.approx(75.0)


def test_the_use_of_all_pods_counts_and_a_repeated_measurement_does_not() -> None:
    work = Work()
    for index in range(3):
        for pod in ("a", "b", "b"):
            measure(work, 0.5, 30.0 * index, pod)
        work.add_progress(at(100 * index, 30.0 * index))
    assert work.remaining(at(200)) == pytest.approx(240.0)


def test_steps_from_before_the_first_measured_window_do_not_count() -> None:
    work = Work()
    for seconds, step in ((0, 0), (50, 500)):
        work.add_progress(at(step, seconds))
    for seconds, step in ((60, 600), (90, 700), (120, 800)):
        measure(work, 0.5, seconds)
        work.add_progress(at(step, seconds))
    assert work.remaining(at(800)) == pytest.approx(200 * (0.5 * 75) / (800 - 450))


def test_the_completed_work_of_a_job_that_counts_steps_per_epoch_is_its_measured_use() -> None:
    work = Work()
    for seconds in range(0, 3600, 15):
        measure(work, 1.0, seconds)
        work.add_progress(progress := at(1 + seconds // 15 % 20, seconds, total=20))
    assert work.completed(progress) >= 3500.0
