"""The bells of a pod: what wakes those of its processes that wait at their gates."""

import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

_MOST = 4
"""The first processes have one each. More share them: a ring wakes one of those that wait then, and
the others look again by themselves soon after. Each bell is one more for the job of high priority
to ring."""


class Bells:
    """The bells of one pod, of whose processes each hears one. There is none before the first."""

    def __init__(self) -> None:
        self._bells: list[tuple[socket.socket, socket.socket]] = []
        self._bell_of: dict[int, int] = {}

    @property
    def rung(self) -> Sequence[socket.socket]:
        """What others ring."""
        return [rung for _, rung in self._bells]

    def heard_by(self, process: int) -> socket.socket:
        """Return what a process hears, by its number."""
        if process not in self._bell_of:
            self._bell_of[process] = self._next()
        return self._bells[self._bell_of[process]][0]

    def leave(self, process: int) -> None:
        """Take in that a process has gone."""
        self._bell_of.pop(process, None)

    def ring(self) -> None:
        """Wake all processes."""
        for bell in self.rung:
            with suppress(OSError):  # full, so they have much to read already
                bell.send(b"t", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Forget all bells."""
        for one in chain(*self._bells):
            one.close()

    def _next(self) -> int:
        """Return which bell the next process has: a free one, a new one, or that of the fewest."""
        count = Counter(self._bell_of.values())
        least = min(range(len(self._bells)), key=lambda one: (count[one], one), default=0)
        if len(self._bells) == _MOST or (self._bells and not count[least]):
            return least
        self._bells.append(_bell())
        return len(self._bells) - 1


def _bell() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a bell: that which hears it cannot ring, nor send anything."""
    heard, rung = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.shutdown(socket.SHUT_WR)
    rung.shutdown(socket.SHUT_RD)
    return heard, rung
