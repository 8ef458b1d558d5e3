import socket

import pytest

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.report import SharerReport
from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import MAX_DESCRIPTORS
from kfext.gpu.rules.strikes import PATIENCE
from kfext.model.gpu import GpuShare
from tests.unit.gpu.agent.hooked import HIGH, LOW, NS, Hooked, join_process


def test_a_job_alone_on_its_card_passes_its_gate_at_any_time(card: SharedCard) -> None:
    low = join_process(card, "low", LOW)
    card.update(1.0)
    assert low.read().passes(1.1)


def mode(hooked: Hooked) -> int:
    """Return the mode in a process's orders."""
    page = hooked.read().orders.page
    assert page is not None
    return int(page[words.MODE])


def test_the_mode_depends_on_the_other_pods_and_the_reservation(card: SharedCard) -> None:
    low = join_process(card, "low", LOW)
    card.update(1.0)
    assert mode(low) == words.FREE
    other = join_process(card, "other", LOW)
    card.update(1.1)
    assert [mode(low), mode(other)] == [words.OPEN, words.OPEN]
    card.withdraw("other")
    card.update(1.2)
    assert mode(low) == words.FREE
    join_process(card, "high", HIGH)
    card.update(1.3)
    assert mode(low) == words.GATED
    card.withdraw("high")
    card.join("unknown", Hooked().process)
    card.update(1.4)
    assert mode(low) == words.OPEN
    card.reserve(None)
    card.update(1.5)
    assert mode(low) == words.SHUT


def test_orders_that_are_not_renewed_expire_after_two_seconds(card: SharedCard) -> None:
    low = join_process(card, "low", LOW)
    card.update(1.0)
    assert low.read().orders.agent_alive(int(2.9 * NS))
    assert not low.orders.agent_alive(int(3.1 * NS))


def test_jobs_of_one_priority_take_turns_by_their_shares(card: SharedCard) -> None:
    lows = {
        "low": join_process(card, "low", LOW).read(),
        "other": join_process(card, "other", GpuShare(75)).read(),
    }
    for low in lows.values():
        low.set_asking()
    now, turn_seconds = 1.0, {"low": 0.0, "other": 0.0}
    while now < 31:
        wait = card.update(now)
        (holder,) = [name for name, low in lows.items() if low.passes(now)]
        turn_seconds[holder] += wait
        lows[holder].page.words[words.WORKED_NS] += int(wait * NS)
        now += wait
    assert turn_seconds["other"] / turn_seconds["low"] == pytest.approx(3, rel=0.05)


def test_the_loss_is_measured_although_micro_steps_take_three_seconds(card: SharedCard) -> None:
    high, low = join_process(card, "high", HIGH), join_process(card, "low", LOW)
    low.page.words[words.LONGEST_NS] = NS
    now, steps, ends = 1.0, 0.0, 0.0
    while now < PATIENCE:
        wait = card.update(now)
        if now >= ends and low.read().passes(now):
            low.page.words[words.MICRO_STEPS] += 1
            ends = now + 3
        low.set_asking(asks=now >= ends)
        before = int(steps)
        steps += wait * (10 if now >= ends else 5)
        now += wait
        high.page.words[words.STEPS] = int(steps)
        if int(steps) > before:
            high.page.words[words.STEPPED] = int(now * NS)
    assert card.report(now).loss == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("longest", [0, 2**63], ids=["no longest micro-step", "an impossible time"])
def test_a_job_that_reaches_no_gate_any_more_does_not_prevent_the_measurement_of_the_loss(
    card: SharedCard, longest: int
) -> None:
    high, low = join_process(card, "high", HIGH), join_process(card, "low", LOW)
    low.page.words[words.LONGEST_NS] = longest
    now = 1.0
    while now < 400:
        high.set_steps(now)
        if now < 20:
            low.page.words[words.MICRO_STEPS] += 1
        now += card.update(now)
    assert card.report(now).loss is not None


def test_the_loss_is_unknown_if_a_job_passes_its_gate_in_every_update(card: SharedCard) -> None:
    high, low = join_process(card, "high", HIGH), join_process(card, "low", LOW)
    now = 1.0
    while now < 200:
        high.set_steps(now)
        low.page.words[words.MICRO_STEPS] += 1
        now += card.update(now)
    assert card.report(now).loss is None


def high_always_busy(card: SharedCard, until: float) -> tuple[Hooked, Hooked, float]:
    """Run a busy high-priority job without a loss and a waiting job; return both, and the time."""
    high, low = join_process(card, "high", HIGH), join_process(card, "low", LOW)
    low.set_asking()
    now = 1.0
    while now < until:
        high.set_steps(now)
        high.set_busy(now)
        now += card.update(now)
    return high, low.read(), now


def test_a_job_below_its_minimum_may_intrude_up_to_the_budget(card: SharedCard) -> None:
    _, low, _ = high_always_busy(card, 60)
    assert low.orders.page is not None
    allowed = low.orders.page[words.ALLOWANCE_NS]
    assert 0 < allowed <= HIGH.loss_budget * 10 * NS


def test_a_new_process_gets_an_allowance_whatever_the_last_has_used(card: SharedCard) -> None:
    _, low, now = high_always_busy(card, 60)
    low.page.words[words.INTRUDED_NS] = 10**15
    card.update(now)
    assert not low.passes(now)
    card.leave("low", low.process.number)
    new = Hooked()
    new.page.words[words.INTRUDED_NS] = 7 * NS  # counted under an earlier agent
    new.set_asking()
    card.join("low", new.process)
    card.update(now + 30)
    page = new.read().orders.page
    assert page is not None
    assert 7 * NS <= page[words.ALLOWANCE_NS] <= (7 + HIGH.loss_budget * 10) * NS


def test_the_busiest_job_is_shut_out_for_losses_and_the_count_stays(card: SharedCard) -> None:
    high, low = join_process(card, "high", HIGH), join_process(card, "low", LOW)
    other = join_process(card, "other", LOW)
    now, steps, shut = 1.0, 1.0, set[str]()
    while now < 400 and not shut:
        wait = card.update(now)
        (report,) = [sharer for sharer in card.report(now).sharers if sharer.pod == "low"]
        held_back = not low.read().passes(now) and not low.orders.busy(int(now * NS))
        steps += wait * (10 if held_back and not report.times_shut else 7)
        high.page.words[words.STEPS] = int(steps)
        high.page.words[words.STEPPED] = int(now * NS)
        for sharer, speed in ((low, 2), (other, 1)):
            page = sharer.read().orders.page
            sharer.set_asking(asks=page is not None and page[words.MODE] == words.SHUT)
            if not sharer.page.words[words.ASKING]:
                sharer.page.words[words.MICRO_STEPS] += 1
                sharer.page.words[words.WORKED_NS] += int(wait * speed / 3 * NS)
        shut |= {sharer.pod for sharer in card.report(now).sharers if sharer.times_shut}
        now += wait
    assert shut == {"low"}
    card.withdraw("high")
    card.update(now)
    times_shut = [sharer.times_shut for sharer in card.report(now).sharers]
    assert times_shut == [1, 0], "a counter never falls"


def test_a_process_is_woken_for_its_turn(card: SharedCard) -> None:
    low = join_process(card, "low", LOW).read()
    low.set_asking()
    card.update(1.0)
    assert low.orders.bell is not None
    assert low.orders.bell.recv(8, socket.MSG_DONTWAIT) == b"t"


def test_the_gates_are_shut_while_the_reservation_is_missing(card: SharedCard) -> None:
    low = join_process(card, "low", LOW)
    card.update(1.0)
    assert low.read().passes(1.0)
    card.reserve(None)
    card.update(1.1)
    assert not low.passes(1.1)
    card.reserve("GPU-1")
    card.update(1.2)
    assert low.passes(1.2)


def test_another_pod_in_the_same_folder_starts_without_an_allowance(card: SharedCard) -> None:
    high, low, now = high_always_busy(card, 60)
    assert low.orders.page is not None
    card.withdraw("low")
    new = join_process(card, "low", LOW).read()
    high.set_busy(now)
    card.update(now)
    assert new.orders.page is not None
    assert new.orders.page[words.ALLOWANCE_NS] == 0


def test_the_report_of_a_card(card: SharedCard) -> None:
    high, low = join_process(card, "high", HIGH), join_process(card, "low", LOW)
    card.join("other", Hooked().process)  # of an unknown pod
    card.update(1.0)
    high.set_busy(1.5)
    high.page.words[words.CHANGED] = 3 * NS
    high.page.words[words.MEMORY] = 2**30
    low.page.words[words.WORKED_NS] = 2 * NS
    low.page.words[words.WAITED_NS] = 3 * NS
    low.page.words[words.INTRUDED_NS] = NS
    card.update(6.0)
    report = card.report(6.0)
    assert (report.slot, report.card, report.loss) == (0, "GPU-1", None)
    assert report.sharers == (
        SharerReport("team", "high", True, 0.5, memory=2**30, used=0.3, beacon_age=4.5),
        SharerReport(
            "team", "low", False, 0.25, used=0.2, waited=3.0, intruded=1.0, micro_step=0.005
        ),
    )


def test_false_counters_count_for_at_most_the_time_that_passed(card: SharedCard) -> None:
    low = join_process(card, "low", LOW)
    card.update(1.0)
    for word in (words.WORKED_NS, words.WAITED_NS, words.INTRUDED_NS, words.STEPS, words.STEPPED):
        low.page.words[word] = 2**64 - 1
    card.update(2.0)
    (report,) = card.report(2.0).sharers
    assert (report.used, report.waited, report.intruded) == (0.1, 1.0, 1.0)


def test_a_job_gives_way_while_the_high_priority_job_is_busy(card: SharedCard) -> None:
    low = join_process(card, "low", LOW)
    high = join_process(card, "high", HIGH)
    card.update(1.0)
    assert low.read().passes(1.1)
    high.set_busy(1.1)
    assert not low.passes(1.1)


def test_a_job_that_joins_after_the_high_priority_job_gives_way_too(card: SharedCard) -> None:
    high = join_process(card, "high", HIGH)
    low = join_process(card, "low", LOW)
    card.update(1.0)
    high.set_busy(1.1)
    assert not low.read().passes(1.1)


def test_a_job_gives_way_to_each_process_of_the_high_priority_job(card: SharedCard) -> None:
    first, second = join_process(card, "high", HIGH), Hooked()
    card.join("high", second.process)
    low = join_process(card, "low", LOW)
    card.update(1.0)
    assert low.read().passes(1.1)
    second.set_busy(1.1)
    assert not low.passes(1.1)
    assert first.read().bells
    assert second.read().bells


def test_the_high_priority_job_can_ring_the_bell_of_each_low_priority_pod(card: SharedCard) -> None:
    high = join_process(card, "high", HIGH)
    lows = [join_process(card, pod, LOW).read() for pod in ("low", "other")]
    card.update(1.0)
    for low in lows:
        low.read()
    high.read()
    assert len(high.bells) == 2
    for bell in high.bells:
        bell.send(b"i")
    for low in lows:
        assert low.orders.bell is not None
        assert low.orders.bell.recv(8) == b"i"


def test_a_low_priority_process_cannot_send_through_its_bell(card: SharedCard) -> None:
    join_process(card, "high", HIGH)
    low = join_process(card, "low", LOW).read()
    assert low.orders.bell is not None
    with pytest.raises(BrokenPipeError):
        low.orders.bell.send(b"x")


@pytest.mark.parametrize("end", ["its process ends", "its pod is gone"])
def test_the_gate_opens_when_the_high_priority_job_ends(card: SharedCard, end: str) -> None:
    high = join_process(card, "high", HIGH)
    low = join_process(card, "low", LOW)
    high.set_busy(1.1)
    if end == "its process ends":
        card.leave("high", high.process.number)
    else:
        card.withdraw("high")
    card.update(1.1)
    assert low.read().passes(1.1)


def test_a_job_with_unknown_terms_gives_way_to_the_high_priority_job(card: SharedCard) -> None:
    high, low = join_process(card, "high", HIGH), Hooked()
    high.set_busy(1.0)
    card.join("low", low.process)
    assert not low.read().passes(1.0)


def test_a_new_job_gives_way_before_the_next_update(card: SharedCard) -> None:
    high = join_process(card, "high", HIGH)
    high.set_busy(1.0)
    assert not join_process(card, "low", LOW).read().passes(1.0)


def test_other_jobs_work_while_the_high_priority_job_has_no_process(card: SharedCard) -> None:
    card.promise("high", ("team", "high"), HIGH, now=1.0)
    low = join_process(card, "low", LOW)
    card.update(1.0)
    assert low.read().passes(1.1)
    high = Hooked()
    card.join("high", high.process)
    high.set_busy(1.1)
    card.update(1.1)
    assert not low.read().passes(1.1)


def test_processes_get_one_message_about_many_others_in_an_update(card: SharedCard) -> None:
    low, other = join_process(card, "low", LOW), join_process(card, "other", LOW)
    high = join_process(card, "high", HIGH)
    card.update(1.0)
    before = [sharer.read().messages for sharer in (low, other, high)]
    for pod in ("high", "low"):
        for _ in range(100):
            hooked = Hooked()
            card.join(pod, hooked.process)
            card.leave(pod, hooked.process.number)
    card.join("high", Hooked().process)
    card.update(1.1)
    card.update(1.2)
    after = [sharer.read().messages for sharer in (low, other, high)]
    assert [new - old for old, new in zip(before, after, strict=True)] == [1, 1, 1]


def next_ring(low: Hooked) -> bytes:
    """Return the next message in the bell of a process."""
    bell = low.read().orders.bell
    assert bell is not None
    return bell.recv(8, socket.MSG_DONTWAIT)


def test_a_pod_with_many_processes_has_one_bell(card: SharedCard) -> None:
    high = join_process(card, "high", HIGH)
    join_process(card, "low", LOW)
    for _ in range(15):
        card.join("low", Hooked().process)
    card.update(1.0)
    assert len(high.read().bells) == 1


def test_successive_processes_of_a_pod_have_the_same_bell(card: SharedCard) -> None:
    high = join_process(card, "high", HIGH)
    card.promise("low", ("team", "low"), LOW, now=1.0)
    card.update(1.0)
    before = high.read().messages
    for number in range(10):
        hooked = Hooked()
        card.join("low", hooked.process)
        card.update(1.1 + number)
        high.bells[0].send(b"i")
        assert next_ring(hooked) == b"i"
        card.leave("low", hooked.process.number)
    assert high.read().messages == before


def test_a_message_has_at_most_as_many_bells_as_descriptors_are_allowed(card: SharedCard) -> None:
    high = join_process(card, "high", HIGH)
    lows = [join_process(card, f"low-{number}", LOW) for number in range(MAX_DESCRIPTORS + 1)]
    card.update(1.0)
    assert len(high.read().bells) == MAX_DESCRIPTORS
    for bell in high.bells:
        bell.send(b"i")
    for low in lows[:MAX_DESCRIPTORS]:
        assert next_ring(low) == b"i"
