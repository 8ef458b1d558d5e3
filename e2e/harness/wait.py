"""Waits for a state, with a generous deadline; on failure, the error describes what went wrong."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
"""The default deadline, generous enough for a busy machine."""
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.05, 0.2, 1.2
"""Seconds between two checks, at first and at most, and the factor from pause to pause."""


class TooLateError(AssertionError):
    """The awaited state was not reached in time."""


def until(
    condition: Callable[[], T | None],
    *,
    what: str,
    account: Callable[[], str] = lambda: "",
    seconds: float = PATIENCE_SECONDS,
) -> T:
    """Call `condition` until its result is true, and return the result.

    `what`: the awaited state, for the message of the TooLateError that a timeout raises. `account`:
    returns more text for this message.
    """
    deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while True:
        if result := condition():
            return result
        if time.monotonic() > deadline:
            raise TooLateError(f"waited {seconds:.0f} s in vain until {what}\n{account()}")
        time.sleep(pause)
        pause = min(_GROWTH * pause, _LONGEST_PAUSE)
