"""How long to wait before trying again."""

import random


class Backoff:
    """Exponentially growing waits, each drawn between half and all of its bound.

    The jitter keeps the replicas of kfext from hitting a recovering API server in step.
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
        bound = min(self._longest, self._first * 2.0 ** min(self._failures, 60))
        self._failures += 1
        return self._rng.uniform(bound / 2, bound)

    def reset(self) -> None:
        """Begin anew: something worked."""
        self._failures = 0
