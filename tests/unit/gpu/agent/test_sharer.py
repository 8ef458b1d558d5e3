import pytest

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.report import SharerReport
from kfext.gpu.agent.sharer import PATIENCE, Sharer
from kfext.gpu.hook import words
from kfext.gpu.rules.measures import STRETCH
from kfext.model.shared_gpu import (
    CALLBACK_LIST,
    HOOK_FAILED,
    LONGEST_COARSE,
    NO_FRAMEWORK,
    OLD_TENSORFLOW,
)
from tests.unit.gpu.agent.hooked import HIGH, LOW, NS, Hooked, joined


def without_hook(card: SharedCard, pod: str, reason: int) -> Hooked:
    """Connect a process that states why it has no hook, and disconnect it."""
    hooked = Hooked()
    hooked.own.words[words.UNHOOKED] = reason
    card.join(pod, hooked.process)
    card.leave(pod, hooked.process.number)
    return hooked


def of(card: SharedCard, pod: str, *, now: float = 2.0) -> SharerReport:
    card.look(now)
    (result,) = (sharer for sharer in card.report(now).sharers if sharer.pod == pod)
    return result


REASONS = {
    words.FAILED: HOOK_FAILED,
    words.OLD_TENSORFLOW: OLD_TENSORFLOW,
    words.CALLBACK_LIST: CALLBACK_LIST,
    99: "",
    2**64 - 1: "",
}


@pytest.mark.parametrize(("reason", "want"), REASONS.items())
def test_the_statement_of_a_process_without_a_hook_is_shown(
    card: SharedCard, reason: int, want: str
) -> None:
    card.promise("low", ("team", "low"), LOW, now=1.0)
    came = without_hook(card, "low", reason)
    assert of(card, "low").unhooked == want
    assert came.read().messages == 0, "there is nothing to lead"


def test_the_statement_says_nothing_of_processes_with_a_hook(card: SharedCard) -> None:
    joined(card, "low", LOW)
    without_hook(card, "low", words.FAILED)
    assert of(card, "low").unhooked == ""


def test_a_failed_hook_is_shown_and_its_beacon_is_no_longer_believed(card: SharedCard) -> None:
    high, low = joined(card, "high", HIGH), joined(card, "low", LOW)
    high.is_busy(1.9)
    card.look(2.0)
    assert not low.read().passes(2.0)
    assert of(card, "high").beacon_age == pytest.approx(0.1)
    high.own.words[words.UNHOOKED] = words.FAILED
    result = of(card, "high")
    assert (result.unhooked, result.beacon_age) == (HOOK_FAILED, None)


def test_the_use_of_a_pod_without_a_hook_is_unknown_instead_of_zero(card: SharedCard) -> None:
    card.promise("low", ("team", "low"), LOW, now=1.0)
    failed = joined(card, "high", HIGH)
    failed.own.words[words.MEMORY] = 2**30
    assert (of(card, "low").harvest, of(card, "low").memory) == (None, None)
    assert (of(card, "high").harvest, of(card, "high").memory) == (0.0, 2**30)
    failed.own.words[words.UNHOOKED] = words.FAILED
    assert (of(card, "high").harvest, of(card, "high").memory) == (None, None)


def test_the_memory_of_keras_is_unknown(card: SharedCard) -> None:
    joined(card, "high", HIGH).own.words[words.MEMORY] = 0
    assert of(card, "high").memory is None


def test_a_silent_pod_is_shown_after_a_while(card: SharedCard) -> None:
    card.promise("low", ("team", "low"), LOW, now=1.0)
    assert of(card, "low", now=PATIENCE).unhooked == ""
    assert of(card, "low", now=1.0 + PATIENCE).unhooked == NO_FRAMEWORK
    hooked = Hooked()
    card.join("low", hooked.process)
    assert of(card, "low", now=2.0 + PATIENCE).unhooked == ""
    card.leave("low", hooked.process.number)
    assert of(card, "low", now=3.0 + PATIENCE).unhooked == "", "it has ended, or begins again"


def test_a_pod_gives_way_once_a_process_with_a_hook_has_connected_and_while_it_works() -> None:
    sharer, hooked = Sharer(), Hooked()
    sharer.promise(("team", "low"), LOW, now=1.0)
    assert not sharer.effects().gives_way
    sharer.join(hooked.process)
    assert sharer.effects().gives_way
    hooked.own.words[words.UNHOOKED] = words.FAILED
    assert not sharer.effects().gives_way


STEP = 0.1
"""Seconds of a step, and of one report of a process of low priority."""


def known(card: SharedCard, pod: str, now: float) -> float | None:
    return next(sharer.busy for sharer in card.report(now).sharers if sharer.pod == pod)


def beats(high: Hooked, now: float, *, busy: float) -> None:
    """A step of a job of high priority, which was busy for a part of it."""
    page = high.own.words
    page[words.HEARTBEAT] = page[words.STEPPED] = page[words.CHANGED] = int(now * NS)
    page[words.BUSY_NS] += int(busy * STEP * NS)
    page[words.STEPS] += 1


def works(low: Hooked, *, rested: float) -> None:
    """A step of a job of low priority; the card was idle for a part of it."""
    page = low.own.words
    page[words.WORKED_NS] += int(STEP * NS)
    page[words.RESTED_NS] += int(rested * STEP * NS)
    page[words.MICRO_STEPS] += 1
    page[words.STEPS] += 1


def test_a_job_that_still_loads_data_is_not_known_to_be_idle(card: SharedCard) -> None:
    high, now = joined(card, "high", HIGH), 1.0
    for _ in range(2000):
        high.own.words[words.HEARTBEAT] = int(now * NS)
        card.look(now)
        now += STEP
    assert known(card, "high", now) is None


def test_a_job_of_high_priority_is_known_after_a_minute_of_its_steps(card: SharedCard) -> None:
    high, now = joined(card, "high", HIGH), 1.0
    results: list[float | None] = []
    while now < 2 * STRETCH:
        beats(high, now, busy=0.7)
        card.look(now)
        results.append(known(card, "high", now))
        now += STEP
    assert results.count(None) == pytest.approx(STRETCH / STEP, abs=4)
    assert results[-1] == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a busy job"])
def test_waits_at_the_gate_do_not_count_as_time_in_which_a_job_of_low_priority_could_work(
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


def test_a_failed_hook_leaves_its_measurements_unknown(card: SharedCard) -> None:
    high, now = joined(card, "high", HIGH), 1.0
    while known(card, "high", now) is None and now < 2 * STRETCH:
        beats(high, now, busy=0.7)
        card.look(now)
        now += STEP
    assert known(card, "high", now) is not None
    high.own.words[words.UNHOOKED] = words.FAILED
    card.look(now)
    assert known(card, "high", now) is None


STATED: dict[str, tuple[int, float, float | None, bool]] = {
    "it has not been calibrated": (words.WATCHING, 0.08, None, False),
    "all micro-steps are short enough": (words.READY, 0.004, 0.004, False),
    "one micro-step is longer": (words.COARSE, 0.08, 0.08, True),
    "no process passes the gate any more": (0, 0.08, None, False),
    "it states an impossible value": (99, 0.08, None, False),
    "it states an age": (words.COARSE, 1e9, LONGEST_COARSE, True),
}


@pytest.mark.parametrize(("gate", "seconds", "longest", "coarse"), STATED.values(), ids=STATED)
def test_the_statement_of_a_process(
    gate: int, seconds: float, longest: float | None, coarse: bool, card: SharedCard
) -> None:
    state(joined(card, "low", LOW), gate, seconds)
    assert shown(card, "low") == (longest, coarse)


def test_the_longest_of_several_processes_counts(card: SharedCard) -> None:
    state(joined(card, "low", LOW), words.COARSE, 0.02)
    other = Hooked()
    card.join("low", other.process)
    state(other, words.READY, 0.03)
    assert shown(card, "low") == (0.03, True)


def test_a_job_of_high_priority_has_no_gate(card: SharedCard) -> None:
    state(joined(card, "high", HIGH), words.COARSE, 0.08)
    assert shown(card, "high") == (None, False)


def state(hooked: Hooked, gate: int, seconds: float) -> None:
    hooked.own.words[words.HOOKED] = gate
    hooked.own.words[words.LONGEST_NS] = round(seconds * NS)


def shown(card: SharedCard, pod: str) -> tuple[float | None, bool]:
    (result,) = (sharer for sharer in card.report(2.0).sharers if sharer.pod == pod)
    return result.longest, result.coarse
