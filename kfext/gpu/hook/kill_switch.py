"""The kill switch of a process: the first error of any hook turns all hooks off for good."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .start import report


def _is_from_signal_handler(error: Exception) -> bool:
    """Return whether an error comes from the program's signal handler.

    Python calls a handler between any two instructions, with the interrupted frame as an argument.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        for value in tuple(trace.tb_frame.f_locals.values()):
            items = value if isinstance(value, tuple) else (value,)
            if any(item is interrupted for item in items):
                return True
    return False


def _never() -> bool:
    return False


class KillSwitch:
    """Guards the functions that kfext hooks into a job: they must never make the job fail."""

    def __init__(self) -> None:
        self._on = True
        self._cleanups: list[Callable[[], None]] = []

    def guard(
        self, act: Callable[..., None], skips: Callable[[], bool] = _never
    ) -> Callable[..., None]:
        """Return a function that calls `act`, but raises nothing and returns None.

        It does nothing while `skips` returns true, and after the first error of any guarded
        function.
        """

        def _act(*args: Any) -> None:
            # `skips` is first: if it returns true, torch.compile traces no further.
            if skips() or not self._on:
                return
            try:
                act(*args)
            except Exception as error:
                if _is_from_signal_handler(error):
                    raise
                self.turn_off(error)

        return _act

    def on_turn_off(self, act: Callable[[], None]) -> None:
        """Register a function to call when the hooks are turned off."""
        self._cleanups.append(act)

    def turn_off(self, error: Exception) -> None:
        """Turn all hooks off, and report why, once."""
        if not self._on:
            return
        self._on = False
        for act in self._cleanups:
            with suppress(Exception):
                act()
        report(f"this process no longer gives way on its GPU: {error!r}")
