"""A line of a container's log."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line: its text, and when the container runtime took it in.

    `at` is in epoch seconds, `stamp` as stated: it tells lines apart that have the same second.
    """

    at: float
    text: str
    stamp: str = ""
