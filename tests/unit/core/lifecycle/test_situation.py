"""What a situation says of itself."""

from kfext.core.lifecycle.situation import Situation
from kfext.model.state import JobState
from tests.unit.core.lifecycle.cases import NOW, RUNNING


def test_backing_off_doubles_up_to_five_minutes() -> None:
    waits = []
    for strikes in range(7):
        state = JobState(strikes=strikes)
        waits.append(Situation(RUNNING, (), None, state, NOW).after_strike("r", "m").retry_at - NOW)
    assert waits == [15, 30, 60, 120, 240, 300, 300]
