"""Which job gives way on a card, from when on, and who wakes it."""

import socket

import pytest

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.hook.agent_connection import MOST_DESCRIPTORS
from kfext.gpu.hook.gate import PASS, WAIT
from tests.unit.gpu.agent.hooked import HIGH, LOW, Hooked, joined


def test_a_job_gives_way_while_the_one_of_high_priority_is_busy(card: SharedCard) -> None:
    low = joined(card, "low", LOW)
    high = joined(card, "high", HIGH)
    card.look(1.0)
    assert low.read().word(1.1) == PASS
    high.is_busy(1.1)
    assert low.word(1.1) == WAIT


def test_who_comes_later_gives_way_too(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    low = joined(card, "low", LOW)
    card.look(1.0)
    high.is_busy(1.1)
    assert low.read().word(1.1) == WAIT


def test_it_gives_way_to_each_process_of_that_job(card: SharedCard) -> None:
    first, second = joined(card, "high", HIGH), Hooked()
    card.join("high", second.process)
    low = joined(card, "low", LOW)
    card.look(1.0)
    assert low.read().word(1.1) == PASS
    second.is_busy(1.1)
    assert low.word(1.1) == WAIT
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
    assert low.read().word(1.1) == PASS


def test_one_with_unknown_terms_gives_way_to_the_job_of_high_priority(card: SharedCard) -> None:
    high, low = joined(card, "high", HIGH), Hooked()
    high.is_busy(1.0)
    card.join("low", low.process)
    assert low.read().word(1.0) == WAIT


def test_one_that_comes_gives_way_before_the_next_look(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    high.is_busy(1.0)
    assert joined(card, "low", LOW).read().word(1.0) == WAIT


def test_while_the_job_of_high_priority_has_no_process_others_work(card: SharedCard) -> None:
    card.promise("high", ("team", "high"), HIGH, now=1.0)
    low = joined(card, "low", LOW)
    card.look(1.0)
    assert low.read().word(1.1) == PASS
    high = Hooked()
    card.join("high", high.process)
    high.is_busy(1.1)
    card.look(1.1)
    assert low.read().word(1.1) == WAIT


def test_of_processes_that_come_and_go_others_hear_once_a_look(card: SharedCard) -> None:
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
    """Return what a process hears of its bell now."""
    bell = low.read().orders.bell
    assert bell is not None
    return bell.recv(8, socket.MSG_DONTWAIT)


def test_a_ring_wakes_each_process_of_a_pod(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    lows = [joined(card, "low", LOW), Hooked()]
    card.join("low", lows[1].process)
    card.look(1.0)
    for bell in high.read().bells:
        bell.send(b"i")
    for low in lows:
        assert heard(low) == b"i", "no other process has heard it instead"


def test_a_pod_with_many_processes_has_four_bells(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    joined(card, "low", LOW)
    for _ in range(15):
        card.join("low", Hooked().process)
    card.look(1.0)
    assert len(high.read().bells) == 4


def test_processes_that_come_one_after_the_other_need_one_bell(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    card.promise("low", ("team", "low"), LOW, now=1.0)
    card.look(1.0)
    before = high.read().messages
    for moment in range(10):
        hooked = Hooked()
        card.join("low", hooked.process)
        card.look(1.1 + moment)
        card.leave("low", hooked.process.number)
    assert high.read().messages == before + 1


def test_many_processes_of_one_pod_take_no_bell_from_others(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    crowd = [joined(card, f"low-{number}", LOW) for number in range(20)]
    for number in range(20):
        for _ in range(3):
            card.join(f"low-{number}", Hooked().process)
    last = joined(card, "last", LOW)
    card.look(1.0)
    assert len(high.read().bells) == MOST_DESCRIPTORS
    for bell in high.bells:
        bell.send(b"i")
    for low in (*crowd, last):
        assert heard(low) == b"i"
