"""The beacon of the job of high priority: it shows whether the card has work of that job."""

from __future__ import annotations

import queue
import socket
import threading
from contextlib import suppress
from time import monotonic_ns
from typing import Any

from . import words
from .device import Device, Marker
from .link import close_all

PULSE_SECONDS = 0.2
"""Pause between two signs of life. After five of them a reader takes the process for dead."""
_QUEUED = 64
"""Markers that wait at most: the thread that waits for them is never that far behind."""


class Beacon:
    """Writes BUSY to the process's own page, and wakes the jobs that wait for the card.

    `begin` is called before the job gives work to the card, `end` after it has given some. The card
    is idle again when the work before the last `end` is done and no `begin` came after it. `begin`
    costs about a microsecond, as it is called hundreds of times in a step.
    """

    def __init__(self, page: memoryview, device: Device) -> None:
        self._page = page
        self._device = device
        self._busy = False
        self._begun = 0
        self._markers: queue.Queue[tuple[int, Marker] | None] = queue.Queue(_QUEUED)
        self._bells: list[socket.socket] = []
        self._stopped = threading.Event()
        for run in (self._pulse, self._watch):
            threading.Thread(target=run, name="kfext", daemon=True).start()

    def begin(self) -> None:
        """Take in that the job is about to give work to the card."""
        self._begun += 1
        if not self._busy:
            self._set(busy=True)

    def end(self) -> None:
        """Take in that the job has given work to the card, and may give no more for a while."""
        # Else a later marker follows, or the card counts as busy: never as idle by mistake.
        with suppress(queue.Full):
            self._markers.put_nowait((self._begun, self._device.mark()))

    def step(self) -> None:
        """Take in that an optimizer has made its step."""
        self._page[words.STEPS] += 1
        self._page[words.STEPPED] = monotonic_ns()
        self.end()

    def take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Take in whom to wake when the card becomes idle. Raises ValueError.

        `bells`: how many sockets come with the message; they replace those before.
        """
        if message.get("bells") != len(descriptors):
            close_all(descriptors)
            raise ValueError(f"{len(descriptors)} descriptors instead of {message.get('bells')}")
        self._bells = [socket.socket(fileno=one) for one in descriptors]

    def stop(self) -> None:
        """End the threads; the page shows an idle job."""
        self._stopped.set()
        with suppress(queue.Full):  # else the thread looks at `_stopped` after each marker
            self._markers.put_nowait(None)
        self._set(busy=False)

    def _set(self, *, busy: bool) -> None:
        now, page = monotonic_ns(), self._page
        self._busy = busy
        if page[words.BUSY]:
            page[words.BUSY_NS] += now - page[words.CHANGED]
        page[words.CHANGED] = now
        page[words.BUSY] = int(busy)

    def _watch(self) -> None:
        while not self._stopped.is_set():
            waiting = self._markers.get()
            if waiting is None:
                return
            begun, marker = waiting
            marker.wait()
            if not self._busy or self._begun != begun:
                continue
            self._set(busy=False)
            if self._begun != begun:  # `begin` came meanwhile and has seen a busy card
                self._set(busy=True)
                continue
            for bell in self._bells:
                _ring(bell)

    def _pulse(self) -> None:
        page = self._page
        while not self._stopped.wait(PULSE_SECONDS):
            page[words.MEMORY] = self._device.memory()
            page[words.PULSE] = monotonic_ns()


def _ring(bell: socket.socket) -> None:
    """Wake a waiting job. It can neither block this one nor make it fail.

    An eventfd could: O_NONBLOCK belongs to what both processes share, so the other one may clear
    it, fill the counter, and have the next write wait for ever.
    """
    with suppress(OSError):  # full, so it has much to read already; or gone
        bell.send(b"i", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
