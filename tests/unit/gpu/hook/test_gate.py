import fcntl
import os
import resource
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic_ns

import pytest

from kfext.gpu.hook import gate as module
from kfext.gpu.hook import page, words
from kfext.gpu.hook.gate import Gate, Orders
from kfext.gpu.hook.page import Page
from tests.unit.gpu.hook.card import FakeCard

HOUR = 3600 * 10**9


class Trial:
    """A gate, the page it writes, and the agent's and the high job's pages as the test wants."""

    def __init__(self, *, instant: bool = True, lease: int = HOUR) -> None:
        self.card = FakeCard(instant=instant)
        self.own, self.orders = Page.make().words, Orders()
        self.orders.page, self._high = Page.make().words, Page.make().words
        self.orders.highs = (self._high,)
        self.orders.page[words.MODE] = words.GATED
        self.orders.page[words.LEASE] = monotonic_ns() + lease
        self.orders.page[words.TURN] = monotonic_ns() + HOUR
        self.bell, self.orders.bell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.gate = Gate(self.own, self.orders, self.card)

    def high(self, *, busy: bool) -> None:
        self._high[words.HEARTBEAT] = monotonic_ns() + HOUR  # it stays alive on a slow machine
        self._high[words.BUSY] = int(busy)

    def order(self, word: int, value: int) -> None:
        assert self.orders.page is not None
        self.orders.page[word] = value

    def entering(self) -> threading.Thread:
        thread = threading.Thread(target=self.gate.enter, daemon=True)
        thread.start()
        return thread


def ends(thread: threading.Thread) -> bool:
    thread.join(10)
    return not thread.is_alive()


def stays(thread: threading.Thread) -> bool:
    thread.join(0.2)
    return thread.is_alive()


def test_a_wait_that_the_handler_of_a_signal_ends_is_over_for_the_agent_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def listens() -> None:
        assert trial.own[words.ASKING]
        raise TimeoutError

    trial = Trial()
    trial.high(busy=True)
    monkeypatch.setattr(trial.gate, "_listen", listens)
    with pytest.raises(TimeoutError):
        trial.gate.enter()
    assert not trial.own[words.ASKING]
    trial.high(busy=False)
    trial.own[words.WORKED_NS] = trial.own[words.INTRUDED_NS] = 0
    trial.gate.enter()
    assert trial.own[words.WORKED_NS] == 0, "it stood at the gate before"


def test_it_is_open_while_the_job_of_high_priority_is_idle() -> None:
    trial = Trial()
    trial.high(busy=False)
    for _ in range(100):
        trial.gate.enter()
    assert trial.own[words.MICRO_STEPS] == 100
    assert trial.own[words.INTRUDED] == 0


def test_it_is_shut_while_that_job_is_busy_and_opens_with_the_bell() -> None:
    trial = Trial()
    trial.high(busy=True)
    entering = trial.entering()
    assert stays(entering)
    trial.high(busy=False)
    trial.bell.send(b"i")
    assert ends(entering)
    assert trial.own[words.INTRUDED] == 0
    assert trial.own[words.WAITED_NS] > 0


def test_it_opens_without_a_bell_too() -> None:
    trial = Trial()
    trial.high(busy=True)
    entering = trial.entering()
    assert stays(entering)
    trial.high(busy=False)
    assert ends(entering)


def test_rings_from_before_do_not_open_it() -> None:
    trial = Trial()
    trial.high(busy=True)
    for _ in range(5):
        trial.bell.send(b"i")
    entering = trial.entering()
    assert stays(entering)
    trial.high(busy=False)
    assert ends(entering)


def test_the_allowance_is_spent_and_no_more() -> None:
    trial = Trial()
    trial.high(busy=True)
    trial.order(words.ALLOWANCE_NS, 1)
    trial.gate.enter()  # begins within the allowance, and spends more
    entering = trial.entering()
    assert stays(entering)
    assert trial.own[words.INTRUDED] == 1
    assert trial.own[words.INTRUDED_NS] > 1
    trial.high(busy=False)
    assert ends(entering)


def test_two_micro_steps_are_on_the_card_at_most() -> None:
    trial = Trial(instant=False)
    trial.high(busy=False)
    trial.gate.enter()
    entering = trial.entering()
    assert stays(entering)  # until the work before the first call is done
    assert len(trial.card.given) == 2
    trial.card.given[0].reached.set()
    assert ends(entering)


def test_while_a_process_stands_at_the_gate_it_has_nothing_on_the_card() -> None:
    trial = Trial(instant=False)
    trial.high(busy=False)
    trial.gate.enter()
    trial.high(busy=True)
    trial.card.given[0].reached.set()
    entering = trial.entering()
    assert stays(entering)
    assert not trial.own[words.ASKING]
    worked = trial.own[words.WORKED_NS]
    trial.card.given[1].reached.set()
    assert stays(entering)
    assert trial.own[words.ASKING]
    assert trial.own[words.WORKED_NS] - worked > 10**8  # it was on the card until now
    trial.high(busy=False)
    assert ends(entering)


@pytest.mark.parametrize("busy", [True, False])
def test_without_an_agent_the_job_still_gives_way(*, busy: bool) -> None:
    trial = Trial(lease=-1)
    trial.high(busy=busy)
    entering = trial.entering()
    assert stays(entering) is busy
    trial.high(busy=False)
    assert ends(entering)


class Clock:
    """Stands still, but for sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = monotonic_ns()
        self.slept: list[float] = []
        for part in (module, page):
            monkeypatch.setattr(part, "monotonic_ns", lambda: self.now)
        monkeypatch.setattr(module, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += int(seconds * 1e9)


def test_without_an_agent_each_rest_is_four_times_the_work_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial, clock = Trial(lease=-1), Clock(monkeypatch)
    trial.gate.enter()
    for _ in range(5):
        clock.now += 10**7  # the micro-step
        trial.gate.enter()
    assert clock.slept == [0.04] * 5
    assert trial.own[words.WORKED_NS] == 5 * 10**7


def test_the_card_rests_from_the_end_of_a_step_until_the_job_comes_back() -> None:
    trial = Trial()
    trial.high(busy=False)
    for at in (0.0, 0.1, 0.2):  # a step ends, and the job comes back with data 50 ms later
        trial.card.clock = at
        trial.gate.enter()
        trial.gate.step()
        trial.card.clock = at + 0.05
        trial.gate.enter()
    trial.gate.enter()
    assert trial.own[words.RESTED_NS] == pytest.approx(3 * 0.05 * 1e9)


def test_the_memory_is_asked_for_five_times_a_second_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial, clock = Trial(), Clock(monkeypatch)
    for _ in range(100):
        clock.now += 10**7
        trial.gate.enter()
    assert trial.card.asked == 5
    assert trial.own[words.MEMORY] == 1 << 20


def test_a_bell_whose_descriptor_is_above_1023_is_heard() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        trial = Trial()
        bell = trial.orders.bell
        assert bell is not None
        trial.orders.bell = socket.socket(fileno=fcntl.fcntl(bell, fcntl.F_DUPFD, 1500))
        trial.high(busy=True)
        entering = trial.entering()
        assert stays(entering)
        trial.high(busy=False)
        assert ends(entering)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_gate_that_is_abandoned_shows_it() -> None:
    trial = Trial()
    trial.gate.calibrated(longest=0.004, wanted=0.005)
    assert trial.own[words.HOOKED] == words.READY
    trial.gate.abandon()
    assert trial.own[words.HOOKED] == 0


SECOND = 10**9
NOW = 100 * SECOND
LED = {words.LEASE: NOW + SECOND, words.TURN: NOW + SECOND}


@dataclass(frozen=True, slots=True)
class Case:
    """`page`: the agent's words; `high`: the words of the job of high priority, if any."""

    want: bool
    page: dict[int, int] | None = field(default_factory=lambda: dict(LED))
    high: dict[int, int] | None = None
    intruded: int = 0


BUSY = {words.BUSY: 1, words.HEARTBEAT: NOW}
GATED = {**LED, words.MODE: words.GATED}
SHUT = {**LED, words.MODE: words.SHUT}
WORDS: dict[str, Case] = {
    "no other job is on the card": Case(True),
    "the job of high priority is idle": Case(True, GATED, {**BUSY, words.BUSY: 0}),
    "it is busy": Case(False, GATED, BUSY),
    "it has shown no life for over a second": Case(
        True, GATED, {**BUSY, words.HEARTBEAT: NOW - SECOND - 1}
    ),
    "it is busy, and there is allowance left": Case(
        True, {**GATED, words.ALLOWANCE_NS: 5000}, BUSY, intruded=4999
    ),
    "it is busy, and the allowance is spent": Case(
        False, {**GATED, words.ALLOWANCE_NS: 5000}, BUSY, intruded=5000
    ),
    "the gate is shut although the card is idle": Case(False, SHUT),
    "it is another sharer's turn": Case(False, {**LED, words.TURN: NOW}),
    "the agent is dead, the card idle": Case(True, {words.LEASE: NOW}),
    "the agent is dead, the card busy": Case(False, {words.LEASE: NOW}, BUSY),
    "the agent was never seen": Case(True, None),
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
    assert orders.allow(NOW, intruded=case.intruded) is case.want


def test_pages_and_bell_are_taken_from_messages() -> None:
    orders, own, high = Orders(), Page.make(), Page.make()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.words[words.LEASE] = monotonic_ns() + SECOND
    high.words[words.BUSY], high.words[words.HEARTBEAT] = 1, monotonic_ns()
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
    given, orders = os.fstat(reading).st_ino, Orders()
    extra = [] if message.get("orders") else [reading]
    with pytest.raises(ValueError, match="descriptors instead of"):
        orders.take(message, extra)
    if extra:
        with suppress(OSError):  # a thread of another test may have its number by now
            assert os.fstat(reading).st_ino != given
