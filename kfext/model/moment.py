"""A moment on both clocks that decisions need."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment, in seconds on each clock.

    `wall` counts since the epoch and is what objects in the cluster state. `monotonic` counts from
    an arbitrary start and measures how long something has lasted: nobody sets it back.
    """

    wall: float
    monotonic: float
