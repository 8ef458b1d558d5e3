import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic, sleep

import pytest

from kfext.hook import words
from kfext.hook.beacon import Beacon
from kfext.hook.page import Page
from tests.unit.hook.card import FakeCard


@pytest.fixture
def card() -> FakeCard:
    return FakeCard()


@pytest.fixture
def page() -> memoryview:
    return Page.make().words


@pytest.fixture
def beacon(page: memoryview, card: FakeCard) -> Iterator[Beacon]:
    made = Beacon(page, card)
    yield made
    for marker in card.given:
        marker.reached.set()
    made.stop()


def until_idle(page: memoryview) -> None:
    deadline = monotonic() + 10
    while page[words.BUSY]:
        assert monotonic() < deadline
        sleep(0.001)


def test_the_card_is_busy_from_the_first_call_until_the_work_has_ended(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    assert not page[words.BUSY]
    beacon.begin()
    beacon.end()
    assert page[words.BUSY]
    card.given[0].reached.set()
    until_idle(page)
    assert page[words.BUSY_NS] > 0


def test_work_that_is_given_meanwhile_keeps_it_busy(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    beacon.begin()
    beacon.end()
    beacon.begin()
    card.given[0].reached.set()
    beacon.end()
    second = card.given[1]
    while not second.waits:  # the first one has been dealt with
        sleep(0.001)
    assert page[words.BUSY]
    second.reached.set()
    until_idle(page)


def test_when_it_becomes_idle_all_that_wait_are_woken(beacon: Beacon, card: FakeCard) -> None:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(3)]
    beacon.take({"bells": 3}, [rung.detach() for rung, _ in pairs])
    beacon.begin()
    beacon.end()
    card.given[0].reached.set()
    for _, heard in pairs:
        heard.settimeout(10)
        assert heard.recv(8) == b"i"


def test_a_peer_that_reads_nothing_stalls_neither_the_job_nor_the_others(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    rung, deaf = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    other, heard = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    rung.setblocking(False)
    with suppress(BlockingIOError):
        while rung.send(b"x"):
            pass
    rung.setblocking(True)  # the mode of a descriptor is shared: the peer can set it too
    beacon.take({"bells": 2}, [rung.detach(), other.detach()])
    beacon.begin()
    beacon.end()
    card.given[0].reached.set()
    until_idle(page)
    heard.settimeout(10)
    assert heard.recv(8) == b"i"
    deaf.close()


def test_an_eventfd_would_let_a_peer_stall_the_job() -> None:
    # Why a bell is a socket. Both sides share the mode, and so the peer can have a write block.
    ours = os.eventfd(0, os.EFD_NONBLOCK)
    theirs = os.dup(ours)
    os.set_blocking(theirs, True)
    os.eventfd_write(theirs, 2**64 - 2)
    ringing = threading.Thread(target=os.eventfd_write, args=(ours, 1), daemon=True)
    ringing.start()
    ringing.join(0.2)
    assert ringing.is_alive()
    os.eventfd_read(theirs)
    ringing.join(10)
    assert not ringing.is_alive()


def test_steps_are_counted_and_life_is_shown(beacon: Beacon, page: memoryview) -> None:
    beacon.begin()
    beacon.step()
    assert page[words.STEPS] == 1
    deadline = monotonic() + 10
    while not page[words.PULSE]:
        assert monotonic() < deadline
        sleep(0.01)
    assert page[words.MEMORY] == 1 << 20
