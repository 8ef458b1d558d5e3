from kfext.gpu.rules.loss import FRESH
from kfext.gpu.rules.strikes import FORGOTTEN_SECONDS, PATIENCE, SHUT_SECONDS, Strikes
from kfext.model.shared_gpu import EVICTED_AFTER

WORKED = {"a": 0.2, "busy": 0.4, "b": 0.1}


class Trial:
    """A card with a new measurement of losses every `measures` seconds."""

    def __init__(self, *, measures: float = 10.0) -> None:
        self.now, self.jobs, self._measures = 0.0, Strikes(0.0), measures

    def run(self, seconds: float, *, losing: bool, excess: float = 0.0) -> list[set[str]]:
        """Return the jobs with shut gates, each time that this changed; `excess`: in budgets."""
        results: list[set[str]] = []
        until = self.now + seconds
        while self.now < until:
            windows = int(self.now / self._measures)
            shut = self.jobs.shut(
                losing=losing, excess=excess, windows=windows, worked=WORKED, now=self.now
            )
            if not results or results[-1] != shut:
                results.append(shut)
            self.now += 0.5
        return results

    def strikes(self, name: str) -> int:
        return self.jobs.records[name].strikes


def test_one_job_at_a_time_is_shut_out_and_first_the_job_that_worked_most() -> None:
    shut = Trial().run(PATIENCE + SHUT_SECONDS + 2, losing=True)
    assert shut == [set(), {"busy"}, set(), {"a"}]  # the first alone was not the cause


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


def first_shut(*phases: tuple[float, dict[str, float]], churn: float = 0.0) -> str:
    """The job that is shut out first while losses are too high, in phases with these jobs.

    `churn`: the seconds after which another small job leaves, again and again.
    """
    strikes, now, tick = Strikes(0.0), 0.0, 0.25
    for until, worked in phases:
        while now < until:
            shut = strikes.shut(
                losing=True, excess=2.0, windows=int(now), worked={**worked, "small": 0.01}, now=now
            )
            if shut:
                return "".join(shut)
            now += tick
            if churn and now % churn < tick:
                strikes.remove("small")
    return ""


def test_no_job_is_shut_out_for_losses_before_it_came() -> None:
    assert first_shut((50, {"old": 0.2}), (100, {"old": 0.2, "new": 0.9})) == "old"


def test_a_job_that_came_when_the_losses_began_is_shut_out() -> None:
    assert first_shut((0.5, {"old": 0.2}), (100, {"old": 0.2, "new": 0.9})) == "new"


def test_coming_and_leaving_of_others_forgives_nothing() -> None:
    assert first_shut((100, {"old": 0.9}), churn=25.0) == "old"


def test_losses_beside_the_busiest_job_are_forgotten_when_it_leaves() -> None:
    trial = Trial()
    trial.run(PATIENCE - 10, losing=True, excess=9.0)
    trial.jobs.remove("busy")
    assert trial.run(PATIENCE - 2, losing=True, excess=9.0) == [set()]


def test_a_gain_makes_up_for_no_more_than_the_budget_does() -> None:
    trial = Trial()
    for _ in range(10):
        trial.run(40, losing=True, excess=2.0)
        trial.run(8, losing=False, excess=-5.0)
    assert trial.strikes("busy") > 0


def test_a_loss_that_varies_around_the_budget_is_tolerated() -> None:
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
    assert trial.jobs.records["busy"].times_shut == EVICTED_AFTER - 1
