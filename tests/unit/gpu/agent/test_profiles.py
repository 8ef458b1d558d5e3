"""How much of a card a pod would use alone, by what its processes write on their pages."""

import pytest

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.hook import words
from kfext.gpu.rules.measures import STRETCH
from tests.unit.gpu.agent.hooked import HIGH, LOW, NS, Hooked, joined

STEP = 0.1
"""Seconds of a step, and of what a process of low priority reports at a time."""


def known(card: SharedCard, pod: str, now: float) -> float | None:
    return next(sharer.busy for sharer in card.report(now).sharers if sharer.pod == pod)


def beats(high: Hooked, now: float, *, busy: float) -> None:
    """A step of a job of high priority, which was busy for a part of it."""
    page = high.own.words
    page[words.PULSE] = page[words.STEPPED] = page[words.CHANGED] = int(now * NS)
    page[words.BUSY_NS] += int(busy * STEP * NS)
    page[words.STEPS] += 1


def works(low: Hooked, *, rested: float) -> None:
    """A step of a job of low priority; for a part of it the card had nothing to do."""
    page = low.own.words
    page[words.WORKED_NS] += int(STEP * NS)
    page[words.RESTED_NS] += int(rested * STEP * NS)
    page[words.MICRO_STEPS] += 1
    page[words.STEPS] += 1


def test_a_job_that_still_loads_data_is_not_known_to_be_idle(card: SharedCard) -> None:
    high, now = joined(card, "high", HIGH), 1.0
    for _ in range(2000):
        high.own.words[words.PULSE] = int(now * NS)
        card.look(now)
        now += STEP
    assert known(card, "high", now) is None


def test_a_job_of_high_priority_is_known_after_a_minute_of_its_steps(card: SharedCard) -> None:
    high, now = joined(card, "high", HIGH), 1.0
    found: list[float | None] = []
    while now < 2 * STRETCH:
        beats(high, now, busy=0.7)
        card.look(now)
        found.append(known(card, "high", now))
        now += STEP
    assert found.count(None) == pytest.approx(STRETCH / STEP, abs=4)
    assert found[-1] == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a busy job"])
def test_waits_at_the_gate_are_no_time_in_which_a_job_of_low_priority_could_work(
    card: SharedCard, *, beside: bool
) -> None:
    low, now = joined(card, "low", LOW), 1.0
    high = joined(card, "high", HIGH) if beside else None
    steps = 0
    while known(card, "low", now) is None and now < 10 * STRETCH:
        if high is not None:
            beats(high, now, busy=0.8)
            low.asks(asks=steps % 5 > 0)
        if steps % 5 == 0 or high is None:
            works(low, rested=0.25)
        card.look(now)
        steps += 1
        now += STEP
    assert known(card, "low", now) == pytest.approx(0.75, abs=0.01)


def test_a_hook_that_fails_leaves_nothing_known(card: SharedCard) -> None:
    high, now = joined(card, "high", HIGH), 1.0
    while known(card, "high", now) is None and now < 2 * STRETCH:
        beats(high, now, busy=0.7)
        card.look(now)
        now += STEP
    assert known(card, "high", now) is not None
    high.own.words[words.UNHOOKED] = words.FAILED
    card.look(now)
    assert known(card, "high", now) is None
