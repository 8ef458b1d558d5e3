"""The sign of life of a process on its page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns

from . import words

PULSE_SECONDS = 0.2
"""Pause between two signs of life. A reader takes the process for dead after five pauses."""


def show_life(page: memoryview, memory: Callable[[], int]) -> None:
    """Write to the process's page that it runs, and how many bytes of the card it has reserved."""
    page[words.PULSE] = monotonic_ns()
    with suppress(Exception):  # a process with unknown memory must not look dead
        page[words.MEMORY] = memory()
