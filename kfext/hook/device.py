"""The port to the card: what the hook needs to know of the work that was given to it."""

from __future__ import annotations

from typing import Any, Protocol


class Marker(Protocol):
    """A point in the work that a thread has given to the card."""

    def wait(self) -> None:
        """Return once all work before it has ended, without holding Python's lock meanwhile."""

    def seconds_since(self, earlier: Marker) -> float:
        """Return the time on the card between two markers, both of which have been reached."""


class Device(Protocol):
    """A card, or what plays one."""

    def ready(self) -> bool:
        """Return whether the process has begun to use the card. Never begins to itself."""

    def mark(self) -> Marker:
        """Return a marker after all that the calling thread has given to the card."""

    def memory(self) -> int:
        """Return the bytes of the card that the process has reserved."""


class CudaMarker:
    """An event of CUDA. The wait blocks, so that it uses no CPU."""

    def __init__(self, torch: Any) -> None:
        self._event = torch.cuda.Event(enable_timing=True, blocking=True)
        self._event.record()

    def wait(self) -> None:
        """Return once the event has happened."""
        self._event.synchronize()

    def seconds_since(self, earlier: Marker) -> float:
        """Return the seconds between two events."""
        assert isinstance(earlier, CudaMarker)
        return float(earlier._event.elapsed_time(self._event)) / 1000


class Cuda:
    """The card that PyTorch uses: the current device of the process."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def ready(self) -> bool:
        """Return whether PyTorch has initialised CUDA."""
        return bool(self._torch.cuda.is_initialized())

    def mark(self) -> Marker:
        """Return an event on the current stream of the calling thread."""
        return CudaMarker(self._torch)

    def memory(self) -> int:
        """Return what the caching allocator holds."""
        return int(self._torch.cuda.memory_reserved())
