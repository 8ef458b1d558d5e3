"""The back-off after repeated failures."""

_MAX_DOUBLINGS = 60
"""More doublings would exceed any bound, and at last the range of a float."""


def exponential_backoff(failures: int, *, first: float, longest: float) -> float:
    """Return the seconds to wait: `first`, doubled by each further failure, at most `longest`."""
    return min(first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), longest)
