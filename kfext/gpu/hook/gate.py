"""The gate before each micro-step of a low-priority job, and the agent's orders that open it.

A micro-step begins when the card is idle, or when the agent allows it. Beside a high-priority job
only one micro-step is on the card at a time, so the card is soon free when that job has work again.
If the pauses of that job repeat, a micro-step begins only if it probably ends before the next work,
and it is launched just before its predecessor ends.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from typing import Any, NamedTuple

from . import words
from .agent_connection import close_all
from .device import Device, TimedMarker
from .page import HEARTBEAT_SECONDS, beat, words_of
from .pauses import LONGEST, PIECE, PRICE, fits, last_pauses, repeat
from .waits import CLOCK, Clock, approach
from .words import NS

_DEAD_NS = int(5 * HEARTBEAT_SECONDS * NS)
_MICRO_STEP_SECONDS = 0.005
"""The longest micro-step without an order of the agent; a longer micro-step is coarse."""


class Orders:
    """The agent's orders for this job. Another thread replaces each attribute at once.

    `page`: the page with the orders, or None before the agent has sent it. `high_pages`: the pages
    of the processes of the high-priority job on the card. `bell`: rings when a process becomes
    idle.
    """

    def __init__(self) -> None:
        self.page: memoryview | None = None
        self.high_pages: tuple[memoryview, ...] = ()
        self.bell: socket.socket | None = None

    def handle(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Apply a message of the agent. Raises ValueError for a malformed message.

        With the key `orders`, it has the page with the orders. The key `highs` is the number of
        pages of high-priority processes; the bell follows them.
        """
        highs = message.get("highs", 0)
        wanted = 1 if message.get("orders") else highs + 1 if highs else 0
        if len(descriptors) != wanted:
            close_all(descriptors)
            raise ValueError(f"{len(descriptors)} descriptors instead of {wanted}")
        if message.get("orders"):
            self.page = words_of(descriptors[0])
            return
        if highs:
            self.bell = socket.socket(fileno=descriptors.pop())
        self.high_pages = tuple(words_of(descriptor) for descriptor in descriptors)

    def agent_alive(self, now: int) -> bool:
        """Return whether an agent is alive, so that its orders are valid."""
        page = self.page
        return page is not None and now < page[words.LEASE]

    def live_pages(self, now: int) -> list[memoryview]:
        """Return the pages of the high-priority processes that are alive."""
        return [high for high in self.high_pages if now - high[words.HEARTBEAT] <= _DEAD_NS]

    def busy(self, now: int) -> bool:
        """Return whether the high-priority job is alive and has work on the card."""
        return any(high[words.BUSY] == 1 for high in self.live_pages(now))

    def pause(self, now: int) -> tuple[float, list[float]]:
        """Return the seconds since the high-priority job became idle, and its last pauses.

        Unless exactly one of its processes is alive, return no pauses.
        """
        pages = self.live_pages(now)
        if len(pages) != 1:
            return 0.0, []
        elapsed = max(now - pages[0][words.CHANGED], 0) / NS
        return elapsed, last_pauses(pages[0])

    def free(self, now: int) -> bool:
        """Return whether no other job waits for the card."""
        page = self.page
        return page is not None and self.agent_alive(now) and page[words.MODE] == words.FREE

    def price(self) -> float:
        """Return the price of a micro-step for the high-priority job, see `pauses.PRICE`."""
        page = self.page
        return page[words.PRICE] / 1000 if page is not None and page[words.PRICE] else PRICE

    def micro_step(self) -> float:
        """Return the longest time that a micro-step should take, in seconds."""
        page = self.page
        ordered = page[words.MICRO_STEP_NS] if page is not None else 0
        return ordered / 1e9 if ordered else _MICRO_STEP_SECONDS

    def allow(self, now: int, *, intruded: int) -> bool:
        """Return whether a micro-step may begin.

        `intruded`: the nanoseconds that the job has worked while the high-priority job was busy.
        Without an agent a micro-step begins only while the card is idle; see `PACE`.
        """
        page = self.page
        if page is None or now >= page[words.LEASE]:
            return not self.busy(now)
        mode = page[words.MODE]
        if mode == words.SHUT or now >= page[words.TURN]:
            return False
        return mode == words.OPEN or not self.busy(now) or self.tolerates(intruded)

    def tolerates(self, intruded: int) -> bool:
        """Return whether the agent allows work beside the busy high-priority job; see `allow`."""
        return self.page is not None and intruded < self.page[words.ALLOWANCE_NS]


_NAP_SECONDS = 0.05
"""Time between two readings of the orders while the gate is shut: they change without a ring."""
_SHORT_NAP_SECONDS = 0.002
"""Time between two checks of a micro-step that does not fit: it may fit in a longer pause."""
OUTSTANDING = 2
"""The most micro-steps on the card beside other jobs; `kfext.gpu.rules` has their cost."""
FREE_OUTSTANDING = 16
"""The most micro-steps on the card without other jobs: a thread that wakes late leaves no gap."""
PACE = 0.2
"""The fraction of the time that a job may use while no agent is alive."""
_LONGEST_PAUSE_SECONDS = 1.0
"""The longest pause after a micro-step while no agent is alive."""


class _MicroStep(NamedTuple):
    """A micro-step on the card. Times are in nanoseconds.

    `marker`: the marker at its end. `stepped`: the marker of the optimizer's step right before that
    end, if any. `began`: when it passed the gate. `length`: its learned length; 0 means unknown.
    """

    marker: TimedMarker
    stepped: TimedMarker | None
    began: int
    length: int


class Gate:
    """Makes the calling thread wait until a micro-step may begin; `page`: the process's page."""

    def __init__(
        self, page: memoryview, orders: Orders, device: Device, clock: Clock = CLOCK
    ) -> None:
        self._page = page
        self._orders = orders
        self._device = device
        self._clock = clock
        self._outstanding: deque[_MicroStep] = deque()
        self._stepped: TimedMarker | None = None
        self._intrudes = self._beside = False
        self._began = self._passed = self._length = self._last_end = 0
        self._nap = _NAP_SECONDS
        self._predicts = False
        self.watch()

    def watch(self) -> None:
        """Show that the length of the job's micro-steps is not known yet."""
        self._page[words.HOOKED] = words.WATCHING

    def micro_step(self) -> float:
        """Return the longest time that a micro-step should take, in seconds."""
        ordered = self._orders.micro_step()
        return min(ordered, PIECE) if self._predicts else ordered

    def show_longest(self, longest: float) -> None:
        """Show the time of the longest micro-step on the card, and whether it is too long."""
        self._page[words.LONGEST_NS] = int(longest * NS)
        coarse = longest > _MICRO_STEP_SECONDS
        self._page[words.HOOKED] = words.COARSE if coarse else words.READY

    def step(self) -> None:
        """Record a step of the job's optimizer; choose whether pauses can be predicted."""
        now = self._clock.now()
        self._page[words.STEPS] += 1
        self._page[words.STEPPED] = now
        self._stepped = self._device.mark()
        self._predicts = repeat(self._orders.pause(now)[1])

    def abandon(self) -> None:
        """Show that the job no longer passes the gate."""
        self._page[words.ASKING] = self._page[words.HOOKED] = 0

    def enter(self, seconds: float = 0.0) -> None:
        """Wait until the next micro-step may begin; call it between two micro-steps.

        `seconds`: the probable time of its work on the card; 0 for unknown.
        """
        page = self._page
        seconds = min(max(0.0, seconds), LONGEST)  # NaN becomes 0
        end = _MicroStep(self._device.mark(), self._stepped, self._passed, self._length)
        self._outstanding.append(end)
        self._stepped = None
        now = self._drain(leaving=self._most_left(self._clock.now()))
        allowed = self._may_begin(now, seconds)
        if not allowed:  # wait with no work of the job on the card
            now = self._drain(leaving=0)
            allowed = self._may_begin(now, seconds)
        arrived, self._began, self._intrudes = now, 0, False
        try:
            while not allowed:
                page[words.ASKING] = 1
                self._listen()
                now = self._clock.now()
                allowed = self._may_begin(now, seconds)
        finally:
            page[words.ASKING] = 0  # also if a signal handler ends the wait
            page[words.WAITED_NS] += now - arrived
        page[words.MICRO_STEPS] += 1
        self._intrudes = self._beside
        page[words.INTRUDED] += self._intrudes
        self._began = self._passed = now
        self._length = int(seconds * NS)

    def _most_left(self, now: int) -> int:
        """Return the number of micro-steps that may be on the card when the next begins."""
        if self._orders.live_pages(now):
            return int(self._predicts)
        free = self._orders.free(now) and self._page[words.HOOKED] == words.READY
        return (FREE_OUTSTANDING if free else OUTSTANDING) - 1

    def _may_begin(self, now: int, seconds: float) -> bool:
        """Return whether a micro-step may begin, and record whether it is beside other work."""
        page, orders = self._page, self._orders
        if now - page[words.HEARTBEAT] >= HEARTBEAT_SECONDS * NS:
            beat(page, self._device.memory, now)
        self._nap = _NAP_SECONDS
        intruded = page[words.INTRUDED_NS]
        if not orders.allow(now, intruded=intruded):
            return False
        self._beside = orders.busy(now)
        if self._beside or self._fits(now, seconds):
            return True
        self._beside, self._nap = True, _SHORT_NAP_SECONDS
        return orders.tolerates(intruded)

    def _fits(self, now: int, seconds: float) -> bool:
        """Return whether a micro-step will probably end before the high-priority job has work.

        Without an agent it always fits, since the pace of the job is limited anyway.
        """
        if not self._predicts or not self._orders.agent_alive(now):
            return True
        elapsed, pauses = self._orders.pause(now)
        queued = max(self._expected_end() - now, 0) / NS if self._outstanding else 0.0
        price = self._orders.price()
        return fits(elapsed, seconds, queued=queued, pauses=pauses, price=price)

    def _expected_end(self) -> int:
        """Return the end of the oldest micro-step on the card, by its learned length."""
        oldest = self._outstanding[0]
        return max(oldest.began, self._last_end) + oldest.length

    def _drain(self, *, leaving: int) -> int:
        """Wait until at most `leaving` micro-steps are on the card; charge them, return the time.

        If pauses can be predicted, the last has nearly ended too, so that the decision is late.
        """
        while len(self._outstanding) > leaving:
            self._reach(self._outstanding[0], polls=leaving < FREE_OUTSTANDING - 1)
            self._outstanding.popleft()
        if self._predicts and self._outstanding:
            approach(self._outstanding[0].marker.reached, self._expected_end(), self._clock)
        self._account(self._clock.now())
        self._began = self._clock.now()
        return self._began

    def _reach(self, end: _MicroStep, *, polls: bool) -> None:
        """Wait for the end of the oldest micro-step.

        If the card was idle from a step of the optimizer to that end, the job was waiting for data.
        """
        if not polls:
            end.marker.wait()
        elif not end.marker.reached():
            end.marker.wait(self._expected_end())
            self._last_end = self._clock.now()  # the next micro-step begins now at the latest
        if end.stepped is not None:
            end.stepped.wait()
            rested = max(end.marker.seconds_since(end.stepped), 0.0)
            self._page[words.RESTED_NS] += int(rested * NS)

    def _account(self, now: int) -> None:
        """Charge the time of the last micro-step, and pause after it while no agent is alive."""
        if not self._began:
            return
        duration = now - self._began
        self._page[words.WORKED_NS] += duration
        if self._intrudes:
            self._page[words.INTRUDED_NS] += duration
        if not self._orders.agent_alive(now):
            self._clock.sleep(min(duration * (1 / PACE - 1) / NS, _LONGEST_PAUSE_SECONDS))

    def _listen(self) -> None:
        """Wait briefly for the bell, as the orders may change, and read all its rings."""
        bell = self._orders.bell
        if bell is None:
            self._clock.sleep(self._nap)
            return
        waiting = select.poll()  # select() takes no descriptor above 1023
        waiting.register(bell, select.POLLIN)
        readable = waiting.poll(self._nap * 1000)
        try:
            while readable and bell.recv(64, socket.MSG_DONTWAIT):
                pass
        except BlockingIOError:
            pass  # all rings are read
