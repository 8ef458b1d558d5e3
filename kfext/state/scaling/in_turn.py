"""A few of many in each look, so that the cost of one is bounded and everybody's turn comes."""

from collections.abc import Sequence
from typing import TypeVar

_One = TypeVar("_One")


class InTurn:
    """Goes through sequences, `most` at a time; the next one may differ from the last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = 0

    def some(self, among: Sequence[_One]) -> Sequence[_One]:
        """Return those whose turn it is, from the first again after the last."""
        start = self._next if self._next < len(among) else 0
        self._next = start + self._most
        return among[start : self._next]
