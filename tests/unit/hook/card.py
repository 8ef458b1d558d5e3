"""A card of which a test decides when its work ends."""

import threading
from dataclasses import dataclass, field

from kfext.hook.device import Marker


@dataclass(slots=True)
class FakeMarker:
    """A point in the work; `at` is the time on the card, in seconds."""

    at: float = 0.0
    reached: threading.Event = field(default_factory=threading.Event)
    waits: int = 0

    def wait(self) -> None:
        self.waits += 1
        assert self.reached.wait(10)

    def seconds_since(self, earlier: Marker) -> float:
        assert isinstance(earlier, FakeMarker)
        return self.at - earlier.at


@dataclass(slots=True)
class FakeCard:
    """Gives out markers; those of an `instant` card are reached at once."""

    instant: bool = False
    clock: float = 0.0
    given: list[FakeMarker] = field(default_factory=list)

    def ready(self) -> bool:
        return True

    def mark(self) -> FakeMarker:
        marker = FakeMarker(self.clock)
        if self.instant:
            marker.reached.set()
        self.given.append(marker)
        return marker

    def memory(self) -> int:
        return 1 << 20
