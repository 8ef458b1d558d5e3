"""A fake card and a fake clock; the test decides when work ends and how time passes."""

import threading
from dataclasses import dataclass, field

from kfext.gpu.hook.device import TimedMarker
from kfext.gpu.hook.waits import Clock
from kfext.gpu.hook.words import NS


class ManualClock(Clock):
    """A clock that advances only in sleeps."""

    def __init__(self) -> None:
        self.time = 10**15
        self.slept: list[float] = []

    def now(self) -> int:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.time += int(seconds * NS)


@dataclass(slots=True)
class FakeMarker:
    """A marker that is reached once `ended` is set; `at`: its time on the card, in seconds.

    `waits`: the number of waits for it. `expected`: the end that the last wait expected.
    """

    at: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)
    waits: int = 0
    expected: int | None = None

    def wait(self, expected: int | None = None) -> None:
        self.waits, self.expected = self.waits + 1, expected
        assert self.ended.wait(10)

    def reached(self) -> bool:
        return self.ended.is_set()

    def seconds_since(self, earlier: TimedMarker) -> float:
        assert isinstance(earlier, FakeMarker)
        return self.at - earlier.at


@dataclass(slots=True)
class FakeCard:
    """A card that runs nothing. `instant`: whether its markers are reached at once.

    `in_use`: whether the process has started to use it. `captures`: whether it captures a graph.
    `clock`: the time on the card, in seconds. `memory_reads`: how often its memory was read.
    """

    instant: bool = False
    in_use: bool = True
    captures: bool = False
    clock: float = 0.0
    memory_reads: int = 0
    markers: list[FakeMarker] = field(default_factory=list)

    def ready(self) -> bool:
        return self.in_use

    def capturing(self) -> bool:
        return self.captures

    def mark(self) -> FakeMarker:
        marker = FakeMarker(self.clock)
        if self.instant:
            marker.ended.set()
        self.markers.append(marker)
        return marker

    def memory(self) -> int:
        self.memory_reads += 1
        return 1 << 20
