"""How much CPU a job still takes."""

import math

import pytest

from kfext.core.companion.work import Work
from kfext.core.progress.course import Progress


def at(step: int | None, total: int | None = 100) -> Progress:
    return Progress(metric="loss", step=step, total=total)


def followed(*seen: tuple[int, float]) -> Work:
    """A job that has shown these steps, each when it had used so many core-seconds."""
    work = Work()
    for step, used in seen:
        work.take(at(step), used=used)
    return work


LEFT: dict[str, tuple[Work, Progress, float | None]] = {
    "nothing is known yet": (followed(), at(10), math.inf),
    "one step shows nothing": (followed((10, 5.0)), at(10), math.inf),
    "by what its steps took": (followed((10, 5.0), (20, 25.0)), at(20), 160.0),
    "the newest figures count": (followed((10, 5.0), (20, 25.0), (40, 35.0)), at(40), 60.0),
    "too little was used to tell": (followed((10, 5.0), (11, 6.0)), at(11), math.inf),
    "its steps went back": (followed((10, 5.0), (20, 25.0), (5, 30.0)), at(5), 190.0),
    "it began anew after that": (followed((20, 5.0), (5, 30.0), (10, 40.0)), at(10), 180.0),
    "all is done": (followed((10, 5.0)), at(100), 0.0),
    "more than all": (followed((10, 5.0)), at(120), 0.0),
    "it prints no total": (followed((10, 5.0), (20, 25.0)), at(20, None), None),
    "it prints no steps": (followed(), at(None), None),
}


@pytest.mark.parametrize(("work", "progress", "want"), LEFT.values(), ids=LEFT)
def test_what_is_left(work: Work, progress: Progress, want: float | None) -> None:
    assert work.left(progress) == want
