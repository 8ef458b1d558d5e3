import pytest

from kfext.gpu.rules.profile import STRETCH, Profile

LOOK = 0.05


class Trial:
    """A job that makes steps at a rate, and is read as the agent does."""

    def __init__(self) -> None:
        self.profile, self.steps = Profile(), 0.0

    def run(self, seconds: float, *, busy: float, rate: float = 10.0) -> float | None:
        for _ in range(round(seconds / LOOK)):
            self.steps += rate * LOOK
            self.profile.note(int(self.steps), used=busy * LOOK, could=LOOK)
        return self.profile.busy


def test_a_job_is_known_after_a_minute_of_its_steps() -> None:
    trial = Trial()
    assert trial.run(STRETCH - 1, busy=0.4) is None
    assert trial.run(2, busy=0.4) == pytest.approx(0.4)


@pytest.mark.parametrize("busy", [0.0, 1.0])
def test_nothing_counts_before_the_first_step(busy: float) -> None:
    """It loads data, or compiles: what it does then says nothing of what follows."""
    trial = Trial()
    assert trial.run(10 * STRETCH, busy=busy, rate=0) is None
    assert trial.run(STRETCH + 1, busy=0.4) == pytest.approx(0.4)


def test_steps_from_before_it_was_looked_at_do_not_count() -> None:
    trial = Trial()
    trial.steps = 1000.0
    assert trial.run(10 * STRETCH, busy=0.0, rate=0) is None


def test_a_stretch_with_few_steps_waits_for_more() -> None:
    trial = Trial()
    assert trial.run(3 * STRETCH, busy=0.4, rate=1 / STRETCH) is None
    assert trial.run(2 * STRETCH, busy=0.4, rate=1 / STRETCH) == pytest.approx(0.4)


def test_what_it_does_later_is_followed_over_five_minutes() -> None:
    trial = Trial()
    trial.run(10 * STRETCH + 1, busy=0.4)
    found = [trial.run(STRETCH, busy=0.9) for _ in range(6)]
    assert found == sorted(found, key=lambda busy: busy or 0)
    assert found[0] == pytest.approx(0.5, abs=0.02)
    assert found[-1] == pytest.approx(0.9)


def test_a_new_process_begins_a_stretch_anew_and_what_was_known_holds() -> None:
    trial = Trial()
    assert trial.run(STRETCH + 1, busy=0.4) == pytest.approx(0.4)
    trial.run(STRETCH / 2, busy=1.0)
    trial.steps = 0
    assert trial.run(STRETCH / 2, busy=0.4) == pytest.approx(0.4)
    assert trial.run(STRETCH, busy=0.4) == pytest.approx(0.4)


def test_no_part_is_beyond_all_or_none_whatever_is_stated() -> None:
    assert Trial().run(STRETCH + 1, busy=7.0) == 1.0
    assert Trial().run(STRETCH + 1, busy=-7.0) == 0.0
