"""How long to wait after repeated failures."""

_MOST_DOUBLINGS = 60
"""More would exceed any bound, and in the end what a float can hold."""


def exponential_backoff(failures: int, *, first: float, longest: float) -> float:
    """Return `first` doubled for each failure but the first, at most `longest`; in seconds."""
    return min(first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest)
