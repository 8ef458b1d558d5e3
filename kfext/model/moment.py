"""A moment on the two clocks that decisions need."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment, in seconds on each clock.

    `wall`: counts since the epoch, as times on objects in the cluster do. `monotonic`: counts from
    an arbitrary start, measures durations, and is never set back.
    """

    wall: float
    monotonic: float
