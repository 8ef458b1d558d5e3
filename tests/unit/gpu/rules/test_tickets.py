"""One step for a job that has long waited at its gate, and what that costs the other."""

import pytest

from kfext.gpu.rules.ladder import PATIENCE
from kfext.gpu.rules.neighbours import Neighbours, Ruling, Seen
from kfext.gpu.rules.steps import Reading
from kfext.gpu.rules.tickets import TICKET_SECONDS
from kfext.model.shared_gpu import EVICTED_AFTER

LOOK, BUDGET = 0.05, 0.05


class Trial:
    """A job of high priority that is always busy, and a low job that works on tickets alone.

    `step`: seconds of a step of high alone; `ticket`: seconds of the card that a step of low takes,
    while high waits.
    """

    def __init__(self, *, step: float = 0.1, ticket: float = 0.0, shows: bool = True) -> None:
        self.neighbours = Neighbours(budget=BUDGET, now=0.0)
        self.now, self.tickets = 0.0, list[float]()
        self._step, self._ticket, self._shows = step, ticket, shows
        self._done, self._stepped, self._left = 0.0, 0.0, 0.0

    def look(self) -> Ruling:
        """Go on until the next look."""
        works = min(self._left, LOOK)
        self._left -= works
        before = int(self._done)
        self._done += (LOOK - works) / self._step
        self._stepped = self.now if int(self._done) > before else self._stepped
        self.neighbours.note(Reading(self.now, int(self._done), self._stepped))
        seen = Seen(
            0.0, works, works if self._shows else 0.0, waits=self._left <= 0, works=self._left > 0
        )
        ruling = self.neighbours.rule({"low": seen}, now=self.now)["low"]
        if ruling.ticket:
            self.tickets.append(self.now)
            self._left = self._ticket
        self.now += LOOK
        return ruling

    def run(self, seconds: float) -> Ruling:
        until = self.now + seconds
        while True:
            ruling = self.look()
            if self.now >= until or ruling.evict:
                return ruling


def test_who_waits_before_a_job_that_is_always_busy_may_make_a_step_each_30_s() -> None:
    trial = Trial(ticket=0.2)
    trial.run(10 * TICKET_SECONDS)
    assert len(trial.tickets) == 9
    pauses = [b - a for a, b in zip(trial.tickets, trial.tickets[1:], strict=False)]
    assert all(pause == pytest.approx(TICKET_SECONDS + 0.2, abs=0.2) for pause in pauses)


def test_no_measurement_holds_a_job_back_for_longer() -> None:
    trial, held = Trial(step=11.0, ticket=0.2), 0.0
    longest = 0.0
    while trial.now < 1000:
        tickets = len(trial.tickets)
        trial.look()
        held = held + LOOK if trial.neighbours.meter.holding else 0.0
        held = 0.0 if len(trial.tickets) > tickets else held
        longest = max(longest, held)
    assert trial.neighbours.meter.windows > 0
    assert longest <= TICKET_SECONDS + 1


def test_who_passes_its_gate_gets_none() -> None:
    neighbours = Neighbours(budget=BUDGET, now=0.0)
    for look in range(4000):
        seen = {"works": Seen(0.0, 0.001, 0.0, waits=True), "rests": Seen(0.0, 0.0, 0.0, False)}
        rulings = neighbours.rule(seen, now=look * LOOK)
        assert not any(ruling.ticket for ruling in rulings.values())


def test_steps_that_cost_no_more_than_the_budget_are_borne() -> None:
    trial = Trial(ticket=1.0)
    ruling = trial.run(20 * PATIENCE)
    assert (ruling.times_shut, ruling.strikes) == (0, 0)
    assert len(trial.tickets) > 30


def test_steps_that_cost_more_are_losses_though_few_steps_show_them() -> None:
    trial = Trial(ticket=3.0)
    assert trial.run(20 * PATIENCE).strikes == EVICTED_AFTER


def test_one_long_step_is_no_lasting_loss() -> None:
    trial = Trial(ticket=20.0)
    trial.run(TICKET_SECONDS + 1)
    assert trial.tickets
    trial._ticket = 0.1
    assert trial.run(10 * PATIENCE).times_shut == 0


@pytest.mark.parametrize("step", [0.1, 11.0])
def test_who_does_not_take_its_ticket_cannot_keep_the_other_from_being_measured(
    step: float,
) -> None:
    trial = Trial(step=step)
    trial.run(1000)
    assert len(trial.tickets) > 30
    assert trial.neighbours.meter.step_seconds == pytest.approx(step, rel=0.02)


def test_a_step_in_a_window_does_not_pass_for_one_of_high_with_the_card_to_itself() -> None:
    trial = Trial(step=11.0, ticket=4.0, shows=False)
    trial.run(1000)
    assert trial.neighbours.meter.windows > 3
    assert trial.neighbours.meter.step_seconds == pytest.approx(11.0, rel=0.02)
