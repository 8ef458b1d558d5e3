"""How much CPU a job still takes."""

import math

import pytest

from kfext.core.companion.work import Work
from kfext.core.progress.course import Progress
from kfext.model.cpu_use import CpuUse


def at(step: int | None, seconds: float = 0.0, *, total: int | None = 1000) -> Progress:
    return Progress(metric="loss", step=step, total=total, at=seconds)


def measured(work: Work, cores: float, seconds: float, pod: str = "p") -> None:
    work.measure(pod, CpuUse(cores, at=seconds, window=15.0))


def followed(*seen: tuple[float, int, float], late: float = 0.0) -> Work:
    """A job that showed these steps at these times, with its mean use since the time before.

    `late`: how long after a step the use is measured.
    """
    work = Work()
    for seconds, step, cores in seen:
        measured(work, cores, seconds + late)
        work.take(at(step, seconds))
    return work


LEFT: dict[str, tuple[Work, Progress, float | None]] = {
    "nothing is known yet": (followed(), at(10), math.inf),
    "one step shows nothing": (followed((0, 10, 1.0)), at(10), math.inf),
    "by what its steps took": (followed((0, 0, 1.0), (30, 100, 0.5)), at(100), 135.0),
    "whenever its use is measured": (
        followed((0, 0, 1.0), (30, 100, 0.5), (60, 200, 0.5), late=12.0), at(200), 120.0
    ),
    "over all that was seen": (
        followed((0, 0, 1.0), (30, 100, 0.5), (60, 150, 0.25)), at(150), 127.5
    ),
    "too short a time tells nothing": (followed((0, 0, 1.0), (15, 100, 0.5)), at(100), math.inf),
    "nor does too little use": (followed((0, 0, 1.0), (30, 1, 0.01)), at(1), math.inf),
    "its steps went back": (
        followed((0, 0, 1.0), (30, 100, 0.5), (60, 50, 0.5)), at(50), 142.5
    ),
    "all is done": (followed((0, 0, 1.0)), at(1000), 0.0),
    "more than all": (followed((0, 0, 1.0)), at(1200), 0.0),
    "it prints no total": (followed((0, 0, 1.0), (30, 100, 0.5)), at(100, total=None), None),
    "it prints no steps": (followed(), at(None), None),
}  # fmt: skip


@pytest.mark.parametrize(("work", "progress", "want"), LEFT.values(), ids=LEFT)
def test_what_is_left(work: Work, progress: Progress, want: float | None) -> None:
    assert work.left(progress) == pytest.approx(want)


def test_the_use_of_all_pods_counts_and_each_measurement_once() -> None:
    work = Work()
    for seconds, step in ((0, 0), (30, 100)):
        for pod in ("a", "b", "b"):
            measured(work, 0.5, seconds, pod)
        work.take(at(step, seconds))
    assert work.left(at(100)) == pytest.approx(270.0)


def test_steps_from_before_the_use_is_known_do_not_count() -> None:
    work = Work()
    for seconds, step in ((0, 0), (50, 500)):
        work.take(at(step, seconds))
    for seconds, step in ((60, 600), (90, 700)):
        measured(work, 0.5, seconds)
        work.take(at(step, seconds))
    assert work.left(at(700)) == pytest.approx(45.0)
