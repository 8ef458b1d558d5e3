"""The port to the card: what the hook needs to know about the work on it."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_ONLY_CARD = 0
"""A sharer has one card, so that card is the first in each of its processes."""


class Marker(Protocol):
    """A point in the work that a thread has given to the card."""

    def wait(self) -> None:
        """Wait until all work before the marker has ended, without holding Python's lock."""


class TimedMarker(Marker, Protocol):
    """A marker with a known time on the card once it is reached."""

    def seconds_since(self, earlier: TimedMarker) -> float:
        """Return the seconds on the card between two markers that have been reached."""


class Device(Protocol):
    """A card, or a simulated card."""

    def ready(self) -> bool:
        """Return whether the process has begun to use the card; never begins that itself."""

    def capturing(self) -> bool:
        """Return whether the calling thread's work for the card is recorded instead of run."""

    def mark(self) -> TimedMarker:
        """Return a marker after all work that the calling thread has given to the card."""

    def memory(self) -> int:
        """Return the bytes of the card that the process has reserved, from any thread."""


class CudaMarker:
    """An event of CUDA. A wait for it blocks, so it uses no CPU."""

    def __init__(self, torch: Any) -> None:
        self._event = torch.cuda.Event(enable_timing=True, blocking=True)
        self._event.record()

    def wait(self) -> None:
        """Wait for the event.

        By default a wait in any thread makes the capture of a CUDA graph fail in all other threads
        (cudaStreamCaptureModeGlobal). So this thread switches to its own captures alone while it
        waits, as PyTorch's watchdog of NCCL does (pytorch/pytorch#148594).
        """
        ctypes = import_module("ctypes")
        exchange = _driver().cuThreadExchangeStreamCaptureMode
        mode = ctypes.c_int(_THREAD_LOCAL)
        exchange(ctypes.byref(mode))
        try:
            self._event.synchronize()
        finally:
            exchange(ctypes.byref(mode))  # restore the earlier mode

    def seconds_since(self, earlier: TimedMarker) -> float:
        """Return the seconds between two events."""
        assert isinstance(earlier, CudaMarker)
        return float(earlier._event.elapsed_time(self._event)) / 1000


class Cuda:
    """The card that PyTorch uses."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def ready(self) -> bool:
        """Return whether PyTorch has initialised CUDA in this process."""
        return bool(self._torch.cuda.is_initialized())

    def capturing(self) -> bool:
        """Return whether the current stream of the calling thread captures a CUDA graph."""
        return self.ready() and bool(self._torch.cuda.is_current_stream_capturing())

    def mark(self) -> TimedMarker:
        """Return an event on the current stream of the calling thread."""
        return CudaMarker(self._torch)

    def memory(self) -> int:
        """Return what the caching allocator holds, without a call of CUDA."""
        return int(self._torch.cuda.memory_reserved(_ONLY_CARD))


@lru_cache(maxsize=None)
def _driver() -> Any:
    """Return CUDA's driver, which PyTorch has loaded."""
    return import_module("ctypes").CDLL("libcuda.so.1")
