from kfext.gpu.rules.loss import FRESH
from kfext.gpu.rules.strikes import FORGOTTEN_SECONDS, PATIENCE, SHUT_SECONDS, Strikes
from kfext.model.shared_gpu import EVICTED_AFTER

WORKED = {"a": 0.2, "busy": 0.4, "b": 0.1}


class StruckCard:
    """A card with a new window of measured losses every `window` seconds."""

    def __init__(self, *, window: float = 10.0) -> None:
        self.now, self.jobs, self._window = 0.0, Strikes(0.0), window

    def run(self, seconds: float, *, losing: bool, excess: float = 0.0) -> list[set[str]]:
        """Return the successive sets of jobs with shut gates; `excess`: see `LossMeter.excess`."""
        results: list[set[str]] = []
        until = self.now + seconds
        while self.now < until:
            windows = int(self.now / self._window)
            shut = self.jobs.shut(
                losing=losing, excess=excess, windows=windows, worked=WORKED, now=self.now
            )
            if not results or results[-1] != shut:
                results.append(shut)
            self.now += 0.5
        return results

    def strikes(self, name: str) -> int:
        return self.jobs.records[name].strikes


def test_one_job_at_a_time_is_shut_out_and_the_busiest_job_first() -> None:
    shut = StruckCard().run(PATIENCE + SHUT_SECONDS + 2, losing=True)
    assert shut == [set(), {"busy"}, set(), {"a"}]  # losses without `busy` count against the next


def test_losses_for_less_than_a_minute_change_nothing() -> None:
    card = StruckCard()
    for _ in range(10):
        assert card.run(PATIENCE - 2, losing=True) == [set()]
        card.run(2, losing=False)


def test_a_short_pause_does_not_make_up_for_the_losses() -> None:
    card = StruckCard()
    card.run(PATIENCE - 10, losing=True, excess=2.0)
    assert card.run(30, losing=False, excess=-1.0) == [set()]
    assert card.run(12, losing=True, excess=2.0) == [set(), {"busy"}]


def test_a_long_pause_makes_up_for_the_losses() -> None:
    card = StruckCard()
    card.run(PATIENCE - 10, losing=True, excess=2.0)
    card.run(2 * PATIENCE, losing=False, excess=-1.0)
    assert card.run(PATIENCE - 2, losing=True, excess=2.0) == [set()]


def first_shut(*phases: tuple[float, dict[str, float]], churn: float = 0.0) -> str:
    """Return the job that is shut out first while losses are too high; empty if there is none.

    `phases`: the end of each phase, and the jobs in it with their shares. `churn`: the seconds
    after which a small job is replaced, again and again.
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


def test_a_job_is_not_shut_out_for_losses_before_it_came() -> None:
    assert first_shut((50, {"old": 0.2}), (100, {"old": 0.2, "new": 0.9})) == "old"


def test_a_job_that_came_when_the_losses_began_is_shut_out() -> None:
    assert first_shut((0.5, {"old": 0.2}), (100, {"old": 0.2, "new": 0.9})) == "new"


def test_losses_count_although_other_jobs_come_and_leave() -> None:
    assert first_shut((100, {"old": 0.9}), churn=25.0) == "old"


def test_losses_beside_the_busiest_job_are_forgotten_when_it_leaves() -> None:
    card = StruckCard()
    card.run(PATIENCE - 10, losing=True, excess=9.0)
    card.jobs.remove("busy")
    assert card.run(PATIENCE - 2, losing=True, excess=9.0) == [set()]


def test_a_gain_makes_up_for_losses_no_faster_than_a_loss_of_zero() -> None:
    card = StruckCard()
    for _ in range(10):
        card.run(40, losing=True, excess=2.0)
        card.run(8, losing=False, excess=-5.0)
    assert card.strikes("busy") > 0


def test_a_loss_that_varies_around_the_budget_is_tolerated() -> None:
    card = StruckCard()
    for _ in range(100):
        assert card.run(5, losing=True, excess=0.05) == [set()]
        assert card.run(5, losing=False, excess=-0.05) == [set()]


def test_losses_must_be_confirmed_by_new_measurements() -> None:
    card = StruckCard(window=2 * PATIENCE)
    assert card.run(FRESH * PATIENCE, losing=True) == [set()]
    assert card.run(FRESH * PATIENCE + 2, losing=True) == [set(), {"busy"}]


def test_a_second_strike_needs_new_losses() -> None:
    card = StruckCard()
    card.run(PATIENCE + 1, losing=True)
    card.run(SHUT_SECONDS, losing=False)
    assert card.run(PATIENCE - 2, losing=True) == [set()]


def test_a_strike_is_forgotten_after_ten_minutes_without_losses() -> None:
    card = StruckCard()
    for _ in range(EVICTED_AFTER - 1):
        card.run(PATIENCE + 1, losing=True)
        card.run(SHUT_SECONDS, losing=False)
    assert card.strikes("busy") == EVICTED_AFTER - 1
    card.run(FORGOTTEN_SECONDS - 5, losing=False)
    assert card.strikes("busy") == EVICTED_AFTER - 1
    card.run(10, losing=False)
    assert card.strikes("busy") == EVICTED_AFTER - 2
    assert card.jobs.records["busy"].times_shut == EVICTED_AFTER - 1
