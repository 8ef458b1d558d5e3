"""How the hook waits: its clock, and a wait that polls when it expects the end.

A thread that blocks until an event of CUDA may wake milliseconds late. A wait that polls shortly
before the expected end wakes within a tenth of a millisecond, and sleeps most of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, sleep

from .words import NS


class Clock:
    """The clock of this machine; a test has its own."""

    def now(self) -> int:
        """Return the nanoseconds of CLOCK_MONOTONIC."""
        return monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds, without holding Python's lock."""
        sleep(seconds)


CLOCK = Clock()
EARLY_SECONDS = 0.0003
"""How long before the expected end the polls begin: more than a sleep oversleeps."""
_NAP_SECONDS = 0.00002
"""The pause between two polls; Linux makes about 70 us of it."""
_GLANCE_SECONDS = 0.005
"""The longest sleep without a poll: what an estimate that is too long costs at most."""
_POLLED_SECONDS = 0.002
"""How long polls may go on: after that the estimate says nothing."""


def approach(reached: Callable[[], bool], expected: int, clock: Clock) -> bool:
    """Wait until shortly before an expected end; return whether `reached` was true before.

    `expected`: in nanoseconds of the clock.
    """
    while not reached():
        left = (expected - clock.now()) / NS - EARLY_SECONDS
        if left <= 0:
            return False
        clock.sleep(min(left, _GLANCE_SECONDS))
    return True


def polled(reached: Callable[[], bool], expected: int, clock: Clock) -> bool:
    """Wait until `reached` returns true; return whether it has, or this took too many polls.

    `expected`: when that will probably be, see `approach`.
    """
    if approach(reached, expected, clock):
        return True
    last = clock.now() + int(_POLLED_SECONDS * NS)
    while not reached():
        if clock.now() >= last:
            return False
        clock.sleep(_NAP_SECONDS)
    return True
