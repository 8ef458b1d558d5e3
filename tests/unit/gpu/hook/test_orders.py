import os
import socket
from dataclasses import dataclass, field
from time import monotonic_ns

import pytest

from kfext.gpu.hook import words
from kfext.gpu.hook.orders import INTRUDE, PASS, TICKET, WAIT, Orders
from kfext.gpu.hook.page import Page

SECOND = 10**9
NOW = 100 * SECOND
LED = {words.LEASE: NOW + SECOND, words.TURN: NOW + SECOND}


@dataclass(frozen=True, slots=True)
class Case:
    """`page`: the agent's words; `high`: the words of the job of high priority, if any."""

    want: str
    page: dict[int, int] | None = field(default_factory=lambda: dict(LED))
    high: dict[int, int] | None = None
    intruded: int = 0
    tickets: int = 0


BUSY = {words.BUSY: 1, words.PULSE: NOW}
GATED = {**LED, words.MODE: words.GATED}
SHUT = {**LED, words.MODE: words.SHUT, words.TICKETS: 3}
WORDS: dict[str, Case] = {
    "no other job is on the card": Case(PASS),
    "the job of high priority is idle": Case(PASS, GATED, {**BUSY, words.BUSY: 0}),
    "it is busy": Case(WAIT, GATED, BUSY),
    "it has shown no life for over a second": Case(
        PASS, GATED, {**BUSY, words.PULSE: NOW - SECOND - 1}
    ),
    "it is busy, and there is allowance left": Case(
        INTRUDE, {**GATED, words.ALLOWANCE_NS: 5000}, BUSY, intruded=4999
    ),
    "it is busy, and the allowance is spent": Case(
        WAIT, {**GATED, words.ALLOWANCE_NS: 5000}, BUSY, intruded=5000
    ),
    "the gate is shut although the card is idle": Case(WAIT, {**SHUT, words.TICKETS: 0}),
    "the gate is shut, and a ticket is left": Case(TICKET, SHUT, BUSY, tickets=2),
    "the gate is shut, and no ticket is left": Case(WAIT, SHUT, BUSY, tickets=3),
    "it is busy, and a ticket was given while the process waits": Case(
        TICKET, {**GATED, words.TICKETS: 3}, BUSY, tickets=2
    ),
    "the agent counts its tickets from the start again": Case(
        TICKET, {**SHUT, words.TICKETS: 0}, BUSY, tickets=3
    ),
    "a ticket is not needed": Case(PASS, {**GATED, words.TICKETS: 3}, {**BUSY, words.BUSY: 0}),
    "the agent is dead, and left a ticket": Case(
        WAIT, {words.LEASE: NOW, words.TICKETS: 3}, BUSY, tickets=2
    ),
    "it is another sharer's turn": Case(WAIT, {**LED, words.TURN: NOW}),
    "the agent is dead, the card idle": Case(PASS, {words.LEASE: NOW}),
    "the agent is dead, the card busy": Case(WAIT, {words.LEASE: NOW}, BUSY),
    "the agent was never seen": Case(PASS, None),
}


def orders_of(case: Case) -> Orders:
    made = Orders()
    if case.page is not None:
        made.page = page_of(case.page)
    if case.high is not None:
        made.highs = (Page.make().words, page_of(case.high))
    return made


def page_of(content: dict[int, int]) -> memoryview:
    page = Page.make().words
    for word, value in content.items():
        page[word] = value
    return page


@pytest.mark.parametrize("case", WORDS.values(), ids=WORDS)
def test_whether_a_micro_step_may_begin(case: Case) -> None:
    orders = orders_of(case)
    assert orders.word(NOW, intruded=case.intruded, tickets=case.tickets) == case.want


def test_pages_and_bell_are_taken_from_messages() -> None:
    orders, own, high = Orders(), Page.make(), Page.make()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.words[words.LEASE] = monotonic_ns() + SECOND
    high.words[words.BUSY], high.words[words.PULSE] = 1, monotonic_ns()
    orders.take({"orders": True}, [os.dup(own.descriptor)])
    assert orders.led(monotonic_ns())
    orders.take({"highs": 1}, [os.dup(high.descriptor), ours.detach()])
    assert orders.busy(monotonic_ns())
    theirs.send(b"i")
    assert orders.bell is not None
    assert orders.bell.recv(8) == b"i"
    orders.take({"highs": 0}, [])
    assert not orders.busy(monotonic_ns())


@pytest.mark.parametrize("message", [{"orders": True}, {"highs": 1}, {}], ids=str)
def test_a_message_with_other_descriptors_than_it_names_is_refused(
    message: dict[str, object],
) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    orders = Orders()
    extra = [] if message.get("orders") else [reading]
    with pytest.raises(ValueError, match="descriptors instead of"):
        orders.take(message, extra)
    if extra:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(reading)
