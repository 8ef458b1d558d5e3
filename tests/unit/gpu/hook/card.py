"""A card; a test decides when its work ends."""

import threading
from dataclasses import dataclass, field

from kfext.gpu.hook.device import TimedMarker


@dataclass(slots=True)
class FakeMarker:
    """A point in the work; `at` is the time on the card, in seconds."""

    at: float = 0.0
    reached: threading.Event = field(default_factory=threading.Event)
    waits: int = 0

    def wait(self) -> None:
        self.waits += 1
        assert self.reached.wait(10)

    def seconds_since(self, earlier: TimedMarker) -> float:
        assert isinstance(earlier, FakeMarker)
        return self.at - earlier.at


@dataclass(slots=True)
class FakeCard:
    """Gives out markers; the markers of an `instant` card are reached at once.

    `uses`: whether the process has begun to use it; `captures`: records instead of running.
    """

    instant: bool = False
    uses: bool = True
    captures: bool = False
    clock: float = 0.0
    asked: int = 0
    given: list[FakeMarker] = field(default_factory=list)

    def ready(self) -> bool:
        return self.uses

    def capturing(self) -> bool:
        return self.captures

    def mark(self) -> FakeMarker:
        marker = FakeMarker(self.clock)
        if self.instant:
            marker.reached.set()
        self.given.append(marker)
        return marker

    def memory(self) -> int:
        self.asked += 1
        return 1 << 20
