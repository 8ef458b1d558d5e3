import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic, sleep

import pytest

from kfext.gpu.hook import words
from kfext.gpu.hook.beacon import Beacon
from kfext.gpu.hook.page import HEARTBEAT_SECONDS, Page
from kfext.gpu.hook.pauses import KEPT
from tests.unit.gpu.hook.card import FakeCard, Still

MS = 10**6


@pytest.fixture
def card() -> FakeCard:
    return FakeCard()


@pytest.fixture
def page() -> memoryview:
    return Page.make().words


@pytest.fixture
def failed() -> list[Exception]:
    return []


@pytest.fixture
def beacon(page: memoryview, card: FakeCard, failed: list[Exception]) -> Iterator[Beacon]:
    made = Beacon(page, memory=card.memory, fail=failed.append)
    yield made
    for marker in card.given:
        marker.ended.set()
    made.stop()


def until(condition: Callable[[], object]) -> None:
    deadline = monotonic() + 10
    while not condition():
        assert monotonic() < deadline
        sleep(0.001)


def until_idle(page: memoryview) -> None:
    until(lambda: not page[words.BUSY])


def test_the_card_is_busy_from_the_first_call_until_the_work_has_ended(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    assert not page[words.BUSY]
    beacon.begin()
    beacon.end(card.mark())
    assert page[words.BUSY]
    card.given[0].ended.set()
    until_idle(page)
    assert page[words.BUSY_NS] > 0


def test_work_that_is_added_meanwhile_keeps_the_card_busy(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    beacon.begin()
    beacon.end(card.mark())
    beacon.begin()
    card.given[0].ended.set()
    beacon.end(card.mark())
    second = card.given[1]
    until(lambda: second.waits)  # the first marker has been handled
    assert page[words.BUSY]
    second.ended.set()
    until_idle(page)


def test_all_waiting_jobs_wake_when_the_card_is_idle(beacon: Beacon, card: FakeCard) -> None:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(3)]
    beacon.handle({"bells": 3}, [rung.detach() for rung, _ in pairs])
    beacon.begin()
    beacon.end(card.mark())
    card.given[0].ended.set()
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
    beacon.handle({"bells": 2}, [rung.detach(), other.detach()])
    beacon.begin()
    beacon.end(card.mark())
    card.given[0].ended.set()
    until_idle(page)
    heard.settimeout(10)
    assert heard.recv(8) == b"i"
    deaf.close()


def test_an_eventfd_would_let_a_peer_stall_the_job() -> None:
    # A bell is a socket because both sides share the mode: a peer could make a write block.
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


def test_steps_are_counted_and_signs_of_life_are_shown(beacon: Beacon, page: memoryview) -> None:
    beacon.step()
    assert page[words.STEPS] == 1
    until(lambda: page[words.HEARTBEAT])
    until(lambda: page[words.MEMORY] == 1 << 20)


def test_the_card_becomes_idle_after_more_calls_than_can_wait(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    for _ in range(200):
        beacon.begin()
        beacon.end(card.mark())
    for marker in card.given:
        marker.ended.set()
    until_idle(page)


def test_a_late_end_does_not_hide_the_work_begun_since(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    first, second = beacon.begin(), beacon.begin()
    beacon.end(card.mark(), first)
    beacon.end(card.mark(), second)
    card.given[0].ended.set()
    until(lambda: card.given[1].waits)
    assert page[words.BUSY]
    card.given[1].ended.set()
    until_idle(page)


def test_unknown_memory_does_not_end_the_signs_of_life(
    page: memoryview, failed: list[Exception]
) -> None:
    beacon = Beacon(page, memory=lambda: 1 // 0, fail=failed.append)
    for _ in range(2):
        page[words.HEARTBEAT] = 0
        until(lambda: page[words.HEARTBEAT])
    beacon.stop()


def test_an_error_while_it_waits_shows_an_idle_card_and_is_reported(
    beacon: Beacon, page: memoryview, failed: list[Exception]
) -> None:
    class Broken:
        def wait(self, expected: int | None = None) -> None:
            raise RuntimeError("the card is lost")

    beacon.begin()
    beacon.end(Broken())
    until(lambda: failed)
    assert not page[words.BUSY]
    assert str(failed[0]) == "the card is lost"
    beacon.begin()
    assert not page[words.BUSY]


def test_no_thread_remains_after_the_beacon_has_stopped(
    page: memoryview, card: FakeCard, failed: list[Exception]
) -> None:
    before = len(os.listdir("/proc/self/task"))
    beacon = Beacon(page, memory=card.memory, fail=failed.append)
    beacon.begin()
    beacon.stop()
    until(
        lambda: len(os.listdir("/proc/self/task")) == before
    )  # the kernel's part ends a bit later
    assert not page[words.BUSY]


def test_the_end_of_a_fork_leaves_the_page_of_its_parent_alone(
    beacon: Beacon, page: memoryview
) -> None:
    beacon.begin()
    child = os.fork()
    if not child:
        beacon.stop()
        os._exit(0)
    os.waitpid(child, 0)
    assert page[words.BUSY]


def test_work_with_expected_successors_leaves_the_card_busy_until_none_follows(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    beacon.begin()
    beacon.pause(card.mark())
    card.given[0].ended.set()
    sleep(HEARTBEAT_SECONDS / 4)
    assert page[words.BUSY]
    until_idle(page)


def test_more_work_cancels_a_pause(beacon: Beacon, page: memoryview, card: FakeCard) -> None:
    beacon.begin()
    beacon.pause(card.mark())
    beacon.begin()
    card.given[0].ended.set()
    sleep(3 * HEARTBEAT_SECONDS)
    assert page[words.BUSY]
    beacon.end(card.mark())
    card.given[1].ended.set()
    until_idle(page)


class Timed:
    """A high-priority job that keeps to a clock, beside a job that waits or beside none."""

    def __init__(self, page: memoryview, card: FakeCard, failed: list[Exception]) -> None:
        self.page, self.card, self.clock = page, card, Still()
        self.beacon = Beacon(page, memory=card.memory, fail=failed.append, clock=self.clock)

    def works(self, *, busy: float, pause: float) -> int | None:
        """Have some milliseconds of work and a pause; return when its end was expected."""
        self.beacon.begin()
        began = self.clock.time
        self.beacon.end(self.card.mark())
        marker = self.card.given[-1]
        until(lambda: marker.waits)
        self.clock.time += int(busy * MS)
        marker.ended.set()
        until_idle(self.page)
        self.clock.time += int(pause * MS)
        return None if marker.expected is None else marker.expected - began


@pytest.fixture
def timed(page: memoryview, card: FakeCard, failed: list[Exception]) -> Iterator[Timed]:
    made = Timed(page, card, failed)
    yield made
    made.beacon.stop()


def test_the_pauses_are_on_the_page_and_the_oldest_is_replaced(timed: Timed) -> None:
    for pause in range(1, KEPT + 4):
        timed.works(busy=10, pause=pause)
    page = timed.page
    assert page[words.PAUSED] == KEPT + 2  # the last pause has not ended
    results = list(page[words.PAUSES : words.PAUSES + KEPT])
    assert results == [pause * MS for pause in (KEPT + 1, KEPT + 2, *range(3, KEPT + 1))]


def test_the_end_of_work_is_expected_after_the_median_of_the_last_times(timed: Timed) -> None:
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    timed.beacon.handle({"bells": 1}, [ours.detach()])
    expected = [timed.works(busy=busy, pause=5) for busy in (10, 30, 20, 20)]
    assert expected == [None, 10 * MS, 20 * MS, 20 * MS]
    for _ in range(8):
        timed.works(busy=50, pause=5)
    assert timed.works(busy=50, pause=5) == 50 * MS


def test_a_job_beside_no_other_job_does_not_poll(timed: Timed) -> None:
    assert [timed.works(busy=10, pause=5) for _ in range(3)] == [None] * 3
