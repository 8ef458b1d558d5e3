"""The beacon of a high-priority job: it shows whether the card has work of the job."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from . import words
from .agent_connection import HiddenThread, close_all
from .device import Marker
from .learning import median
from .page import HEARTBEAT_SECONDS, beat
from .pauses import record
from .waits import CLOCK, Clock

_QUEUED = 64
"""The most markers in the queue. The oldest is dropped first: a later marker covers its work."""
_JOIN_SECONDS = 1.0
"""How long the end of the process waits for a thread that may be inside CUDA."""
_TIMES = 8
"""The number of last times of work that estimate the end of the current work."""


class Beacon:
    """Writes BUSY to the page of this process, and wakes the jobs that wait for the card.

    `begin` is called before the job submits work to the card, `end` after it has submitted some.
    The card is idle again once the work before the last `end` is done and no `begin` came after it.
    `begin` takes about a microsecond, because it is called hundreds of times in a step. `pause` is
    as cheap, for a place where more work follows soon: it becomes an `end` if no work follows for
    two heartbeats.
    `memory`: returns the bytes that the process has reserved. `fail`: called with the error that
    ends the beacon.
    """

    def __init__(
        self,
        page: memoryview,
        *,
        memory: Callable[[], int],
        fail: Callable[[Exception], None],
        clock: Clock = CLOCK,
    ) -> None:
        self._page = page
        self._memory = memory
        self._fail = fail
        self._clock = clock
        self._process = os.getpid()
        self._busy = False
        self._busy_times: deque[int] = deque(maxlen=_TIMES)
        self._begun = 0
        self._markers: queue.SimpleQueue[tuple[int, Marker] | None] = queue.SimpleQueue()
        self._paused: tuple[int, Marker] | None = None
        self._bells: list[socket.socket] = []
        self._stopped = threading.Event()
        self._threads = [HiddenThread(run) for run in (self._heartbeat, self._watch)]

    def begin(self) -> int:
        """Record that the job is about to submit work; return the number of the call."""
        self._begun += 1
        if not self._busy:
            self._set(busy=True)
        return self._begun

    def end(self, marker: Marker, number: int | None = None) -> None:
        """Record that the job has submitted work up to a marker, and perhaps no more follows.

        `number`: the number of the matching `begin`, by default of the last call.
        """
        if self._markers.qsize() >= _QUEUED:
            with suppress(queue.Empty):
                self._markers.get_nowait()
        self._markers.put((self._begun if number is None else number, marker))

    def pause(self, marker: Marker) -> None:
        """Record that the job has submitted work up to a marker, and more will follow."""
        self._paused = (self._begun, marker)

    def step(self) -> None:
        """Record a step of an optimizer."""
        self._page[words.STEPS] += 1
        self._page[words.STEPPED] = self._clock.now()

    def handle(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Record the jobs to wake when the card becomes idle. Raises ValueError.

        `bells`: the number of sockets with the message; they replace the earlier sockets.
        """
        if message.get("bells") != len(descriptors):
            close_all(descriptors)
            raise ValueError(f"{len(descriptors)} descriptors instead of {message.get('bells')}")
        self._bells = [socket.socket(fileno=descriptor) for descriptor in descriptors]

    def stop(self) -> None:
        """End the threads; the page then shows an idle job. Does nothing in a fork of the process.

        At the end of Python, a thread that returns from CUDA would crash the process.
        """
        if os.getpid() != self._process:
            return
        self._stopped.set()
        self._markers.put(None)
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        self._set(busy=False)

    def _set(self, *, busy: bool) -> None:
        now, page = self._clock.now(), self._page
        busy = busy and not self._stopped.is_set()
        self._busy = busy
        elapsed = max(now - page[words.CHANGED], 0)
        if page[words.BUSY]:
            page[words.BUSY_NS] += elapsed
            self._busy_times.append(elapsed)
        elif page[words.CHANGED]:  # there was work before, so this is a pause
            record(page, elapsed)
        page[words.CHANGED] = now
        page[words.BUSY] = int(busy)

    def _watch(self) -> None:
        try:
            while not self._stopped.is_set():
                waiting = self._markers.get()
                if waiting is None:
                    return
                begun, marker = waiting
                marker.wait(self._expected())
                if self._busy and self._begun == begun:
                    self._become_idle(begun)
        except Exception as error:
            self.stop()
            self._fail(error)

    def _expected(self) -> int | None:
        """Return the probable end of the current work; None means unknown, or no waiting job."""
        if not self._busy_times or not self._bells:
            return None
        return self._page[words.CHANGED] + int(median(self._busy_times))

    def _become_idle(self, begun: int) -> None:
        self._set(busy=False)
        if self._begun != begun:  # a `begin` came in between and saw a busy card
            self._set(busy=True)
            return
        for bell in self._bells:
            _ring(bell)

    def _heartbeat(self) -> None:
        previous = ended = None
        while True:
            beat(self._page, self._memory, self._clock.now())
            paused = self._paused
            if paused is not None and paused is previous and paused is not ended:
                self._markers.put(paused)  # a later `begin` makes this marker void
                ended = paused
            previous = paused
            if self._stopped.wait(HEARTBEAT_SECONDS):
                return


def _ring(bell: socket.socket) -> None:
    """Wake a waiting job, without a risk that this process blocks or fails.

    An eventfd has that risk: both processes share its O_NONBLOCK flag, so the other process may
    clear it, fill the counter, and make the next write wait without end.
    """
    with suppress(OSError):  # the bell is full, so the job has enough to read; or the job is gone
        bell.send(b"i", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
