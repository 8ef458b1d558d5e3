import fcntl
import os
import resource
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic_ns, sleep

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.gpu.hook import words
from kfext.gpu.hook.gate import FREE_OUTSTANDING, OUTSTANDING, Gate, Orders
from kfext.gpu.hook.page import Page
from kfext.gpu.hook.pauses import KEPT, LONGEST, PIECE
from kfext.gpu.hook.waits import CLOCK, Clock
from tests.unit.gpu.hook.card import FakeCard, ManualClock

MS = 10**6
HOUR = 3600 * 10**9


class GatedJob:
    """A low-priority job at its gate; the test writes the pages of the agent and of the other job.

    `lease`: how long the agent's orders are valid, in nanoseconds.
    """

    def __init__(self, *, instant: bool = True, lease: int = HOUR, clock: Clock = CLOCK) -> None:
        self.clock = clock
        self.card = FakeCard(instant=instant)
        self.page, self.orders = Page.make().words, Orders()
        self.orders.page, self._high = Page.make().words, Page.make().words
        self.orders.high_pages = (self._high,)
        self.orders.page[words.MODE] = words.GATED
        self.orders.page[words.LEASE] = clock.now() + lease
        self.orders.page[words.TURN] = clock.now() + HOUR
        self.bell, self.orders.bell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.gate = Gate(self.page, self.orders, self.card, clock)

    def set_high(self, *, busy: bool) -> None:
        """Make the high-priority job alive, and busy or idle."""
        self._high[words.HEARTBEAT] = self.clock.now() + HOUR  # it stays alive on a slow machine
        self._high[words.BUSY] = int(busy)

    def kill_high(self) -> None:
        self._high[words.HEARTBEAT] = 0

    def set_pauses(self, *milliseconds: float, since: float = 0.0) -> None:
        """Make the high-priority job idle since some milliseconds, with these past pauses."""
        self.set_high(busy=False)
        self._high[words.CHANGED] = self.clock.now() - int(since * MS)
        self._high[words.PAUSED] = len(milliseconds)
        for place, pause in enumerate(milliseconds):
            self._high[words.PAUSES + place] = int(pause * MS)

    def set_order(self, word: int, value: int) -> None:
        assert self.orders.page is not None
        self.orders.page[word] = value

    def start_entering(self) -> threading.Thread:
        """Enter the gate in another thread."""
        thread = threading.Thread(target=self.gate.enter, daemon=True)
        thread.start()
        return thread


def finishes(thread: threading.Thread) -> bool:
    thread.join(10)
    return not thread.is_alive()


def blocks(thread: threading.Thread) -> bool:
    thread.join(0.2)
    return thread.is_alive()


def until(condition: Callable[[], object]) -> None:
    deadline = monotonic_ns() + 10**10
    while not condition():
        assert monotonic_ns() < deadline
        sleep(0.001)


def test_an_error_of_a_signal_handler_ends_the_wait_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def listen() -> None:
        assert job.page[words.ASKING]
        raise TimeoutError

    job = GatedJob()
    job.set_high(busy=True)
    monkeypatch.setattr(job.gate, "_listen", listen)
    with pytest.raises(TimeoutError):
        job.gate.enter()
    assert not job.page[words.ASKING]
    job.set_high(busy=False)
    job.page[words.WORKED_NS] = job.page[words.INTRUDED_NS] = 0
    job.gate.enter()
    assert job.page[words.WORKED_NS] == 0, "it has only waited at the gate"


def test_the_gate_is_open_while_the_high_priority_job_is_idle() -> None:
    job = GatedJob()
    job.set_high(busy=False)
    for _ in range(100):
        job.gate.enter()
    assert job.page[words.MICRO_STEPS] == 100
    assert job.page[words.INTRUDED] == 0


def test_the_gate_is_shut_while_the_high_priority_job_is_busy_and_opens_with_the_bell() -> None:
    job = GatedJob()
    job.set_high(busy=True)
    entering = job.start_entering()
    assert blocks(entering)
    job.set_high(busy=False)
    job.bell.send(b"i")
    assert finishes(entering)
    assert job.page[words.INTRUDED] == 0
    assert job.page[words.WAITED_NS] > 0


def test_the_gate_opens_without_a_bell_too() -> None:
    job = GatedJob()
    job.set_high(busy=True)
    entering = job.start_entering()
    assert blocks(entering)
    job.set_high(busy=False)
    assert finishes(entering)


def test_earlier_rings_do_not_open_the_gate() -> None:
    job = GatedJob()
    job.set_high(busy=True)
    for _ in range(5):
        job.bell.send(b"i")
    entering = job.start_entering()
    assert blocks(entering)
    job.set_high(busy=False)
    assert finishes(entering)


def test_no_micro_step_begins_once_the_allowance_is_spent() -> None:
    job = GatedJob()
    job.set_high(busy=True)
    job.set_order(words.ALLOWANCE_NS, 1)
    job.gate.enter()  # begins within the allowance, and spends more
    entering = job.start_entering()
    assert blocks(entering)
    assert job.page[words.INTRUDED] == 1
    assert job.page[words.INTRUDED_NS] > 1
    job.set_high(busy=False)
    assert finishes(entering)


MAX_OUTSTANDING = {
    "the high-priority job is gone": (words.GATED, words.READY, False, OUTSTANDING),
    "there is a high-priority job": (words.GATED, words.READY, True, 1),
    "other low-priority jobs wait for the card": (words.OPEN, words.READY, False, OUTSTANDING),
    "no other job waits for the card": (words.FREE, words.READY, False, FREE_OUTSTANDING),
    "a high-priority job that the agent does not know yet": (words.FREE, words.READY, True, 1),
    "its micro-steps are long": (words.FREE, words.COARSE, False, OUTSTANDING),
    "the length of its micro-steps is unknown": (words.FREE, words.WATCHING, False, OUTSTANDING),
}


@pytest.mark.parametrize(
    ("mode", "gate", "high", "most"), MAX_OUTSTANDING.values(), ids=MAX_OUTSTANDING
)
def test_the_most_micro_steps_on_the_card(mode: int, gate: int, high: bool, most: int) -> None:
    job = GatedJob(instant=False)
    job.set_order(words.MODE, mode)
    job.page[words.HOOKED] = gate
    if high:
        job.set_high(busy=False)
    for _ in range(most - 1):
        job.gate.enter()
    entering = job.start_entering()
    assert blocks(entering)  # until the work before the first `enter` has ended
    assert len(job.card.markers) == most
    job.card.markers[0].ended.set()
    assert finishes(entering)


def test_after_a_high_priority_job_joins_the_next_pass_waits_for_all_earlier_work() -> None:
    job = GatedJob(instant=False)
    job.set_order(words.MODE, words.FREE)
    job.gate.show_longest(0.004)
    for _ in range(5):
        job.gate.enter()
    job.set_high(busy=False)
    entering = job.start_entering()
    for marker in job.card.markers[:5]:
        marker.ended.set()
    assert blocks(entering)
    job.card.markers[5].ended.set()
    assert finishes(entering)


def test_a_process_asks_only_once_its_work_on_the_card_has_ended() -> None:
    job = GatedJob(instant=False)
    job.gate.enter()
    job.set_high(busy=True)
    job.card.markers[0].ended.set()
    entering = job.start_entering()
    assert blocks(entering)
    assert not job.page[words.ASKING]
    worked = job.page[words.WORKED_NS]
    job.card.markers[1].ended.set()
    assert blocks(entering)
    assert job.page[words.ASKING]
    assert job.page[words.WORKED_NS] - worked > 10**8  # `blocks` waits for 0.2 s
    job.set_high(busy=False)
    assert finishes(entering)


@pytest.mark.parametrize("busy", [True, False])
def test_a_job_without_an_agent_still_gives_way(*, busy: bool) -> None:
    job = GatedJob(lease=-1)
    job.set_high(busy=busy)
    entering = job.start_entering()
    assert blocks(entering) is busy
    job.set_high(busy=False)
    assert finishes(entering)


def test_each_pause_without_an_agent_is_four_times_the_work_before_it() -> None:
    clock = ManualClock()
    job = GatedJob(lease=-1, clock=clock)
    job.gate.enter()
    for _ in range(5):
        clock.time += 10 * MS  # the micro-step
        job.gate.enter()
    assert clock.slept == [0.04] * 5
    assert job.page[words.WORKED_NS] == 5 * 10 * MS


def test_the_time_from_the_end_of_a_step_to_the_next_work_counts_as_rested() -> None:
    job = GatedJob()
    job.set_high(busy=False)
    for at in (0.0, 0.1, 0.2):  # a step ends, and the job has new data 50 ms later
        job.card.clock = at
        job.gate.enter()
        job.gate.step()
        job.card.clock = at + 0.05
        job.gate.enter()
    job.gate.enter()
    assert job.page[words.RESTED_NS] == pytest.approx(3 * 0.05 * 1e9)


def test_the_memory_is_read_five_times_a_second_at_most() -> None:
    clock = ManualClock()
    job = GatedJob(clock=clock)
    for _ in range(100):
        clock.time += 10 * MS
        job.gate.enter()
    assert job.card.memory_reads == 5
    assert job.page[words.MEMORY] == 1 << 20


def test_a_bell_with_a_descriptor_above_1023_is_heard() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        job = GatedJob()
        bell = job.orders.bell
        assert bell is not None
        job.orders.bell = socket.socket(fileno=fcntl.fcntl(bell, fcntl.F_DUPFD, 1500))
        job.set_high(busy=True)
        entering = job.start_entering()
        assert blocks(entering)
        job.set_high(busy=False)
        assert finishes(entering)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_abandoned_gate_shows_no_state() -> None:
    job = GatedJob()
    job.gate.show_longest(0.005)
    assert job.page[words.HOOKED] == words.READY
    job.gate.abandon()
    assert job.page[words.HOOKED] == 0


def test_a_micro_step_of_more_than_5_ms_is_coarse_even_if_ordered_shorter() -> None:
    job = GatedJob()
    job.set_order(words.MICRO_STEP_NS, MS)
    for longest, state in ((0.004, words.READY), (0.006, words.COARSE)):
        job.gate.show_longest(longest)
        assert job.page[words.HOOKED] == state


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(0.0, 0.0, id="unknown"),
        pytest.param(0.0016, 0.0016, id="known"),
        pytest.param(float("nan"), 0.0, id="NaN"),
        pytest.param(float("inf"), LONGEST, id="infinite"),
    ],
)
def test_a_micro_step_is_expected_to_last_as_learned(seconds: float, expected: float) -> None:
    clock = ManualClock()
    job = GatedJob(clock=clock)
    job.set_high(busy=False)
    job.gate.enter(seconds)
    began, job.card.instant = clock.time, False
    entering = job.start_entering()
    until(lambda: job.card.markers[1].waits)
    assert job.card.markers[1].expected == began + int(expected * 10**9)
    job.card.markers[1].ended.set()
    assert finishes(entering)


REGULAR = [15.0] * KEPT


def predicting(*pauses: float, since: float) -> GatedJob:
    """Return a job with a step after these pauses; its gate predicts them if they repeat."""
    job = GatedJob(clock=ManualClock())
    job.set_pauses(*pauses, since=since)
    job.gate.step()
    return job


@pytest.mark.parametrize(
    ("pauses", "predicts"),
    [
        pytest.param(REGULAR, True, id="they repeat"),
        pytest.param([15.0, 5.0] * 16, False, id="they do not repeat"),
        pytest.param([15.0] * 7, False, id="too few are known"),
    ],
)
def test_micro_steps_are_short_while_pauses_repeat(pauses: list[float], predicts: bool) -> None:
    job = predicting(*pauses, since=0)
    job.set_order(words.MICRO_STEP_NS, MS)
    assert job.gate.micro_step() == (PIECE if predicts else 0.001)
    job.gate.step()
    job.set_pauses(since=0)
    job.gate.step()
    assert job.gate.micro_step() == 0.001


@dataclass(frozen=True, slots=True)
class Fit:
    """A micro-step of 0.65 ms that is asked for after `since` ms of a pause.

    `want`: the milliseconds of the pause after which it begins. `orders`: the agent's orders, by
    word. `dead`: whether the high-priority job is dead. `two`: whether it has two processes.
    """

    since: float
    want: float
    orders: dict[int, int] = field(default_factory=dict)
    dead: bool = False
    two: bool = False


FITS: dict[str, Fit] = {
    "it fits": Fit(13.9, 13.9),
    "it fits once the pause is longer than the past pauses": Fit(14.4, 16.4),
    "it may intrude": Fit(14.4, 14.4, {words.ALLOWANCE_NS: 1}),
    "the agent is dead": Fit(14.4, 14.4, {words.LEASE: 1}),
    "the high-priority job is dead": Fit(14.4, 14.4, dead=True),
    "the high-priority job has two processes": Fit(14.4, 14.4, two=True),
    "the price is higher": Fit(14.4, 14.4, {words.PRICE: 500}),
}


@pytest.mark.parametrize("case", FITS.values(), ids=FITS)
def test_while_pauses_repeat_a_micro_step_begins_once_it_fits(case: Fit) -> None:
    job = predicting(*REGULAR, since=case.since)
    job.orders.bell = None
    for word, value in case.orders.items():
        job.set_order(word, value)
    if case.dead:
        job.kill_high()
    if case.two:
        job.orders.high_pages *= 2
    began = job.clock.now()
    job.gate.enter(0.00065)
    assert (job.clock.now() - began) / MS + case.since == pytest.approx(case.want)


@pytest.mark.parametrize("word", [words.MODE, words.TURN])
def test_a_shut_gate_stays_shut_although_a_micro_step_would_fit(word: int) -> None:
    job = predicting(*REGULAR, since=1.0)
    job.set_order(word, {words.MODE: words.SHUT, words.TURN: 0}[word])
    entering = job.start_entering()
    assert blocks(entering)
    job.set_order(word, {words.MODE: words.GATED, words.TURN: HOUR + job.clock.now()}[word])
    assert finishes(entering)


def test_a_micro_step_that_does_not_fit_is_charged_as_an_intrusion_and_the_wait_is_shown() -> None:
    job = predicting(*REGULAR, since=14.4)
    job.set_order(words.ALLOWANCE_NS, 1)
    job.gate.enter(0.00065)
    assert job.page[words.INTRUDED] == 1
    job.set_order(words.ALLOWANCE_NS, 0)
    job.set_pauses(*[100.0] * KEPT, since=99.5)
    entering = threading.Thread(target=job.gate.enter, args=(10.0,), daemon=True)
    entering.start()
    until(lambda: job.page[words.ASKING])  # so `Pair` counts that it waits for its minimum
    job.orders.high_pages = ()
    assert finishes(entering)


def test_while_pauses_repeat_a_micro_step_begins_shortly_before_the_previous_one_ends() -> None:
    job = predicting(*REGULAR, since=0)
    clock, job.card.instant = job.clock, False
    assert isinstance(clock, ManualClock)
    job.gate.enter(0.00065)
    job.card.markers[1].ended.set()  # the end of the previous work
    clock.slept.clear()
    job.gate.enter(0.00065)
    assert clock.slept == [0.00035]
    assert not job.card.markers[2].ended.is_set()
    job.card.markers[2].ended.set()
    clock.slept.clear()
    job.gate.enter(0.00065)
    assert clock.slept == [0.00035]


def test_a_micro_step_that_has_already_ended_causes_no_sleep() -> None:
    job = predicting(*REGULAR, since=0)
    assert isinstance(job.clock, ManualClock)
    for _ in range(5):
        job.gate.enter(0.00065)
    assert job.clock.slept == []


SECOND = 10**9
NOW = 100 * SECOND
ALIVE = {words.LEASE: NOW + SECOND, words.TURN: NOW + SECOND}


@dataclass(frozen=True, slots=True)
class Case:
    """Whether a micro-step may begin at NOW. `page`: the agent's orders, or None without an agent.

    `high`: the page of the high-priority job, or None without such a job.
    """

    want: bool
    page: dict[int, int] | None = field(default_factory=lambda: dict(ALIVE))
    high: dict[int, int] | None = None
    intruded: int = 0


BUSY = {words.BUSY: 1, words.HEARTBEAT: NOW}
GATED = {**ALIVE, words.MODE: words.GATED}
SHUT = {**ALIVE, words.MODE: words.SHUT}
CASES: dict[str, Case] = {
    "no other job is on the card": Case(True),
    "no other job has a share of the card": Case(
        True, {**ALIVE, words.MODE: words.FREE}, BUSY | {words.BUSY: 0}
    ),
    "the high-priority job is idle": Case(True, GATED, {**BUSY, words.BUSY: 0}),
    "the high-priority job is busy": Case(False, GATED, BUSY),
    "its last heartbeat is over a second old": Case(
        True, GATED, {**BUSY, words.HEARTBEAT: NOW - SECOND - 1}
    ),
    "it is busy, and there is allowance left": Case(
        True, {**GATED, words.ALLOWANCE_NS: 5000}, BUSY, intruded=4999
    ),
    "it is busy, and the allowance is spent": Case(
        False, {**GATED, words.ALLOWANCE_NS: 5000}, BUSY, intruded=5000
    ),
    "the gate is shut although the card is idle": Case(False, SHUT),
    "the turn of this sharer has ended": Case(False, {**ALIVE, words.TURN: NOW}),
    "the agent is dead, and the card is idle": Case(True, {words.LEASE: NOW}),
    "the agent is dead, and the card is busy": Case(False, {words.LEASE: NOW}, BUSY),
    "the agent has sent no orders yet": Case(True, None),
}


def orders_of(case: Case) -> Orders:
    orders = Orders()
    if case.page is not None:
        orders.page = page_of(case.page)
    if case.high is not None:
        orders.high_pages = (Page.make().words, page_of(case.high))
    return orders


def page_of(content: dict[int, int]) -> memoryview:
    page = Page.make().words
    for word, value in content.items():
        page[word] = value
    return page


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_whether_a_micro_step_may_begin(case: Case) -> None:
    orders = orders_of(case)
    assert orders.allow(NOW, intruded=case.intruded) is case.want


ANY_WORD = st.integers(0, 2**64 - 1)
HIGH = Page.make().words


@given(pauses=st.lists(ANY_WORD, min_size=1, max_size=KEPT), changed=ANY_WORD, paused=ANY_WORD)
def test_the_pauses_that_are_read_are_bounded_whatever_the_page_contains(
    pauses: list[int], changed: int, paused: int
) -> None:
    orders = Orders()
    orders.high_pages = (HIGH,)
    HIGH[words.HEARTBEAT], HIGH[words.CHANGED], HIGH[words.PAUSED] = NOW, changed, paused
    for place, pause in enumerate(pauses):
        HIGH[words.PAUSES + place] = pause
    elapsed, known = orders.pause(NOW)
    assert 0 <= elapsed <= NOW
    assert len(known) == min(paused, KEPT)
    assert all(0 <= pause <= LONGEST for pause in known)


def test_pages_and_bell_are_read_from_messages() -> None:
    orders, orders_page, high = Orders(), Page.make(), Page.make()
    bell, ringer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    orders_page.words[words.LEASE] = monotonic_ns() + SECOND
    high.words[words.BUSY], high.words[words.HEARTBEAT] = 1, monotonic_ns()
    orders.handle({"orders": True}, [os.dup(orders_page.descriptor)])
    assert orders.agent_alive(monotonic_ns())
    orders.handle({"highs": 1}, [os.dup(high.descriptor), bell.detach()])
    assert orders.busy(monotonic_ns())
    ringer.send(b"i")
    assert orders.bell is not None
    assert orders.bell.recv(8) == b"i"
    orders.handle({"highs": 0}, [])
    assert not orders.busy(monotonic_ns())


@pytest.mark.parametrize("message", [{"orders": True}, {"highs": 1}, {}], ids=str)
def test_a_message_with_too_few_or_many_descriptors_is_refused(message: dict[str, object]) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    inode, orders = os.fstat(reading).st_ino, Orders()
    descriptors = [] if message.get("orders") else [reading]
    with pytest.raises(ValueError, match="descriptors instead of"):
        orders.handle(message, descriptors)
    if descriptors:
        with suppress(OSError):  # a thread of another test may have its number by now
            assert os.fstat(reading).st_ino != inode
