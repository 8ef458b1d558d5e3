"""The sign of life of a process on its page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns

from . import words

PULSE_SECONDS = 0.2
"""Pause between two signs of life. After five of them a reader takes the process for dead."""


def show_life(page: memoryview, memory: Callable[[], int]) -> None:
    """Write to the process's page that it runs, and which bytes of the card it has reserved."""
    page[words.PULSE] = monotonic_ns()
    with suppress(Exception):  # what is not known of its memory must not make it look dead
        page[words.MEMORY] = memory()
