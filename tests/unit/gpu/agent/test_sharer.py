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
from tests.unit.gpu.agent.hooked import HIGH, LOW, NS, Hooked, join_process


def connect_without_hook(card: SharedCard, pod: str, reason: int) -> Hooked:
    """Connect a process that reports why it has no hook, and disconnect it."""
    hooked = Hooked()
    hooked.page.words[words.UNHOOKED] = reason
    card.join(pod, hooked.process)
    card.leave(pod, hooked.process.number)
    return hooked


def report_of(card: SharedCard, pod: str, *, now: float = 2.0) -> SharerReport:
    card.update(now)
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
def test_the_reason_for_a_missing_hook_is_shown(card: SharedCard, reason: int, want: str) -> None:
    card.promise("low", ("team", "low"), LOW, now=1.0)
    process = connect_without_hook(card, "low", reason)
    assert report_of(card, "low").unhooked == want
    assert process.read().messages == 0, "the agent sends it no orders"


def test_the_report_of_a_process_without_a_hook_concerns_no_other(card: SharedCard) -> None:
    join_process(card, "low", LOW)
    connect_without_hook(card, "low", words.FAILED)
    assert report_of(card, "low").unhooked == ""


def test_a_failed_hook_is_shown_and_its_beacon_is_ignored(card: SharedCard) -> None:
    high, low = join_process(card, "high", HIGH), join_process(card, "low", LOW)
    high.set_busy(1.9)
    card.update(2.0)
    assert not low.read().passes(2.0)
    assert report_of(card, "high").beacon_age == pytest.approx(0.1)
    high.page.words[words.UNHOOKED] = words.FAILED
    result = report_of(card, "high")
    assert (result.unhooked, result.beacon_age) == (HOOK_FAILED, None)


def test_the_use_and_memory_of_a_pod_without_a_hook_are_unknown(card: SharedCard) -> None:
    card.promise("low", ("team", "low"), LOW, now=1.0)
    failed = join_process(card, "high", HIGH)
    failed.page.words[words.MEMORY] = 2**30
    assert (report_of(card, "low").used, report_of(card, "low").memory) == (None, None)
    assert (report_of(card, "high").used, report_of(card, "high").memory) == (0.0, 2**30)
    failed.page.words[words.UNHOOKED] = words.FAILED
    assert (report_of(card, "high").used, report_of(card, "high").memory) == (None, None)


def test_a_memory_of_0_on_the_page_means_unknown(card: SharedCard) -> None:
    join_process(card, "high", HIGH).page.words[words.MEMORY] = 0
    assert report_of(card, "high").memory is None


def test_a_pod_without_a_connection_for_a_minute_has_no_framework(card: SharedCard) -> None:
    card.promise("low", ("team", "low"), LOW, now=1.0)
    assert report_of(card, "low", now=PATIENCE).unhooked == ""
    assert report_of(card, "low", now=1.0 + PATIENCE).unhooked == NO_FRAMEWORK
    hooked = Hooked()
    card.join("low", hooked.process)
    assert report_of(card, "low", now=2.0 + PATIENCE).unhooked == ""
    card.leave("low", hooked.process.number)
    assert report_of(card, "low", now=3.0 + PATIENCE).unhooked == "", "its process has had a hook"


def test_a_pod_gives_way_from_the_connection_of_a_hook_until_the_hook_fails() -> None:
    sharer, hooked = Sharer(), Hooked()
    sharer.promise(("team", "low"), LOW, now=1.0)
    assert not sharer.effects().gives_way
    sharer.join(hooked.process)
    assert sharer.effects().gives_way
    hooked.page.words[words.UNHOOKED] = words.FAILED
    assert not sharer.effects().gives_way


STEP = 0.1
"""Seconds of a training step, and of one pass of a low-priority job."""


def busy_of(card: SharedCard, pod: str, now: float) -> float | None:
    return next(sharer.busy for sharer in card.report(now).sharers if sharer.pod == pod)


def high_step(high: Hooked, now: float, *, busy: float) -> None:
    """Make a step of a high-priority job, which was busy for a fraction of it."""
    page = high.page.words
    page[words.HEARTBEAT] = page[words.STEPPED] = page[words.CHANGED] = int(now * NS)
    page[words.BUSY_NS] += int(busy * STEP * NS)
    page[words.STEPS] += 1


def low_step(low: Hooked, *, rested: float) -> None:
    """Make a step of a low-priority job; the card was idle for a fraction of it."""
    page = low.page.words
    page[words.WORKED_NS] += int(STEP * NS)
    page[words.RESTED_NS] += int(rested * STEP * NS)
    page[words.MICRO_STEPS] += 1
    page[words.STEPS] += 1


def test_the_busy_fraction_of_a_job_without_steps_is_unknown(card: SharedCard) -> None:
    high, now = join_process(card, "high", HIGH), 1.0
    for _ in range(2000):
        high.page.words[words.HEARTBEAT] = int(now * NS)
        card.update(now)
        now += STEP
    assert busy_of(card, "high", now) is None


def test_the_busy_fraction_of_high_is_known_after_a_minute_of_steps(card: SharedCard) -> None:
    high, now = join_process(card, "high", HIGH), 1.0
    results: list[float | None] = []
    while now < 2 * STRETCH:
        high_step(high, now, busy=0.7)
        card.update(now)
        results.append(busy_of(card, "high", now))
        now += STEP
    assert results.count(None) == pytest.approx(STRETCH / STEP, abs=4)
    assert results[-1] == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a busy job"])
def test_waits_at_the_gate_do_not_count_as_time_in_which_a_low_priority_job_could_work(
    card: SharedCard, *, beside: bool
) -> None:
    low, now = join_process(card, "low", LOW), 1.0
    high = join_process(card, "high", HIGH) if beside else None
    steps = 0
    while busy_of(card, "low", now) is None and now < 10 * STRETCH:
        if high is not None:
            high_step(high, now, busy=0.8)
            low.set_asking(asks=steps % 5 > 0)
        if steps % 5 == 0 or high is None:
            low_step(low, rested=0.25)
        card.update(now)
        steps += 1
        now += STEP
    assert busy_of(card, "low", now) == pytest.approx(0.75, abs=0.01)


def test_the_busy_fraction_is_unknown_once_the_hook_has_failed(card: SharedCard) -> None:
    high, now = join_process(card, "high", HIGH), 1.0
    while busy_of(card, "high", now) is None and now < 2 * STRETCH:
        high_step(high, now, busy=0.7)
        card.update(now)
        now += STEP
    assert busy_of(card, "high", now) is not None
    high.page.words[words.UNHOOKED] = words.FAILED
    card.update(now)
    assert busy_of(card, "high", now) is None


GATE_STATES: dict[str, tuple[int, float, float | None, bool]] = {
    "it has not been calibrated": (words.WATCHING, 0.08, None, False),
    "all micro-steps are short enough": (words.READY, 0.004, 0.004, False),
    "one micro-step is longer": (words.COARSE, 0.08, 0.08, True),
    "no process passes the gate any more": (0, 0.08, None, False),
    "it reports an unknown state": (99, 0.08, None, False),
    "it reports 30 years": (words.COARSE, 1e9, LONGEST_COARSE, True),
}


@pytest.mark.parametrize(
    ("gate", "seconds", "longest", "coarse"), GATE_STATES.values(), ids=GATE_STATES
)
def test_the_longest_micro_step_and_whether_it_is_coarse(
    gate: int, seconds: float, longest: float | None, coarse: bool, card: SharedCard
) -> None:
    set_gate(join_process(card, "low", LOW), gate, seconds)
    assert micro_steps_of(card, "low") == (longest, coarse)


def test_the_longest_micro_step_of_all_processes_is_shown(card: SharedCard) -> None:
    set_gate(join_process(card, "low", LOW), words.COARSE, 0.02)
    other = Hooked()
    card.join("low", other.process)
    set_gate(other, words.READY, 0.03)
    assert micro_steps_of(card, "low") == (0.03, True)


def test_a_high_priority_job_has_no_longest_micro_step(card: SharedCard) -> None:
    set_gate(join_process(card, "high", HIGH), words.COARSE, 0.08)
    assert micro_steps_of(card, "high") == (None, False)


def set_gate(hooked: Hooked, gate: int, seconds: float) -> None:
    hooked.page.words[words.HOOKED] = gate
    hooked.page.words[words.LONGEST_NS] = round(seconds * NS)


def micro_steps_of(card: SharedCard, pod: str) -> tuple[float | None, bool]:
    (result,) = (sharer for sharer in card.report(2.0).sharers if sharer.pod == pod)
    return result.longest, result.coarse
