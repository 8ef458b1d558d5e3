import pytest

from kfext.gpu.hook.waits import EARLY_SECONDS, poll
from kfext.gpu.hook.words import NS
from tests.unit.gpu.hook.card import ManualClock

MS = NS // 1000


class Work:
    """Work that ends after `lasts` milliseconds on a fake clock. `polls`: the polls so far."""

    def __init__(self, *, lasts: float) -> None:
        self.clock = ManualClock()
        self.polls = 0
        self.ends = self.clock.time + int(lasts * MS)

    def reached(self) -> bool:
        self.polls += 1
        return self.clock.time >= self.ends

    def wait(self, expected: float) -> bool:
        return poll(self.reached, self.clock.time + int(expected * MS), self.clock)

    @property
    def late(self) -> float:
        """The milliseconds from the end of the work to the end of the wait."""
        return (self.clock.time - self.ends) / MS


def test_a_wait_sleeps_until_shortly_before_the_expected_end_and_then_polls() -> None:
    work = Work(lasts=4.0)
    assert work.wait(expected=4.0)
    assert work.clock.slept[0] == pytest.approx(0.004 - EARLY_SECONDS)
    assert work.late < 0.02
    assert work.polls <= 20


def test_a_wait_for_work_that_has_already_ended_does_not_sleep() -> None:
    work = Work(lasts=0.0)
    assert work.wait(expected=5.0)
    assert work.clock.slept == []


def test_a_wait_gives_up_after_2_ms_of_polls() -> None:
    work = Work(lasts=60.0)
    assert not work.wait(expected=1.0)
    assert sum(work.clock.slept) == pytest.approx(0.001 - EARLY_SECONDS + 0.002, abs=0.0001)


@pytest.mark.parametrize("expected", [0.0, 40.0, 4000.0], ids=["at once", "tenfold", "4 seconds"])
def test_a_wrong_estimate_costs_5_ms_at_most(expected: float) -> None:
    work = Work(lasts=4.0)
    if not work.wait(expected):
        return  # the caller then blocks until the end
    assert work.late <= 5.0
    assert work.polls < 300
