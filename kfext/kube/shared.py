"""A cache of what was decoded from JSON texts, bounded by the bytes of the texts.

A bound on their number would not bound the memory: a text can have 1.5 MiB, and what is decoded
from it can be larger still.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_BYTES = 4 * 2**20
"""Of all texts together. The spec of an ordinary pod has some hundred bytes here."""
LONGEST = 64 * 2**10
"""Bytes of a text that is cached; pods with a longer one are few, or they are an attack."""


class Shared(Generic[T]):
    """Decoded values by their texts; the oldest ones go first."""

    def __init__(self, *, most: int = MOST_BYTES, longest: int = LONGEST) -> None:
        self.bytes = 0
        self._most = most
        self._longest = longest
        self._known: dict[bytes, T] = {}

    def of(self, text: bytes, decode: Callable[[bytes], T]) -> T:
        """Return what `decode` makes of a text; equal texts share the result."""
        known = self._known.get(text)
        if known is not None:
            return known
        value = decode(text)
        if len(text) <= self._longest:
            self._known[text] = value
            self.bytes += len(text)
            while self.bytes > self._most:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self.bytes -= len(oldest)
        return value
