"""The bells of a pod: each wakes a process of the pod that waits at its gate."""

import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

_MOST = 4
"""Bells of one pod. Each of the first processes has a bell of its own, and later processes share
them: a ring wakes one of the waiting processes, and the others check again soon after. Each bell is
one more for the high-priority job to ring."""


class Bells:
    """The bells of one pod; each process hears one bell. The first process makes the first bell."""

    def __init__(self) -> None:
        self._bells: list[tuple[socket.socket, socket.socket]] = []
        self._bell_of: dict[int, int] = {}

    @property
    def rung(self) -> Sequence[socket.socket]:
        """The ends that other processes ring."""
        return [rung for _, rung in self._bells]

    def heard_by(self, process: int) -> socket.socket:
        """Return the end that a process hears, by the number of the process."""
        if process not in self._bell_of:
            self._bell_of[process] = self._next()
        return self._bells[self._bell_of[process]][0]

    def leave(self, process: int) -> None:
        """Forget a process that has gone."""
        self._bell_of.pop(process, None)

    def ring(self) -> None:
        """Wake all processes."""
        for bell in self.rung:
            with suppress(OSError):  # the bell is full, so the process has enough to read
                bell.send(b"t", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Close all bells."""
        for end in chain(*self._bells):
            end.close()

    def _next(self) -> int:
        """Return the bell of the next process: a free bell, a new one, or the least shared."""
        count = Counter(self._bell_of.values())
        quietest = min(range(len(self._bells)), key=lambda bell: (count[bell], bell), default=0)
        if len(self._bells) == _MOST or (self._bells and not count[quietest]):
            return quietest
        self._bells.append(_bell())
        return len(self._bells) - 1


def _bell() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a bell; the end that hears cannot send."""
    heard, rung = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.shutdown(socket.SHUT_WR)
    rung.shutdown(socket.SHUT_RD)
    return heard, rung
