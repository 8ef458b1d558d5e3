"""Threads that the program does not see, since a program may join all threads that it sees."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from threading import Event


class HiddenThread:
    """A thread of the hook that runs a function and does not keep the process from ending."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._ended = Event()
        self._number = 0
        _thread.start_new_thread(self._run, ())

    def join(self, seconds: float) -> None:
        """Wait for its end, for some time at most. Called in the thread itself, return at once."""
        if self._number != _thread.get_ident():
            self._ended.wait(seconds)

    def _run(self) -> None:
        self._number = _thread.get_ident()
        try:
            self._act()
        finally:
            self._ended.set()
