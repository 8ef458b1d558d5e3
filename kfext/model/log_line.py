"""A line of a container's log."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line: its text, and when the container runtime received it.

    `at`: in epoch seconds. `stamp`: as stated, to tell lines of the same second apart.
    """

    at: float
    text: str
    stamp: str = ""
