"""How much CPU a job still takes."""

import math

import pytest

from kfext.core.companion.work import Work
from kfext.core.progress.reported import Progress
from kfext.model.cpu_use import CpuUse


def at(step: int | None, seconds: float = 0.0, *, total: int | None = 1000) -> Progress:
    return Progress(metric="loss", step=step, total=total, at=seconds)


def measured(work: Work, cores: float, seconds: float, pod: str = "p") -> None:
    work.measure(pod, CpuUse(cores, at=seconds, window=15.0))


def followed(*seen: tuple[float, int, float], late: float = 0.0) -> Work:
    """A job that showed these steps at these times, each with its use since the time before.

    `late`: how long before a step is shown the use was measured.
    """
    work = Work()
    for seconds, step, cores in seen:
        measured(work, cores, seconds - late)
        work.take(at(step, seconds))
    return work


STEADY = [(30.0 * part, 100 * part, 0.5) for part in range(5)]
LEFT: dict[str, tuple[Work, Progress, float | None]] = {
    "nothing is known yet": (followed(), at(10), math.inf),
    "one step shows nothing": (followed((0, 10, 1.0)), at(10), math.inf),
    "by what its steps took": (followed(*STEADY), at(400), 90.0),
    "however late its use is known": (followed(*STEADY, late=12.0), at(400), 90.0),
    "of all of them alike": (followed(*STEADY, (150, 450, 0.25)), at(450), 82.5),
    "a use that was measured before it showed a step": (
        followed((0, 0, 1.0), (30, 100, 0.5), late=60.0), at(100), math.inf
    ),
    "too little use shows nothing": (
        followed((0, 0, 1.0), (30, 1, 0.05), (60, 2, 0.05)), at(2), math.inf
    ),
    "its steps went back: as before, until it has shown more": (
        followed(*STEADY, (150, 50, 0.9)), at(50), 142.5
    ),
    "all is done": (followed((0, 0, 1.0)), at(1000), 0.0),
    "more than all": (followed((0, 0, 1.0)), at(1200), 0.0),
    "it prints no total": (followed(*STEADY), at(400, total=None), None),
    "it prints no steps": (followed(), at(None), None),
}  # fmt: skip


@pytest.mark.parametrize(("work", "progress", "want"), LEFT.values(), ids=LEFT)
def test_what_is_left(work: Work, progress: Progress, want: float | None) -> None:
    assert work.left(progress) == pytest.approx(want)


def test_a_share_that_falls_does_not_make_steps_dearer() -> None:
    """Its use is known 20 s late, so it looks higher than what its last steps had."""
    work, step, cpu = Work(), 0.0, []
    for second in range(0, 200, 10):
        cores = 1.0 if second < 100 else 0.25
        cpu.append(cores)
        if second >= 30:
            measured(work, cpu[-4], second - 20)
        work.take(at(round(step), second))
        step += cores * 10 / 0.05
    assert work.left(at(0)) == pytest.approx(50.0, rel=0.05)


@pytest.mark.parametrize("later", [-12.0, 0.0, 3.0, 12.0])
def test_it_does_not_matter_how_much_later_than_a_step_the_use_is_measured(later: float) -> None:
    work = Work()
    for part in range(6):
        measured(work, 0.5, 30.0 * part + later)
        work.take(at(100 * part, 30.0 * part))
    assert work.left(at(500)) == pytest.approx(75.0)


def test_the_use_of_all_pods_counts_and_each_measurement_once() -> None:
    work = Work()
    for part in range(3):
        for pod in ("a", "b", "b"):
            measured(work, 0.5, 30.0 * part, pod)
        work.take(at(100 * part, 30.0 * part))
    assert work.left(at(200)) == pytest.approx(240.0)


def test_steps_from_before_the_use_is_known_do_not_count() -> None:
    work = Work()
    for seconds, step in ((0, 0), (50, 500)):
        work.take(at(step, seconds))
    for seconds, step in ((60, 600), (90, 700), (120, 800)):
        measured(work, 0.5, seconds)
        work.take(at(step, seconds))
    assert work.left(at(800)) == pytest.approx(30.0)
