import socket

import pytest

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.report import SharerReport
from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import MOST_DESCRIPTORS
from kfext.gpu.rules.strikes import PATIENCE
from kfext.model.gpu import GpuShare
from tests.unit.gpu.agent.hooked import HIGH, LOW, NS, Hooked, joined


def test_a_job_alone_on_its_card_works_whenever_it_wants(card: SharedCard) -> None:
    low = joined(card, "low", LOW)
    card.look(1.0)
    assert low.read().passes(1.1)


def mode(hooked: Hooked) -> int:
    page = hooked.read().orders.page
    assert page is not None
    return int(page[words.MODE])


def test_a_job_leaves_much_work_on_the_card_only_while_no_other_job_has_a_part(
    card: SharedCard,
) -> None:
    low = joined(card, "low", LOW)
    card.look(1.0)
    assert mode(low) == words.FREE
    other = joined(card, "other", LOW)
    card.look(1.1)
    assert [mode(low), mode(other)] == [words.OPEN, words.OPEN]
    card.withdraw("other")
    card.look(1.2)
    assert mode(low) == words.FREE
    joined(card, "high", HIGH)
    card.look(1.3)
    assert mode(low) == words.GATED
    card.withdraw("high")
    card.join("unknown", Hooked().process)
    card.look(1.4)
    assert mode(low) == words.OPEN
    card.reserve(None)
    card.look(1.5)
    assert mode(low) == words.SHUT


def test_orders_that_are_not_renewed_run_out(card: SharedCard) -> None:
    low = joined(card, "low", LOW)
    card.look(1.0)
    assert low.read().orders.led(int(2.9 * NS))
    assert not low.orders.led(int(3.1 * NS))


def test_jobs_of_one_priority_take_turns_by_their_shares(card: SharedCard) -> None:
    lows = {
        "low": joined(card, "low", LOW).read(),
        "other": joined(card, "other", GpuShare(75)).read(),
    }
    for low in lows.values():
        low.asks()
    now, got = 1.0, {"low": 0.0, "other": 0.0}
    while now < 31:
        wait = card.look(now)
        (mine,) = [name for name, low in lows.items() if low.passes(now)]
        got[mine] += wait
        lows[mine].own.words[words.WORKED_NS] += int(wait * NS)
        now += wait
    assert got["other"] / got["low"] == pytest.approx(3, rel=0.05)


def test_high_is_timed_alone_once_a_long_micro_step_has_ended(card: SharedCard) -> None:
    high, low = joined(card, "high", HIGH), joined(card, "low", LOW)
    low.own.words[words.LONGEST_NS] = NS
    now, steps, ends = 1.0, 0.0, 0.0
    while now < PATIENCE:
        wait = card.look(now)
        if now >= ends and low.read().passes(now):
            low.own.words[words.MICRO_STEPS] += 1
            ends = now + 3
        low.asks(asks=now >= ends)
        before = int(steps)
        steps += wait * (10 if now >= ends else 5)
        now += wait
        high.own.words[words.STEPS] = int(steps)
        if int(steps) > before:
            high.own.words[words.STEPPED] = int(now * NS)
    assert card.report(now).loss == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("longest", [0, 2**63], ids=["short ones", "longer ones than there can be"])
def test_a_job_that_reaches_no_gate_any_more_does_not_prevent_the_measurement_of_high(
    card: SharedCard, longest: int
) -> None:
    high, low = joined(card, "high", HIGH), joined(card, "low", LOW)
    low.own.words[words.LONGEST_NS] = longest
    now = 1.0
    while now < 400:
        high.steps(now)
        if now < 20:
            low.own.words[words.MICRO_STEPS] += 1
        now += card.look(now)
    assert card.report(now).loss is not None


def test_the_loss_to_a_job_that_only_pretends_to_work_is_unknown(card: SharedCard) -> None:
    high, low = joined(card, "high", HIGH), joined(card, "low", LOW)
    now = 1.0
    while now < 200:
        high.steps(now)
        low.own.words[words.MICRO_STEPS] += 1
        now += card.look(now)
    assert card.report(now).loss is None


def beside_a_busy_one(card: SharedCard, until: float) -> tuple[Hooked, Hooked, float]:
    """Return a high job that was always busy without a loss, a waiting low job, and the time."""
    high, low = joined(card, "high", HIGH), joined(card, "low", LOW)
    low.asks()
    now = 1.0
    while now < until:
        high.steps(now)
        high.is_busy(now)
        now += card.look(now)
    return high, low.read(), now


def test_a_job_below_its_minimum_may_intrude_up_to_the_budget(card: SharedCard) -> None:
    _, low, _ = beside_a_busy_one(card, 60)
    assert low.orders.page is not None
    allowed = low.orders.page[words.ALLOWANCE_NS]
    assert 0 < allowed <= HIGH.loss_budget * 10 * NS


def test_a_new_process_of_a_pod_gets_the_rest_whatever_the_previous_process_used(
    card: SharedCard,
) -> None:
    _, low, now = beside_a_busy_one(card, 60)
    low.own.words[words.INTRUDED_NS] = 10**15
    card.look(now)
    assert not low.passes(now)
    card.leave("low", low.process.number)
    new = Hooked()
    new.own.words[words.INTRUDED_NS] = 7 * NS  # it has known another agent
    new.asks()
    card.join("low", new.process)
    card.look(now + 30)
    page = new.read().orders.page
    assert page is not None
    assert 7 * NS <= page[words.ALLOWANCE_NS] <= (7 + HIGH.loss_budget * 10) * NS


def test_a_job_that_loses_too_much_has_its_neighbour_shut_out(
    card: SharedCard,
) -> None:
    high, low = joined(card, "high", HIGH), joined(card, "low", LOW)
    other = joined(card, "other", LOW)
    now, steps, shut = 1.0, 1.0, set[str]()
    while now < 400 and not shut:
        wait = card.look(now)
        (report,) = [sharer for sharer in card.report(now).sharers if sharer.pod == "low"]
        held = not low.read().passes(now) and not low.orders.busy(int(now * NS))
        steps += wait * (10 if held and not report.times_shut else 7)
        high.own.words[words.STEPS] = int(steps)
        high.own.words[words.STEPPED] = int(now * NS)
        for sharer, speed in ((low, 2), (other, 1)):
            page = sharer.read().orders.page
            sharer.asks(asks=page is not None and page[words.MODE] == words.SHUT)
            if not sharer.own.words[words.ASKING]:
                sharer.own.words[words.MICRO_STEPS] += 1
                sharer.own.words[words.WORKED_NS] += int(wait * speed / 3 * NS)
        shut |= {sharer.pod for sharer in card.report(now).sharers if sharer.times_shut}
        now += wait
    assert shut == {"low"}
    card.withdraw("high")
    card.look(now)
    assert [sharer.times_shut for sharer in card.report(now).sharers] == [
        1,
        0,
    ]  # a counter never falls


def test_a_process_is_woken_for_its_turn(card: SharedCard) -> None:
    low = joined(card, "low", LOW).read()
    low.asks()
    card.look(1.0)
    assert low.orders.bell is not None
    assert low.orders.bell.recv(8, socket.MSG_DONTWAIT) == b"t"


def test_the_gates_are_shut_while_the_reservation_is_missing(card: SharedCard) -> None:
    low = joined(card, "low", LOW)
    card.look(1.0)
    assert low.read().passes(1.0)
    card.reserve(None)
    card.look(1.1)
    assert not low.passes(1.1)
    card.reserve("GPU-1")
    card.look(1.2)
    assert low.passes(1.2)


def test_another_pod_in_the_same_folder_starts_without_strikes(card: SharedCard) -> None:
    high, low, now = beside_a_busy_one(card, 60)
    assert low.orders.page is not None
    card.withdraw("low")
    new = joined(card, "low", LOW).read()
    high.is_busy(now)
    card.look(now)
    assert new.orders.page is not None
    assert new.orders.page[words.ALLOWANCE_NS] == 0


def test_the_report_of_a_card(card: SharedCard) -> None:
    high, low = joined(card, "high", HIGH), joined(card, "low", LOW)
    card.join("other", Hooked().process)  # of an unknown pod
    card.look(1.0)
    high.is_busy(1.5)
    high.own.words[words.CHANGED] = 3 * NS
    high.own.words[words.MEMORY] = 2**30
    low.own.words[words.WORKED_NS] = 2 * NS
    low.own.words[words.WAITED_NS] = 3 * NS
    low.own.words[words.INTRUDED_NS] = NS
    card.look(6.0)
    report = card.report(6.0)
    assert (report.slot, report.card, report.loss) == (0, "GPU-1", None)
    assert report.sharers == (
        SharerReport("team", "high", True, 0.5, memory=2**30, harvest=0.3, beacon_age=4.5),
        SharerReport(
            "team", "low", False, 0.25, harvest=0.2, waited=3.0, intruded=1.0, micro_step=0.005
        ),
    )


def test_a_false_page_counts_for_at_most_the_time_that_passed(card: SharedCard) -> None:
    low = joined(card, "low", LOW)
    card.look(1.0)
    for word in (words.WORKED_NS, words.WAITED_NS, words.INTRUDED_NS, words.STEPS, words.STEPPED):
        low.own.words[word] = 2**64 - 1
    card.look(2.0)
    (report,) = card.report(2.0).sharers
    assert (report.harvest, report.waited, report.intruded) == (0.1, 1.0, 1.0)


def test_a_job_gives_way_while_the_one_of_high_priority_is_busy(card: SharedCard) -> None:
    low = joined(card, "low", LOW)
    high = joined(card, "high", HIGH)
    card.look(1.0)
    assert low.read().passes(1.1)
    high.is_busy(1.1)
    assert not low.passes(1.1)


def test_a_later_job_gives_way_too(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    low = joined(card, "low", LOW)
    card.look(1.0)
    high.is_busy(1.1)
    assert not low.read().passes(1.1)


def test_a_job_gives_way_to_each_process_of_the_high_job(card: SharedCard) -> None:
    first, second = joined(card, "high", HIGH), Hooked()
    card.join("high", second.process)
    low = joined(card, "low", LOW)
    card.look(1.0)
    assert low.read().passes(1.1)
    second.is_busy(1.1)
    assert not low.passes(1.1)
    assert first.read().bells
    assert second.read().bells


def test_the_job_of_high_priority_wakes_those_that_wait(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    lows = [joined(card, pod, LOW).read() for pod in ("low", "other")]
    card.look(1.0)
    for low in lows:
        low.read()
    high.read()
    assert len(high.bells) == 2
    for bell in high.bells:
        bell.send(b"i")
    for low in lows:
        assert low.orders.bell is not None
        assert low.orders.bell.recv(8) == b"i"


def test_a_bell_works_one_way_only(card: SharedCard) -> None:
    joined(card, "high", HIGH)
    low = joined(card, "low", LOW).read()
    assert low.orders.bell is not None
    with pytest.raises(BrokenPipeError):
        low.orders.bell.send(b"x")


@pytest.mark.parametrize("how", ["its process ends", "its pod goes"])
def test_when_the_job_of_high_priority_goes_the_gate_opens(card: SharedCard, how: str) -> None:
    high = joined(card, "high", HIGH)
    low = joined(card, "low", LOW)
    high.is_busy(1.1)
    if how == "its process ends":
        card.leave("high", high.process.number)
    else:
        card.withdraw("high")
    card.look(1.1)
    assert low.read().passes(1.1)


def test_a_job_with_unknown_terms_gives_way_to_the_job_of_high_priority(card: SharedCard) -> None:
    high, low = joined(card, "high", HIGH), Hooked()
    high.is_busy(1.0)
    card.join("low", low.process)
    assert not low.read().passes(1.0)


def test_a_new_job_gives_way_before_the_next_look(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    high.is_busy(1.0)
    assert not joined(card, "low", LOW).read().passes(1.0)


def test_other_jobs_work_while_the_job_of_high_priority_has_no_process(card: SharedCard) -> None:
    card.promise("high", ("team", "high"), HIGH, now=1.0)
    low = joined(card, "low", LOW)
    card.look(1.0)
    assert low.read().passes(1.1)
    high = Hooked()
    card.join("high", high.process)
    high.is_busy(1.1)
    card.look(1.1)
    assert not low.read().passes(1.1)


def test_processes_hear_once_in_a_look_of_others_that_come_and_go(card: SharedCard) -> None:
    low, other = joined(card, "low", LOW), joined(card, "other", LOW)
    high = joined(card, "high", HIGH)
    card.look(1.0)
    before = [sharer.read().messages for sharer in (low, other, high)]
    for pod in ("high", "low"):
        for _ in range(100):
            hooked = Hooked()
            card.join(pod, hooked.process)
            card.leave(pod, hooked.process.number)
    card.join("high", Hooked().process)
    card.look(1.1)
    card.look(1.2)
    after = [sharer.read().messages for sharer in (low, other, high)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1]


def heard(low: Hooked) -> bytes:
    """Return the present messages about the bell of a process."""
    bell = low.read().orders.bell
    assert bell is not None
    return bell.recv(8, socket.MSG_DONTWAIT)


def test_a_pod_with_many_processes_has_one_bell(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    joined(card, "low", LOW)
    for _ in range(15):
        card.join("low", Hooked().process)
    card.look(1.0)
    assert len(high.read().bells) == 1


def test_processes_that_come_one_after_the_other_hear_the_same_bell(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    card.promise("low", ("team", "low"), LOW, now=1.0)
    card.look(1.0)
    before = high.read().messages
    for moment in range(10):
        hooked = Hooked()
        card.join("low", hooked.process)
        card.look(1.1 + moment)
        high.bells[0].send(b"i")
        assert heard(hooked) == b"i"
        card.leave("low", hooked.process.number)
    assert high.read().messages == before


def test_no_message_has_more_bells_than_descriptors(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    crowd = [joined(card, f"low-{number}", LOW) for number in range(MOST_DESCRIPTORS + 1)]
    card.look(1.0)
    assert len(high.read().bells) == MOST_DESCRIPTORS
    for bell in high.bells:
        bell.send(b"i")
    for low in crowd[:MOST_DESCRIPTORS]:
        assert heard(low) == b"i"
