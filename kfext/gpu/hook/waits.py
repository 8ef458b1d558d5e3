"""The waits of the hook: its clock, and a wait that polls when it expects the end.

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
        """Wait for some seconds, without holding the GIL."""
        sleep(seconds)


CLOCK = Clock()
EARLY_SECONDS = 0.0003
"""The polls start this long before the expected end: more than a sleep oversleeps."""
_NAP_SECONDS = 0.00002
"""The pause between two polls; on Linux it lasts about 70 us."""
_GLANCE_SECONDS = 0.005
"""The longest sleep without a poll, so the most that an estimate can cost that is too long."""
_POLLED_SECONDS = 0.002
"""How long a wait polls at most; after that the estimate is useless."""


def approach(reached: Callable[[], bool], expected: int, clock: Clock) -> bool:
    """Wait until `reached` returns true, or shortly before an expected end; return whether it did.

    `expected`: the probable end, in nanoseconds of the clock.
    """
    while not reached():
        remaining = (expected - clock.now()) / NS - EARLY_SECONDS
        if remaining <= 0:
            return False
        clock.sleep(min(remaining, _GLANCE_SECONDS))
    return True


def poll(reached: Callable[[], bool], expected: int, clock: Clock) -> bool:
    """Wait until `reached` returns true; return False after too many polls.

    `expected`: see `approach`.
    """
    if approach(reached, expected, clock):
        return True
    last = clock.now() + int(_POLLED_SECONDS * NS)
    while not reached():
        if clock.now() >= last:
            return False
        clock.sleep(_NAP_SECONDS)
    return True
