"""The one switch of all hooks in a process: their first error turns them off for good."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .stderr import report


def _is_of_a_signal(error: Exception) -> bool:
    """Return whether a program's handler of a signal has raised an error, wherever that was.

    Python calls it between any two instructions, with the frame that it interrupts.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        for value in tuple(trace.tb_frame.f_locals.values()):
            among = value if isinstance(value, tuple) else (value,)
            if any(one is interrupted for one in among):
                return True
    return False


def _never() -> bool:
    return False


class Switch:
    """Guards what a training calls: the training must not fail because of a hook."""

    def __init__(self) -> None:
        self._on = True
        self._last_acts: list[Callable[[], None]] = []

    def guard(
        self, act: Callable[..., None], rests: Callable[[], bool] = _never
    ) -> Callable[..., None]:
        """Return a function that does what `act` does, but raises nothing and returns None.

        It does nothing while `rests` returns true, nor after the first error of any guarded one.
        """

        def _act(*args: Any) -> None:
            # `rests` comes first: torch.compile looks no further when it answers.
            if rests() or not self._on:
                return
            try:
                act(*args)
            except Exception as error:
                if _is_of_a_signal(error):
                    raise
                self.turn_off(error)

        return _act

    def at_end(self, act: Callable[[], None]) -> None:
        """Have a function called when the hooks are turned off."""
        self._last_acts.append(act)

    def turn_off(self, error: Exception) -> None:
        """Have no hook act from now on, and report why, once."""
        if not self._on:
            return
        self._on = False
        for act in self._last_acts:
            with suppress(Exception):
                act()
        report(f"this process no longer gives way on its GPU: {error!r}")
