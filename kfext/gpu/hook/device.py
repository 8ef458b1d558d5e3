"""The port to the card: the hook's view of the work on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

from .waits import CLOCK, poll

_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_ONLY_CARD = 0
"""A sharer has one card, so that card is the first in each of its processes."""
_MAX_EVENTS = 64
"""Events that are retained for later markers: as many as a beacon may wait for."""


class Marker(Protocol):
    """A point in the work that a thread has submitted to the card."""

    def wait(self, expected: int | None = None) -> None:
        """Wait until all work before the marker has ended, without holding the GIL.

        `expected`: the probable end, in nanoseconds of CLOCK_MONOTONIC. With it the wait ends
        sooner after the work, and uses more CPU.
        """


class TimedMarker(Marker, Protocol):
    """A marker with a known time on the card once it is reached."""

    def reached(self) -> bool:
        """Return whether all work before the marker has ended."""

    def seconds_since(self, earlier: TimedMarker) -> float:
        """Return the seconds on the card between two markers that have been reached."""


class Device(Protocol):
    """A card, or a simulated card."""

    def ready(self) -> bool:
        """Return whether the process has started to use the card; never starts it itself."""

    def capturing(self) -> bool:
        """Return whether the calling thread's work is recorded for a CUDA graph instead of run."""

    def mark(self) -> TimedMarker:
        """Return a marker after all work that the calling thread has submitted to the card."""

    def memory(self) -> int:
        """Return the bytes of the card that the process has reserved, from any thread."""


class CudaMarker:
    """An event of CUDA; `release` is called with it when the marker is no longer needed."""

    def __init__(self, event: Any, release: Callable[[Any], None]) -> None:
        self._event = event
        self._release = release
        self._event.record()

    def __del__(self) -> None:
        self._release(self._event)

    def reached(self) -> bool:
        """Return whether the event is complete."""
        return bool(_without_captures(self._event.query))

    def wait(self, expected: int | None = None) -> None:
        """Poll when the event is expected; else block, which uses no CPU."""
        if expected is None or not poll(self.reached, expected, CLOCK):
            _without_captures(self._event.synchronize)

    def seconds_since(self, earlier: TimedMarker) -> float:
        """Return the seconds between two events."""
        assert isinstance(earlier, CudaMarker)
        return float(earlier._event.elapsed_time(self._event)) / 1000


def _without_captures(act: Callable[[], Any]) -> Any:
    """Call a function of an event, without an effect on the captures of other threads.

    By default such a call in any thread makes the capture of a CUDA graph fail in all other threads
    (cudaStreamCaptureModeGlobal). So this thread limits the mode to its own captures during the
    call, as PyTorch's watchdog of NCCL does (pytorch/pytorch#148594).
    """
    ctypes = import_module("ctypes")
    exchange = _driver().cuThreadExchangeStreamCaptureMode
    mode = ctypes.c_int(_THREAD_LOCAL)
    exchange(ctypes.byref(mode))
    try:
        return act()
    finally:
        exchange(ctypes.byref(mode))  # restore the earlier mode


class Cuda:
    """The card that PyTorch uses."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._events: deque[Any] = deque(maxlen=_MAX_EVENTS)

    def ready(self) -> bool:
        """Return whether PyTorch has initialised CUDA in this process."""
        return bool(self._torch.cuda.is_initialized())

    def capturing(self) -> bool:
        """Return whether the current stream of the calling thread captures a CUDA graph."""
        return self.ready() and bool(self._torch.cuda.is_current_stream_capturing())

    def mark(self) -> TimedMarker:
        """Return an event on the current stream of the calling thread."""
        try:
            event = self._events.pop()
        except IndexError:
            event = self._torch.cuda.Event(enable_timing=True, blocking=True)
        return CudaMarker(event, self._events.append)

    def memory(self) -> int:
        """Return the bytes that the caching allocator holds, without a call of CUDA."""
        return int(self._torch.cuda.memory_reserved(_ONLY_CARD))


@lru_cache(maxsize=None)
def _driver() -> Any:
    """Return CUDA's driver, which PyTorch has loaded."""
    return import_module("ctypes").CDLL("libcuda.so.1")
