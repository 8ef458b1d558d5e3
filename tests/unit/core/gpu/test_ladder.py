from kfext.core.gpu.ladder import FORGOTTEN_SECONDS, PATIENCE, SHUT_SECONDS, Ladder
from kfext.core.gpu.loss import FRESH
from kfext.model.shared_gpu import EVICTED_AFTER

WORKED = {"a": 0.2, "busy": 0.4, "b": 0.1}


class Trial:
    """A card on which losses are measured anew every `measures` seconds."""

    def __init__(self, *, measures: float = 10.0) -> None:
        self.now, self.ladder, self._measures = 0.0, Ladder(0.0), measures

    def run(self, seconds: float, *, losing: bool, excess: float = 0.0) -> list[set[str]]:
        """Return whose gates were shut, each time that this changed; `excess`: in budgets."""
        found: list[set[str]] = []
        until = self.now + seconds
        while self.now < until:
            windows = int(self.now / self._measures)
            shut = self.ladder.shut(
                losing=losing, excess=excess, windows=windows, worked=WORKED, now=self.now
            )
            if not found or found[-1] != shut:
                found.append(shut)
            self.now += 0.5
        return found

    def strikes(self, name: str) -> int:
        return self.ladder.rungs[name].strikes


def test_one_at_a_time_is_shut_out_and_first_the_one_that_has_worked_most() -> None:
    shut = Trial().run(PATIENCE + SHUT_SECONDS + 2, losing=True)
    assert shut == [set(), {"busy"}, set(), {"a"}]  # it was not because of the first alone


def test_losses_for_less_than_a_minute_change_nothing() -> None:
    trial = Trial()
    for _ in range(10):
        assert trial.run(PATIENCE - 2, losing=True) == [set()]
        trial.run(2, losing=False)


def test_a_short_rest_does_not_make_up_for_what_was_lost() -> None:
    trial = Trial()
    trial.run(PATIENCE - 10, losing=True, excess=2.0)
    assert trial.run(30, losing=False, excess=-1.0) == [set()]
    assert trial.run(12, losing=True, excess=2.0) == [set(), {"busy"}]


def test_what_was_lost_is_made_up_for_in_time() -> None:
    trial = Trial()
    trial.run(PATIENCE - 10, losing=True, excess=2.0)
    trial.run(2 * PATIENCE, losing=False, excess=-1.0)
    assert trial.run(PATIENCE - 2, losing=True, excess=2.0) == [set()]


def test_nobody_is_shut_out_for_what_was_lost_before_it_came() -> None:
    ladder, now = Ladder(0.0), 0.0
    worked = {"old": 0.5}
    for until, more in ((50.0, {}), (70.0, {"new": 0.9}), (90.0, {"new": 0.9})):
        worked |= more
        while now < until:
            shut = ladder.shut(losing=True, excess=2.0, windows=int(now), worked=worked, now=now)
            now += 0.5
    assert shut == {"old"}, "the one that was there all the time, though another has worked more"


def test_what_was_lost_beside_a_job_that_has_left_is_forgotten() -> None:
    trial = Trial()
    trial.run(PATIENCE - 10, losing=True, excess=9.0)
    trial.ladder.remove("busy")
    assert trial.run(PATIENCE - 2, losing=True, excess=9.0) == [set()]


def test_a_gain_makes_up_for_no_more_than_the_budget_does() -> None:
    trial = Trial()
    for _ in range(10):
        trial.run(40, losing=True, excess=2.0)
        trial.run(8, losing=False, excess=-5.0)
    assert trial.strikes("busy") > 0


def test_a_loss_that_goes_up_and_down_about_the_budget_is_borne() -> None:
    trial = Trial()
    for _ in range(100):
        assert trial.run(5, losing=True, excess=0.05) == [set()]
        assert trial.run(5, losing=False, excess=-0.05) == [set()]


def test_losses_must_be_confirmed_by_new_measurements() -> None:
    trial = Trial(measures=2 * PATIENCE)
    assert trial.run(FRESH * PATIENCE, losing=True) == [set()]
    assert trial.run(FRESH * PATIENCE + 2, losing=True) == [set(), {"busy"}]


def test_a_second_strike_needs_new_losses() -> None:
    trial = Trial()
    trial.run(PATIENCE + 1, losing=True)
    trial.run(SHUT_SECONDS, losing=False)
    assert trial.run(PATIENCE - 2, losing=True) == [set()]


def test_a_strike_is_forgotten_after_ten_minutes_without_losses() -> None:
    trial = Trial()
    for _ in range(EVICTED_AFTER - 1):
        trial.run(PATIENCE + 1, losing=True)
        trial.run(SHUT_SECONDS, losing=False)
    assert trial.strikes("busy") == EVICTED_AFTER - 1
    trial.run(FORGOTTEN_SECONDS - 5, losing=False)
    assert trial.strikes("busy") == EVICTED_AFTER - 1
    trial.run(10, losing=False)
    assert trial.strikes("busy") == EVICTED_AFTER - 2
    assert trial.ladder.rungs["busy"].times_shut == EVICTED_AFTER - 1


def test_strikes_from_before_count_with_the_next_ones() -> None:
    trial = Trial()
    trial.ladder.recall("busy", 2)
    trial.run(PATIENCE + 1, losing=True)
    assert (trial.strikes("busy"), trial.strikes("a")) == (3, 0)
    assert trial.ladder.rungs["busy"].times_shut == 1
