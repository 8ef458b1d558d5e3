import socket
from collections.abc import Iterator
from itertools import count

import pytest

from kfext.agent.card import SharedCard, Terms
from kfext.agent.process import Process
from kfext.hook import words
from kfext.hook.link import receive
from kfext.hook.orders import INTRUDE, PASS, WAIT, Orders
from kfext.hook.page import Page

HIGH = Terms(high=True, share=0.5)
LOW = Terms(high=False, share=0.25)
_NUMBERS = count()
_NS = 10**9


class Hooked:
    """A process of a job, as its hook makes it: a page, and what it has got from the agent."""

    def __init__(self) -> None:
        self.own = Page.make()
        self.own.words[words.LAYOUT] = words.VERSION
        self.peer, self._agent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.orders, self.bells = Orders(), list[socket.socket]()
        assert self.own.descriptor is not None
        page = socket.dup(self.own.descriptor)
        self.process = Process(next(_NUMBERS), self._agent, page)

    def read(self) -> "Hooked":
        """Take in all that the agent has sent."""
        self.peer.setblocking(False)
        while True:
            try:
                found = receive(self.peer)
            except BlockingIOError:
                return self
            assert found is not None
            message, descriptors = found
            if "bells" in message:
                self.bells = [socket.socket(fileno=one) for one in descriptors]
            else:
                self.orders.take(message, descriptors)

    def word(self, now: float) -> str:
        return self.orders.word(int(now * _NS), intruded=0, tickets=0)

    def asks(self, *, asks: bool = True) -> None:
        self.own.words[words.ASKING] = int(asks)

    def is_busy(self, now: float) -> None:
        self.own.words[words.BUSY], self.own.words[words.PULSE] = 1, int(now * _NS)


@pytest.fixture
def card() -> Iterator[SharedCard]:
    made = SharedCard()
    yield made
    for pod in ("high", "low", "other"):
        made.withdraw(pod, now=1000.0)


def joined(card: SharedCard, pod: str, terms: Terms, *, now: float = 1.0) -> Hooked:
    hooked = Hooked()
    card.promise(pod, terms, now=now)
    card.join(pod, hooked.process, now=now)
    return hooked


def test_a_job_that_has_the_card_for_itself_works_whenever_it_wants(card: SharedCard) -> None:
    low = joined(card, "low", LOW)
    card.look(1.0)
    assert low.read().word(1.1) == PASS


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
    card.join("high", second.process, now=1.0)
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
        card.leave("high", high.process.number, now=1.1)
    else:
        card.withdraw("high", now=1.1)
    card.look(1.1)
    assert low.read().word(1.1) == PASS


def test_orders_that_are_not_renewed_run_out(card: SharedCard) -> None:
    low = joined(card, "low", LOW)
    card.look(1.0)
    assert low.read().orders.led(int(2.9 * _NS))
    assert not low.orders.led(int(3.1 * _NS))


def test_jobs_of_one_priority_take_turns_by_their_shares(card: SharedCard) -> None:
    lows = {
        "low": joined(card, "low", LOW).read(),
        "other": joined(card, "other", Terms(high=False, share=0.75)).read(),
    }
    for one in lows.values():
        one.asks()
    now, got = 1.0, {"low": 0.0, "other": 0.0}
    while now < 31:
        wait = card.look(now)
        (mine,) = [name for name, one in lows.items() if one.word(now) == PASS]
        got[mine] += wait
        lows[mine].own.words[words.WORKED_NS] += int(wait * _NS)
        now += wait
    assert got["other"] / got["low"] == pytest.approx(3, rel=0.05)


def test_one_that_falls_short_may_intrude_as_far_as_the_budget_allows(card: SharedCard) -> None:
    high = joined(card, "high", HIGH)
    low = joined(card, "low", LOW)
    now = 1.0
    while now < 60:  # high is always busy, and loses nothing
        high.own.words[words.STEPS] = int(now * 10)
        high.own.words[words.STEPPED] = int(int(now * 10) / 10 * _NS)
        high.is_busy(now)
        now += card.look(now)
    assert low.read().word(now) in {INTRUDE, WAIT}
    assert low.orders.page is not None
    assert low.orders.page[words.ALLOWANCE_NS] > _NS


def test_a_descriptor_that_is_no_page_is_refused() -> None:
    with open(__file__, "rb") as file, pytest.raises(ValueError, match="page"):
        Process(1, socket.socket(), socket.dup(file.fileno()))


def test_a_page_of_another_layout_is_refused() -> None:
    page = Page.make()
    page.words[words.LAYOUT] = 99
    assert page.descriptor is not None
    with pytest.raises(ValueError, match="layout 99"):
        Process(1, socket.socket(), socket.dup(page.descriptor))
