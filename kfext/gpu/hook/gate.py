"""The gate before each micro-step of a low-priority job, and the agent's orders that open it.

A micro-step begins when the card is idle, or when the agent allows it. At most two are on the card
at a time, so the card is soon free again when the high-priority job comes back.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from time import monotonic_ns, sleep
from typing import Any

from . import words
from .agent_connection import close_all
from .device import Device, TimedMarker
from .page import HEARTBEAT_SECONDS, beat, words_of

_DEAD_NS = int(5 * HEARTBEAT_SECONDS * 1e9)
_MICRO_STEP_SECONDS = 0.005
"""The default length without an order of the agent."""


class Orders:
    """The agent's orders for this job. Another thread replaces each attribute in one step.

    `page`: the agent's words, or None before it has sent any. `highs`: the pages of the processes
    of the high-priority job on the card. `bell`: rings when one of these processes becomes idle.
    """

    def __init__(self) -> None:
        self.page: memoryview | None = None
        self.highs: tuple[memoryview, ...] = ()
        self.bell: socket.socket | None = None

    def take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Apply a message of the agent. Raises ValueError for a malformed message.

        `orders`: the agent's page comes with it. `highs`: how many pages come, with the bell last.
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
        self.highs = tuple(words_of(descriptor) for descriptor in descriptors)

    def led(self, now: int) -> bool:
        """Return whether an agent lives."""
        page = self.page
        return page is not None and now < page[words.LEASE]

    def busy(self, now: int) -> bool:
        """Return whether the high-priority job lives and has work on the card."""
        return any(
            high[words.BUSY] == 1 and now - high[words.HEARTBEAT] <= _DEAD_NS for high in self.highs
        )

    def micro_step(self) -> float:
        """Return the longest that a micro-step should take, in seconds."""
        page = self.page
        ordered = page[words.MICRO_STEP_NS] if page is not None else 0
        return ordered / 1e9 if ordered else _MICRO_STEP_SECONDS

    def allow(self, now: int, *, intruded: int) -> bool:
        """Return whether a micro-step may begin.

        `intruded`: how long (ns) the process has worked beside a busy high-priority job. Without an
        agent it passes only while the card is idle; see `PACE`.
        """
        page = self.page
        if page is None or now >= page[words.LEASE]:
            return not self.busy(now)
        mode = page[words.MODE]
        if mode == words.SHUT or now >= page[words.TURN]:
            return False
        return mode == words.OPEN or not self.busy(now) or intruded < page[words.ALLOWANCE_NS]


_NAP_SECONDS = 0.05
"""How often the orders are read while the gate is shut: they change without a ring."""
OUTSTANDING = 2
"""Micro-steps on the card at a time; `kfext.gpu.rules.neighbours` has their cost for the other
job."""
PACE = 0.2
"""The part of the time that a job may use while no agent lives."""
_LONGEST_REST_SECONDS = 1.0
"""The longest rest after a micro-step while no agent lives."""


class Gate:
    """Makes the calling thread wait until a micro-step may begin; `page`: the process's own."""

    def __init__(self, page: memoryview, orders: Orders, device: Device) -> None:
        self._page = page
        self._orders = orders
        self._device = device
        self._outstanding: deque[tuple[TimedMarker, TimedMarker | None]] = deque()
        self._stepped: TimedMarker | None = None
        self._intrudes = False
        self._began = 0
        self.watch()

    def watch(self) -> None:
        """Show that the length of the job's micro-steps is not known yet."""
        self._page[words.HOOKED] = words.WATCHING

    def micro_step(self) -> float:
        """Return the longest that a micro-step should take, in seconds."""
        return self._orders.micro_step()

    def calibrated(self, *, longest: float, wanted: float) -> None:
        """Show the time of the longest micro-step on the card, and whether it is too long."""
        self._page[words.LONGEST_NS] = int(longest * 1e9)
        self._page[words.HOOKED] = words.COARSE if longest > wanted else words.READY

    def step(self) -> None:
        """Record a step of the job's optimizer."""
        self._page[words.STEPS] += 1
        self._page[words.STEPPED] = monotonic_ns()
        self._stepped = self._device.mark()

    def abandon(self) -> None:
        """Show that the job no longer passes the gate."""
        self._page[words.ASKING] = self._page[words.HOOKED] = 0

    def enter(self) -> None:
        """Wait until the next micro-step may begin; call it between two micro-steps."""
        page = self._page
        self._outstanding.append((self._device.mark(), self._stepped))
        self._stepped = None
        now = self._drain(leaving=OUTSTANDING - 1)
        allowed = self._ask(now)
        if not allowed:  # wait with no work of the job on the card
            now = self._drain(leaving=0)
            allowed = self._ask(now)
        arrived, self._began, self._intrudes = now, 0, False
        try:
            while not allowed:
                page[words.ASKING] = 1
                self._listen()
                now = monotonic_ns()
                allowed = self._ask(now)
        finally:
            page[words.ASKING] = 0  # also if a signal handler ends the wait
            page[words.WAITED_NS] += now - arrived
        page[words.MICRO_STEPS] += 1
        self._intrudes = self._orders.busy(now)
        page[words.INTRUDED] += self._intrudes
        self._began = now

    def _ask(self, now: int) -> bool:
        page = self._page
        if now - page[words.HEARTBEAT] >= HEARTBEAT_SECONDS * 1e9:
            beat(page, self._device.memory)
        return self._orders.allow(now, intruded=page[words.INTRUDED_NS])

    def _drain(self, *, leaving: int) -> int:
        """Wait until at most `leaving` micro-steps are on the card; charge them, return now."""
        while len(self._outstanding) > leaving:
            self._reach(*self._outstanding.popleft())
        self._account(monotonic_ns())
        self._began = monotonic_ns()
        return self._began

    def _reach(self, marker: TimedMarker, stepped: TimedMarker | None) -> None:
        """Wait for a marker; `stepped`: the marker of the step right before it, if any.

        If the card was idle between the two markers, the job was waiting for data.
        """
        marker.wait()
        if stepped is not None:
            stepped.wait()
            self._page[words.RESTED_NS] += int(max(marker.seconds_since(stepped), 0.0) * 1e9)

    def _account(self, now: int) -> None:
        """Charge the time of the last micro-step, and rest after it while no agent lives."""
        if not self._began:
            return
        took = now - self._began
        self._page[words.WORKED_NS] += took
        if self._intrudes:
            self._page[words.INTRUDED_NS] += took
        if not self._orders.led(now):
            sleep(min(took * (1 / PACE - 1) / 1e9, _LONGEST_REST_SECONDS))

    def _listen(self) -> None:
        """Wait for the bell, briefly because the orders may change, and read all its rings."""
        bell = self._orders.bell
        if bell is None:
            sleep(_NAP_SECONDS)
            return
        waiting = select.poll()  # select() takes no descriptor above 1023
        waiting.register(bell, select.POLLIN)
        readable = waiting.poll(_NAP_SECONDS * 1000)
        try:
            while readable and bell.recv(64, socket.MSG_DONTWAIT):
                pass
        except BlockingIOError:
            pass  # all rings are read
