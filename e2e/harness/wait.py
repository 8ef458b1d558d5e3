"""Waiting for a state, never for a time: a generous deadline, and an account when it passes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
"""How long anything may take on a busy machine before the test says that it does not happen."""
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGER = 0.05, 0.2, 1.2
"""Seconds between two looks, each pause so many times the pause before: a look costs CPU too."""


class TooLateError(AssertionError):
    """What was waited for did not come about."""


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
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise TooLateError(f"waited {seconds:.0f} s in vain until {what}\n{account()}")
        time.sleep(pause)
        pause = min(_LONGER * pause, _LONGEST_PAUSE)
