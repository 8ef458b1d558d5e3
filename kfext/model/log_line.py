"""A line of a container's log."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line: its text, and the time at which the container runtime received it.

    `at`: that time in epoch seconds. `stamp`: that time as in the log, which may be more precise.
    """

    at: float
    text: str
    stamp: str = ""
