"""Waits for a state, never for a time, with a generous deadline and an account on failure."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
"""The default deadline, generous enough for a busy machine."""
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGER = 0.05, 0.2, 1.2
"""Seconds between two looks, first and at most, and the growth factor: a look costs CPU."""


class TooLateError(AssertionError):
    """The awaited state was not reached in time."""


def until(
    condition: Callable[[], T | None],
    *,
    what: str,
    account: Callable[[], str] = lambda: "",
    seconds: float = PATIENCE_SECONDS,
) -> T:
    """Return the first true answer of `condition`. Raises TooLateError with the account."""
    deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while True:
        if result := condition():
            return result
        if time.monotonic() > deadline:
            raise TooLateError(f"waited {seconds:.0f} s in vain until {what}\n{account()}")
        time.sleep(pause)
        pause = min(_LONGER * pause, _LONGEST_PAUSE)
