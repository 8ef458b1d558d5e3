import gc
import os
import socket
from contextlib import suppress

import pytest

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.process import Order, Process
from kfext.gpu.hook import words
from kfext.gpu.hook.gate import TICKET, WAIT
from kfext.gpu.hook.page import Page
from tests.unit.gpu.agent.hooked import LOW, Hooked, joined


def test_a_process_that_comes_late_has_no_tickets_of_others(card: SharedCard) -> None:
    low = joined(card, "low", LOW).read()
    order = Order(words.SHUT, 0.005, ticket=True)
    low.process.order(order, now=1.0)
    assert low.word(1.1) == TICKET
    assert low.word(1.1, tickets=1) == WAIT
    new = Hooked()
    card.join("low", new.process)
    card.look(1.2)
    new.process.order(Order(words.SHUT, 0.005), now=1.3)
    assert new.read().word(1.3) == WAIT


@pytest.mark.parametrize("seen", [7, 2**64 - 1], ids=["seven", "as many as a word can count"])
def test_a_process_that_an_earlier_agent_has_led_has_no_ticket_before_it_gets_one(
    seen: int,
) -> None:
    low = Hooked(tickets_seen=seen)
    low.process.send_orders()
    low.process.order(Order(words.SHUT, 0.005), now=1.0)
    assert low.read().word(1.1, tickets=seen) == WAIT
    low.process.order(Order(words.SHUT, 0.005, ticket=True), now=1.2)
    assert low.word(1.3, tickets=seen) == TICKET


def inode(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def opened() -> set[tuple[int, int]]:
    """Return the inodes of all that this process has open; threads of other tests go on."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.add(inode(int(name)))
    return found


def test_a_process_that_is_closed_leaves_nothing_open() -> None:
    hooked = Hooked()
    theirs = {inode(descriptor) for descriptor in hooked.descriptors()}
    assert theirs < opened()
    hooked.process.close()
    hooked.peer.close()
    hooked.own.close()
    del hooked  # and with it what its mappings hold
    gc.collect()
    assert not theirs & opened()


def test_a_descriptor_that_is_no_page_is_refused() -> None:
    with open(__file__, "rb") as file, pytest.raises(ValueError, match="page"):
        Process(1, socket.socket(), socket.dup(file.fileno()))


def test_a_page_of_another_layout_is_refused() -> None:
    page = Page.make()
    page.words[words.LAYOUT] = 99
    with pytest.raises(ValueError, match="layout 99"):
        Process(1, socket.socket(), socket.dup(page.descriptor))
