"""What a job has shown in windows of one interval."""

import pytest

from kfext.core.companion.history import History
from kfext.core.companion.proposal import Measure
from kfext.core.progress.followed import INTERVAL
from kfext.core.progress.reported import Progress

LOOK = 10.0


def shown(step: int | None, at: float | None) -> Progress:
    return Progress(step=step, at=at)


def test_a_window_ends_after_its_length_however_often_a_job_is_looked_at() -> None:
    history = History()
    ended = [history.take(Progress(), 1, now=look * LOOK) for look in range(1, 9)]
    assert ended == [True, False, False, True, False, False, True, False]
    assert history.of(Measure.USE) == (1, 1, 1)


Report = tuple[int | None, float | None]
RATES: dict[str, tuple[list[Report], float | None]] = {
    "steps a second between two windows": ([(100, 5), (160, 35)], 2.0),
    "of the last two alone": ([(0, 0), (600, 30), (660, 60)], 2.0),
    "by the time of the job, not by ours": ([(100, 5), (160, 25)], 3.0),
    "none in the first window": ([(100, 5)], None),
    "none without a step": ([(100, 5), (None, 35)], None),
    "none without a time": ([(100, 5), (160, None)], None),
    "none in the window after one without": ([(100, 5), (None, 35), (160, 65)], None),
    "none if nothing new was printed": ([(100, 5), (100, 5)], None),
    "none if the clock of the job went back": ([(100, 35), (160, 5)], None),
    "none if its steps went back": ([(160, 5), (100, 35)], None),
    "zero if it prints and does not go on": ([(100, 5), (100, 35)], 0.0),
}


@pytest.mark.parametrize(("reports", "want"), RATES.values(), ids=RATES)
def test_the_rate_is_that_of_the_last_window(reports: list[Report], want: float | None) -> None:
    history = History()
    for number, (step, at) in enumerate(reports):
        history.take(shown(step, at), None, now=number * INTERVAL)
    assert history.rate == want


def test_only_the_last_windows_with_a_value_are_kept() -> None:
    history = History()
    for number, use in enumerate([1, 2, None, 3, None, 4, 5]):
        history.take(Progress(), use, now=number * INTERVAL)
    assert history.of(Measure.USE) == (2, 3, 4, 5)
    assert history.of(Measure.RATE) == ()


def test_what_is_forgotten_does_not_end_the_window() -> None:
    history = History()
    history.take(shown(100, 5), 1, now=0)
    history.forget()
    assert history.of(Measure.USE) == ()
    assert not history.take(shown(130, 20), 1, now=LOOK)
    assert history.take(shown(160, 35), 1, now=INTERVAL)
    assert history.of(Measure.RATE) == (2.0,)
