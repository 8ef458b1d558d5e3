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
from tests.unit.gpu.hook.card import FakeCard, ManualClock

MS = 10**6


@pytest.fixture
def card() -> FakeCard:
    return FakeCard()


@pytest.fixture
def page() -> memoryview:
    return Page.make().words


@pytest.fixture
def failures() -> list[Exception]:
    return []


@pytest.fixture
def beacon(page: memoryview, card: FakeCard, failures: list[Exception]) -> Iterator[Beacon]:
    started = Beacon(page, memory=card.memory, fail=failures.append)
    yield started
    for marker in card.markers:
        marker.ended.set()
    started.stop()


def until(condition: Callable[[], object]) -> None:
    deadline = monotonic() + 10
    while not condition():
        assert monotonic() < deadline
        sleep(0.001)


def wait_until_idle(page: memoryview) -> None:
    until(lambda: not page[words.BUSY])


def test_the_card_is_busy_from_the_begin_until_the_work_has_ended(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    assert not page[words.BUSY]
    beacon.begin()
    beacon.end(card.mark())
    assert page[words.BUSY]
    card.markers[0].ended.set()
    wait_until_idle(page)
    assert page[words.BUSY_NS] > 0


def test_a_second_begin_keeps_the_card_busy_until_its_own_work_has_ended(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    beacon.begin()
    beacon.end(card.mark())
    beacon.begin()
    card.markers[0].ended.set()
    beacon.end(card.mark())
    second = card.markers[1]
    until(lambda: second.waits)  # the first marker has been handled
    assert page[words.BUSY]
    second.ended.set()
    wait_until_idle(page)


def test_all_bells_ring_when_the_card_becomes_idle(beacon: Beacon, card: FakeCard) -> None:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(3)]
    beacon.handle({"bells": 3}, [bell.detach() for bell, _ in pairs])
    beacon.begin()
    beacon.end(card.mark())
    card.markers[0].ended.set()
    for _, receiver in pairs:
        receiver.settimeout(10)
        assert receiver.recv(8) == b"i"


def test_a_peer_that_reads_nothing_stalls_neither_the_job_nor_the_others(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    full, unread = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    other, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    full.setblocking(False)
    with suppress(BlockingIOError):
        while full.send(b"x"):
            pass
    full.setblocking(True)  # the mode of a descriptor is shared: the peer can set it too
    beacon.handle({"bells": 2}, [full.detach(), other.detach()])
    beacon.begin()
    beacon.end(card.mark())
    card.markers[0].ended.set()
    wait_until_idle(page)
    receiver.settimeout(10)
    assert receiver.recv(8) == b"i"
    unread.close()


def test_an_eventfd_would_let_a_peer_stall_the_job() -> None:
    # So a bell is a socket: both owners of an eventfd share its mode, and a write may block.
    eventfd = os.eventfd(0, os.EFD_NONBLOCK)
    peer = os.dup(eventfd)
    os.set_blocking(peer, True)
    os.eventfd_write(peer, 2**64 - 2)
    ringing = threading.Thread(target=os.eventfd_write, args=(eventfd, 1), daemon=True)
    ringing.start()
    ringing.join(0.2)
    assert ringing.is_alive()
    os.eventfd_read(peer)
    ringing.join(10)
    assert not ringing.is_alive()


def test_the_page_shows_steps_heartbeats_and_memory(beacon: Beacon, page: memoryview) -> None:
    beacon.step()
    assert page[words.STEPS] == 1
    until(lambda: page[words.HEARTBEAT])
    until(lambda: page[words.MEMORY] == 1 << 20)


def test_the_card_becomes_idle_after_more_calls_than_fit_in_the_queue(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    for _ in range(200):
        beacon.begin()
        beacon.end(card.mark())
    for marker in card.markers:
        marker.ended.set()
    wait_until_idle(page)


def test_a_late_end_hides_no_later_work(beacon: Beacon, page: memoryview, card: FakeCard) -> None:
    first, second = beacon.begin(), beacon.begin()
    beacon.end(card.mark(), first)
    beacon.end(card.mark(), second)
    card.markers[0].ended.set()
    until(lambda: card.markers[1].waits)
    assert page[words.BUSY]
    card.markers[1].ended.set()
    wait_until_idle(page)


def test_unknown_memory_stops_no_heartbeat(page: memoryview, failures: list[Exception]) -> None:
    beacon = Beacon(page, memory=lambda: 1 // 0, fail=failures.append)
    for _ in range(2):
        page[words.HEARTBEAT] = 0
        until(lambda: page[words.HEARTBEAT])
    beacon.stop()


def test_an_error_of_a_marker_shows_an_idle_card_and_is_reported(
    beacon: Beacon, page: memoryview, failures: list[Exception]
) -> None:
    class BrokenMarker:
        def wait(self, expected: int | None = None) -> None:
            raise RuntimeError("the card is lost")

    beacon.begin()
    beacon.end(BrokenMarker())
    until(lambda: failures)
    assert not page[words.BUSY]
    assert str(failures[0]) == "the card is lost"
    beacon.begin()
    assert not page[words.BUSY]


def test_no_thread_remains_after_the_beacon_has_stopped(
    page: memoryview, card: FakeCard, failures: list[Exception]
) -> None:
    before = len(os.listdir("/proc/self/task"))
    beacon = Beacon(page, memory=card.memory, fail=failures.append)
    beacon.begin()
    beacon.stop()
    until(lambda: len(os.listdir("/proc/self/task")) == before)  # /proc may lag behind
    assert not page[words.BUSY]


def test_a_stop_in_a_fork_keeps_the_parents_page(beacon: Beacon, page: memoryview) -> None:
    beacon.begin()
    child = os.fork()
    if not child:
        beacon.stop()
        os._exit(0)
    os.waitpid(child, 0)
    assert page[words.BUSY]


def test_after_a_pause_the_card_becomes_idle_if_no_work_follows_for_some_time(
    beacon: Beacon, page: memoryview, card: FakeCard
) -> None:
    beacon.begin()
    beacon.pause(card.mark())
    card.markers[0].ended.set()
    sleep(HEARTBEAT_SECONDS / 4)
    assert page[words.BUSY]
    wait_until_idle(page)


def test_more_work_cancels_a_pause(beacon: Beacon, page: memoryview, card: FakeCard) -> None:
    beacon.begin()
    beacon.pause(card.mark())
    beacon.begin()
    card.markers[0].ended.set()
    sleep(3 * HEARTBEAT_SECONDS)
    assert page[words.BUSY]
    beacon.end(card.mark())
    card.markers[1].ended.set()
    wait_until_idle(page)


class TimedJob:
    """A high-priority job on a clock of the test."""

    def __init__(self, page: memoryview, card: FakeCard, failures: list[Exception]) -> None:
        self.page, self.card, self.clock = page, card, ManualClock()
        self.beacon = Beacon(page, memory=card.memory, fail=failures.append, clock=self.clock)

    def run(self, *, busy: float, pause: float) -> int | None:
        """Work and pause for some milliseconds; return the expected nanoseconds of the work."""
        self.beacon.begin()
        began = self.clock.time
        self.beacon.end(self.card.mark())
        marker = self.card.markers[-1]
        until(lambda: marker.waits)
        self.clock.time += int(busy * MS)
        marker.ended.set()
        wait_until_idle(self.page)
        self.clock.time += int(pause * MS)
        return None if marker.expected is None else marker.expected - began


@pytest.fixture
def timed(page: memoryview, card: FakeCard, failures: list[Exception]) -> Iterator[TimedJob]:
    started = TimedJob(page, card, failures)
    yield started
    started.beacon.stop()


def test_the_pauses_are_on_the_page_and_the_oldest_is_replaced(timed: TimedJob) -> None:
    for pause in range(1, KEPT + 4):
        timed.run(busy=10, pause=pause)
    page = timed.page
    assert page[words.PAUSED] == KEPT + 2  # the last pause has not ended
    results = list(page[words.PAUSES : words.PAUSES + KEPT])
    assert results == [pause * MS for pause in (KEPT + 1, KEPT + 2, *range(3, KEPT + 1))]


def test_the_end_of_work_is_expected_after_the_median_of_the_last_times(timed: TimedJob) -> None:
    bell, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    timed.beacon.handle({"bells": 1}, [bell.detach()])
    expected = [timed.run(busy=busy, pause=5) for busy in (10, 30, 20, 20)]
    assert expected == [None, 10 * MS, 20 * MS, 20 * MS]
    for _ in range(8):
        timed.run(busy=50, pause=5)
    assert timed.run(busy=50, pause=5) == 50 * MS


def test_a_job_without_bells_expects_no_end_and_so_does_not_poll(timed: TimedJob) -> None:
    assert [timed.run(busy=10, pause=5) for _ in range(3)] == [None] * 3
