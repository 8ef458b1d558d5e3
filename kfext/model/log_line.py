"""A line of a container's log."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line: its text, and the time at which the container runtime received it.

    `at`: in epoch seconds. `stamp`: as written, to distinguish lines of the same second.
    """

    at: float
    text: str
    stamp: str = ""
