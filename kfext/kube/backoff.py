"""How long to wait before trying again."""

import random

from kfext.model.backoff import exponential_backoff


class Backoff:
    """Exponentially growing waits, each drawn at random between half its bound and the bound.

    The jitter keeps the replicas of kfext from calling a recovering API server at the same time.
    """

    def __init__(
        self, *, first: float = 0.5, longest: float = 30.0, rng: random.Random | None = None
    ) -> None:
        self._first = first
        self._longest = longest
        self._rng = rng or random.Random()
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait after one more failure."""
        self._failures += 1
        bound = exponential_backoff(self._failures, first=self._first, longest=self._longest)
        return self._rng.uniform(bound / 2, bound)

    def reset(self) -> None:
        """Start again with the shortest wait, after a success."""
        self._failures = 0
