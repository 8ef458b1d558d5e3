import socket
import threading
from time import monotonic, monotonic_ns, sleep

import pytest

from kfext.hook import words
from kfext.hook.gate import Gate
from kfext.hook.orders import Orders
from kfext.hook.page import Page
from tests.unit.hook.card import FakeCard

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
        self._high[words.PULSE] = monotonic_ns()
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


def test_a_ticket_lets_one_whole_step_through() -> None:
    trial = Trial()
    trial.high(busy=True)
    trial.order(words.MODE, words.SHUT)
    trial.order(words.TICKETS, 1)
    for _ in range(3):
        trial.gate.enter()
    trial.gate.step()
    entering = trial.entering()
    assert stays(entering)
    trial.order(words.TICKETS, 2)
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


@pytest.mark.parametrize("busy", [True, False])
def test_without_an_agent_the_job_paces_itself_and_still_gives_way(*, busy: bool) -> None:
    trial = Trial(lease=-1)
    trial.high(busy=busy)
    entering = trial.entering()
    assert stays(entering) is busy
    trial.high(busy=False)
    assert ends(entering)
    sleep(0.05)  # the micro-step
    began = monotonic()
    trial.gate.enter()
    assert monotonic() - began >= 0.2
