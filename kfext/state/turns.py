"""Turns for what there is little of: everyone is served, and a look stays short."""

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class Turns:
    """The uids of jobs that wait: namespaces take turns, and within each the first comes first."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, namespace: str, uid: str) -> None:
        """Put a job behind the others of its namespace."""
        self._waiting.setdefault(namespace, deque()).append(uid)

    def add_first(self, namespace: str, uid: str) -> None:
        """Put a job before the others of its namespace."""
        self._waiting.setdefault(namespace, deque()).appendleft(uid)

    def next(self) -> str:
        """Remove and return the first job of the namespace whose turn it is."""
        namespace, uids = next(iter(self._waiting.items()))
        del self._waiting[namespace]
        uid = uids.popleft()
        if uids:
            self._waiting[namespace] = uids  # behind all other namespaces
        return uid


class InTurn:
    """Goes through sequences, `most` at a time; the next sequence may differ from the last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = 0

    def some(self, among: Sequence[_Item]) -> Sequence[_Item]:
        """Return the items whose turn it is, from the first again after the last."""
        start = self._next if self._next < len(among) else 0
        self._next = start + self._most
        return among[start : self._next]
