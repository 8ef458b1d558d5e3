"""Threads that the program does not see among its own: one that joins all would wait for ever."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from threading import Event


class HiddenThread:
    """A thread of the hook's, which runs a function and does not keep the process from ending."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._ended = Event()
        self._number = 0
        _thread.start_new_thread(self._run, ())

    def join(self, seconds: float) -> None:
        """Wait until it has ended, for some time at most; not in itself."""
        if self._number != _thread.get_ident():
            self._ended.wait(seconds)

    def _run(self) -> None:
        self._number = _thread.get_ident()
        try:
            self._act()
        finally:
            self._ended.set()
