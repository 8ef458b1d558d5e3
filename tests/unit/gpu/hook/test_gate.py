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
from tests.unit.gpu.hook.card import FakeCard, Still

MS = 10**6
HOUR = 3600 * 10**9


class Trial:
    """A gate, the page that it writes, and pages of the agent and the high job set by the test."""

    def __init__(self, *, instant: bool = True, lease: int = HOUR, clock: Clock = CLOCK) -> None:
        self.clock = clock
        self.card = FakeCard(instant=instant)
        self.own, self.orders = Page.make().words, Orders()
        self.orders.page, self._high = Page.make().words, Page.make().words
        self.orders.high_pages = (self._high,)
        self.orders.page[words.MODE] = words.GATED
        self.orders.page[words.LEASE] = clock.now() + lease
        self.orders.page[words.TURN] = clock.now() + HOUR
        self.bell, self.orders.bell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.gate = Gate(self.own, self.orders, self.card, clock)

    def high(self, *, busy: bool) -> None:
        self._high[words.HEARTBEAT] = self.clock.now() + HOUR  # it stays alive on a slow machine
        self._high[words.BUSY] = int(busy)

    def dies(self) -> None:
        self._high[words.HEARTBEAT] = 0

    def paused(self, *milliseconds: float, since: float = 0.0) -> None:
        """Make the high job idle for some milliseconds, after such pauses."""
        self.high(busy=False)
        self._high[words.CHANGED] = self.clock.now() - int(since * MS)
        self._high[words.PAUSED] = len(milliseconds)
        for place, pause in enumerate(milliseconds):
            self._high[words.PAUSES + place] = int(pause * MS)

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


def until(condition: Callable[[], object]) -> None:
    deadline = monotonic_ns() + 10**10
    while not condition():
        assert monotonic_ns() < deadline
        sleep(0.001)


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


def test_the_gate_is_open_while_the_high_priority_job_is_idle() -> None:
    trial = Trial()
    trial.high(busy=False)
    for _ in range(100):
        trial.gate.enter()
    assert trial.own[words.MICRO_STEPS] == 100
    assert trial.own[words.INTRUDED] == 0


def test_the_gate_is_shut_while_that_job_is_busy_and_opens_with_the_bell() -> None:
    trial = Trial()
    trial.high(busy=True)
    entering = trial.entering()
    assert stays(entering)
    trial.high(busy=False)
    trial.bell.send(b"i")
    assert ends(entering)
    assert trial.own[words.INTRUDED] == 0
    assert trial.own[words.WAITED_NS] > 0


def test_the_gate_opens_without_a_bell_too() -> None:
    trial = Trial()
    trial.high(busy=True)
    entering = trial.entering()
    assert stays(entering)
    trial.high(busy=False)
    assert ends(entering)


def test_earlier_rings_do_not_open_the_gate() -> None:
    trial = Trial()
    trial.high(busy=True)
    for _ in range(5):
        trial.bell.send(b"i")
    entering = trial.entering()
    assert stays(entering)
    trial.high(busy=False)
    assert ends(entering)


def test_no_more_than_the_allowance_is_spent() -> None:
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


LEFT = {
    "there is no high job": (words.GATED, words.READY, False, OUTSTANDING),
    "there is a high job": (words.GATED, words.READY, True, 1),
    "others of low priority wait for the card": (words.OPEN, words.READY, False, OUTSTANDING),
    "no other job waits for it": (words.FREE, words.READY, False, FREE_OUTSTANDING),
    "a high job has come, and the agent does not know it yet": (words.FREE, words.READY, True, 1),
    "its micro-steps are long": (words.FREE, words.COARSE, False, OUTSTANDING),
    "the length of its micro-steps is unknown": (words.FREE, words.WATCHING, False, OUTSTANDING),
}


@pytest.mark.parametrize(("mode", "gate", "high", "most"), LEFT.values(), ids=LEFT)
def test_the_most_micro_steps_on_the_card(mode: int, gate: int, high: bool, most: int) -> None:
    trial = Trial(instant=False)
    trial.order(words.MODE, mode)
    trial.own[words.HOOKED] = gate
    if high:
        trial.high(busy=False)
    for _ in range(most - 1):
        trial.gate.enter()
    entering = trial.entering()
    assert stays(entering)  # until the work before the first call is done
    assert len(trial.card.given) == most
    trial.card.given[0].ended.set()
    assert ends(entering)


def test_a_new_high_job_finds_the_card_free_after_the_next_gate() -> None:
    trial = Trial(instant=False)
    trial.order(words.MODE, words.FREE)
    trial.gate.show_longest(0.004)
    for _ in range(5):
        trial.gate.enter()
    trial.high(busy=False)
    entering = trial.entering()
    for marker in trial.card.given[:5]:
        marker.ended.set()
    assert stays(entering)
    trial.card.given[5].ended.set()
    assert ends(entering)


def test_a_process_at_the_gate_has_nothing_on_the_card() -> None:
    trial = Trial(instant=False)
    trial.gate.enter()
    trial.high(busy=True)
    trial.card.given[0].ended.set()
    entering = trial.entering()
    assert stays(entering)
    assert not trial.own[words.ASKING]
    worked = trial.own[words.WORKED_NS]
    trial.card.given[1].ended.set()
    assert stays(entering)
    assert trial.own[words.ASKING]
    assert trial.own[words.WORKED_NS] - worked > 10**8  # it was on the card until now
    trial.high(busy=False)
    assert ends(entering)


@pytest.mark.parametrize("busy", [True, False])
def test_a_job_without_an_agent_still_gives_way(*, busy: bool) -> None:
    trial = Trial(lease=-1)
    trial.high(busy=busy)
    entering = trial.entering()
    assert stays(entering) is busy
    trial.high(busy=False)
    assert ends(entering)


def test_each_rest_without_an_agent_is_four_times_the_work_before_it() -> None:
    clock = Still()
    trial = Trial(lease=-1, clock=clock)
    trial.gate.enter()
    for _ in range(5):
        clock.time += 10 * MS  # the micro-step
        trial.gate.enter()
    assert clock.slept == [0.04] * 5
    assert trial.own[words.WORKED_NS] == 5 * 10 * MS


def test_the_card_rests_from_the_end_of_a_step_until_the_next_work_of_the_job() -> None:
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


def test_the_memory_is_read_five_times_a_second_at_most() -> None:
    clock = Still()
    trial = Trial(clock=clock)
    for _ in range(100):
        clock.time += 10 * MS
        trial.gate.enter()
    assert trial.card.asked == 5
    assert trial.own[words.MEMORY] == 1 << 20


def test_a_bell_with_a_descriptor_above_1023_is_heard() -> None:
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
    trial.gate.show_longest(0.005)
    assert trial.own[words.HOOKED] == words.READY
    trial.gate.abandon()
    assert trial.own[words.HOOKED] == 0


def test_a_micro_step_of_more_than_5_ms_is_coarse_even_if_ordered_shorter() -> None:
    trial = Trial()
    trial.order(words.MICRO_STEP_NS, MS)
    for longest, shown in ((0.004, words.READY), (0.006, words.COARSE)):
        trial.gate.show_longest(longest)
        assert trial.own[words.HOOKED] == shown


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(0.0, 0.0, id="unknown"),
        pytest.param(0.0016, 0.0016, id="known"),
        pytest.param(float("nan"), 0.0, id="no number"),
        pytest.param(float("inf"), LONGEST, id="without end"),
    ],
)
def test_the_end_of_a_micro_step_is_expected_from_its_learned_length(
    seconds: float, expected: float
) -> None:
    clock = Still()
    trial = Trial(clock=clock)
    trial.high(busy=False)
    trial.gate.enter(seconds)
    began, trial.card.instant = clock.time, False
    entering = trial.entering()
    until(lambda: trial.card.given[1].waits)
    assert trial.card.given[1].expected == began + int(expected * 10**9)
    trial.card.given[1].ended.set()
    assert ends(entering)


REGULAR = [15.0] * KEPT


def predicting(*pauses: float, since: float) -> Trial:
    """Return a trial where pauses repeat, so that the gate has learned to predict them."""
    trial = Trial(clock=Still())
    trial.paused(*pauses, since=since)
    trial.gate.step()
    return trial


@pytest.mark.parametrize(
    ("pauses", "learned"),
    [
        pytest.param(REGULAR, True, id="they repeat"),
        pytest.param([15.0, 5.0] * 16, False, id="they do not"),
        pytest.param([15.0] * 7, False, id="too few are known"),
    ],
)
def test_micro_steps_are_short_where_pauses_repeat(pauses: list[float], learned: bool) -> None:
    trial = predicting(*pauses, since=0)
    trial.order(words.MICRO_STEP_NS, MS)
    assert trial.gate.micro_step() == (PIECE if learned else 0.001)
    trial.gate.step()
    trial.paused(since=0)
    trial.gate.step()
    assert trial.gate.micro_step() == 0.001


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a micro-step of 0.65 ms begins; `want`: the pause after which it finally begins."""

    since: float
    want: float
    orders: dict[int, int] = field(default_factory=dict)
    dies: bool = False
    other: bool = False


FITS: dict[str, Fit] = {
    "it fits": Fit(13.9, 13.9),
    "it does not fit, until the pause lasts": Fit(14.4, 16.4),
    "it may intrude": Fit(14.4, 14.4, {words.ALLOWANCE_NS: 1}),
    "the agent is dead": Fit(14.4, 14.4, {words.LEASE: 1}),
    "the high job is dead": Fit(14.4, 14.4, dies=True),
    "the high job has two processes": Fit(14.4, 14.4, other=True),
    "it may cost more": Fit(14.4, 14.4, {words.PRICE: 500}),
}


@pytest.mark.parametrize("case", FITS.values(), ids=FITS)
def test_where_pauses_repeat_a_micro_step_begins_if_it_fits(case: Fit) -> None:
    trial = predicting(*REGULAR, since=case.since)
    trial.orders.bell = None
    for word, value in case.orders.items():
        trial.order(word, value)
    if case.dies:
        trial.dies()
    if case.other:
        trial.orders.high_pages *= 2
    began = trial.clock.now()
    trial.gate.enter(0.00065)
    assert (trial.clock.now() - began) / MS + case.since == pytest.approx(case.want)


@pytest.mark.parametrize("word", [words.MODE, words.TURN])
def test_a_shut_gate_stays_shut_although_a_micro_step_would_fit(word: int) -> None:
    trial = predicting(*REGULAR, since=1.0)
    trial.order(word, {words.MODE: words.SHUT, words.TURN: 0}[word])
    entering = trial.entering()
    assert stays(entering)
    trial.order(word, {words.MODE: words.GATED, words.TURN: HOUR + trial.clock.now()}[word])
    assert ends(entering)


def test_a_micro_step_that_does_not_fit_is_charged_as_an_intrusion_and_the_wait_is_shown() -> None:
    trial = predicting(*REGULAR, since=14.4)
    trial.order(words.ALLOWANCE_NS, 1)
    trial.gate.enter(0.00065)
    assert trial.own[words.INTRUDED] == 1
    trial.order(words.ALLOWANCE_NS, 0)
    trial.paused(*[100.0] * KEPT, since=99.5)
    entering = threading.Thread(target=trial.gate.enter, args=(10.0,), daemon=True)
    entering.start()
    until(lambda: trial.own[words.ASKING])  # so its minimum share is paid, see `Pair`
    trial.orders.high_pages = ()
    assert ends(entering)


def test_where_pauses_repeat_the_next_micro_step_is_launched_shortly_before_the_last_ends() -> None:
    trial = predicting(*REGULAR, since=0)
    clock, trial.card.instant = trial.clock, False
    assert isinstance(clock, Still)
    trial.gate.enter(0.00065)
    trial.card.given[1].ended.set()  # the previous work
    clock.slept.clear()
    trial.gate.enter(0.00065)
    assert clock.slept == [0.00035]
    assert not trial.card.given[2].ended.is_set()
    trial.card.given[2].ended.set()
    clock.slept.clear()
    trial.gate.enter(0.00065)
    assert clock.slept == [0.00035]


def test_a_micro_step_that_has_already_ended_causes_no_sleep() -> None:
    trial = predicting(*REGULAR, since=0)
    assert isinstance(trial.clock, Still)
    for _ in range(5):
        trial.gate.enter(0.00065)
    assert trial.clock.slept == []


SECOND = 10**9
NOW = 100 * SECOND
LED = {words.LEASE: NOW + SECOND, words.TURN: NOW + SECOND}


@dataclass(frozen=True, slots=True)
class Case:
    """`page`: the agent's words; `high`: the words of the high-priority job, if any."""

    want: bool
    page: dict[int, int] | None = field(default_factory=lambda: dict(LED))
    high: dict[int, int] | None = None
    intruded: int = 0


BUSY = {words.BUSY: 1, words.HEARTBEAT: NOW}
GATED = {**LED, words.MODE: words.GATED}
SHUT = {**LED, words.MODE: words.SHUT}
WORDS: dict[str, Case] = {
    "no other job is on the card": Case(True),
    "no other job has a part of the card": Case(
        True, {**LED, words.MODE: words.FREE}, BUSY | {words.BUSY: 0}
    ),
    "the high-priority job is idle": Case(True, GATED, {**BUSY, words.BUSY: 0}),
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
        made.high_pages = (Page.make().words, page_of(case.high))
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


ANY_WORD = st.integers(0, 2**64 - 1)
HIGH = Page.make().words


@given(pauses=st.lists(ANY_WORD, min_size=1, max_size=KEPT), changed=ANY_WORD, paused=ANY_WORD)
def test_the_pauses_of_the_high_job_are_times_whatever_it_writes(
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
    orders, own, high = Orders(), Page.make(), Page.make()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.words[words.LEASE] = monotonic_ns() + SECOND
    high.words[words.BUSY], high.words[words.HEARTBEAT] = 1, monotonic_ns()
    orders.handle({"orders": True}, [os.dup(own.descriptor)])
    assert orders.agent_alive(monotonic_ns())
    orders.handle({"highs": 1}, [os.dup(high.descriptor), ours.detach()])
    assert orders.busy(monotonic_ns())
    theirs.send(b"i")
    assert orders.bell is not None
    assert orders.bell.recv(8) == b"i"
    orders.handle({"highs": 0}, [])
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
        orders.handle(message, extra)
    if extra:
        with suppress(OSError):  # a thread of another test may have its number by now
            assert os.fstat(reading).st_ino != given
