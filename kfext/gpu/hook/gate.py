"""The gate before each micro-step of a job of low priority.

A micro-step begins when the card is idle, or at the agent's word. At most two are on the card at a
time, so that it is free again that soon after the job of high priority comes back.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from time import monotonic_ns, sleep

from . import words
from .device import Device, TimedMarker
from .orders import PASS, TICKET, WAIT, Orders
from .pulse import PULSE_SECONDS, show_life

_NAP_SECONDS = 0.05
"""How often the orders are read while the gate is shut: they change without a wake."""
OUTSTANDING = 2
"""Micro-steps; what they cost the other job is in `kfext.gpu.rules.neighbours`."""
_TICKET_NS = 10**9
"""For how long a ticket lets the process work, if its optimizer makes no step before."""
PACE = 0.2
"""Part of the time that a job may use while no agent lives."""
_LONGEST_REST_SECONDS = 1.0
"""After a micro-step, while no agent lives."""


class Gate:
    """Has the calling thread wait until a micro-step may begin; `page` is the process's own."""

    def __init__(self, page: memoryview, orders: Orders, device: Device) -> None:
        self._page = page
        self._orders = orders
        self._device = device
        self._outstanding: deque[tuple[TimedMarker, TimedMarker | None]] = deque()
        self._stepped: TimedMarker | None = None
        self._intrudes = False
        self._began = 0
        self._ticket_ends = 0
        self.watch()

    def watch(self) -> None:
        """Take in that it is not known yet how long the job's micro-steps are."""
        self._page[words.HOOKED] = words.WATCHING

    def micro_step(self) -> float:
        """Return how long a micro-step should take at most, in seconds."""
        return self._orders.micro_step()

    def calibrated(self, *, longest: float, wanted: float) -> None:
        """Take in how long the longest micro-step takes on the card, and how long it should."""
        self._page[words.LONGEST_NS] = int(longest * 1e9)
        self._page[words.HOOKED] = words.COARSE if longest > wanted else words.READY

    def step(self) -> None:
        """Take in that the job's optimizer has made a step: a ticket ends with it."""
        self._page[words.STEPS] += 1
        self._page[words.STEPPED] = monotonic_ns()
        self._ticket_ends = 0
        self._stepped = self._device.mark()

    def abandon(self) -> None:
        """Take in that nobody passes the gate any more; the page shows it."""
        self._page[words.ASKING] = self._page[words.HOOKED] = 0

    def enter(self) -> None:
        """Return when the next micro-step may begin; call it where one ends and another begins."""
        page = self._page
        self._outstanding.append((self._device.mark(), self._stepped))
        self._stepped = None
        now = self._drain(leaving=OUTSTANDING - 1)
        word = self._ask(now)
        if word == WAIT:  # so that none of its work is on the card while it stands at the gate
            now = self._drain(leaving=0)
            word = self._ask(now)
        arrived, self._began, self._intrudes = now, 0, False
        try:
            while word == WAIT:
                page[words.ASKING] = 1
                self._listen()
                now = monotonic_ns()
                word = self._ask(now)
        finally:
            page[words.ASKING] = 0  # also if a signal's handler ends the wait
            page[words.WAITED_NS] += now - arrived
        page[words.MICRO_STEPS] += 1
        self._intrudes = self._orders.busy(now)
        page[words.INTRUDED] += self._intrudes
        if word == TICKET:
            self._ticket_ends = page[words.WORKED_NS] + _TICKET_NS
        page[words.TICKETS_SEEN] = self._orders.tickets()
        self._began = now

    def _ask(self, now: int) -> str:
        page = self._page
        if now - page[words.PULSE] >= PULSE_SECONDS * 1e9:
            show_life(page, self._device.memory)
        if page[words.WORKED_NS] < self._ticket_ends:
            return PASS
        intruded, seen = page[words.INTRUDED_NS], page[words.TICKETS_SEEN]
        return self._orders.word(now, intruded=intruded, tickets=seen)

    def _drain(self, *, leaving: int) -> int:
        """Wait until so many micro-steps at most are on the card; charge that time, return now."""
        while len(self._outstanding) > leaving:
            self._reach(*self._outstanding.popleft())
        self._account(monotonic_ns())
        self._began = monotonic_ns()
        return self._began

    def _reach(self, marker: TimedMarker, stepped: TimedMarker | None) -> None:
        """Wait for a marker; `stepped` is that of the step before it, if nothing was in between.

        The job has waited for data, if between the two the card has.
        """
        marker.wait()
        if stepped is not None:
            stepped.wait()
            self._page[words.RESTED_NS] += int(max(marker.seconds_since(stepped), 0.0) * 1e9)

    def _account(self, now: int) -> None:
        """Charge what the last micro-step took, and rest after it while no agent lives."""
        if not self._began:
            return
        took = now - self._began
        self._page[words.WORKED_NS] += took
        if self._intrudes:
            self._page[words.INTRUDED_NS] += took
        if not self._orders.led(now):
            sleep(min(took * (1 / PACE - 1) / 1e9, _LONGEST_REST_SECONDS))

    def _listen(self) -> None:
        """Wait for the bell, but not for long, as the orders may change; take in all its rings."""
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
            pass  # all rings are taken in
