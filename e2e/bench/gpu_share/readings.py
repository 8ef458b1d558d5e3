"""What is taken from what the jobs have written: rates, latencies, digests of losses. All pure."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

EVERY = 20
"""Steps from one digest of losses to the next."""
_DIGITS = 12
_ROUNDING = 1e-6


def rates(ends: Sequence[float], began: float, ended: float) -> list[float]:
    """Return the steps a second in each whole second from `began` to `ended`.

    A step counts in the seconds in which it ran, to the part to which it did.
    """
    edges = [began + second for second in range(int(ended - began + _ROUNDING) + 1)]
    made = np.interp(edges, ends, np.arange(len(ends), dtype=float))
    return [float(later - earlier) for earlier, later in pairwise(made)]


def work(trace: Iterable[str]) -> list[tuple[float, float]]:
    """Return from when to when the card had work of a job, in order, from the lines of its gate.

    What was begun at one `pass` is done at the `done` that the next one waits for.
    """
    words = [line.split() for line in trace]
    passed = [int(at) / 1e9 for word, at in words if word == "pass"]
    done = [int(at) / 1e9 for word, at in words if word == "done"]
    found: list[tuple[float, float]] = []
    for begin, end in zip(passed, done[1:], strict=False):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def latencies(came: Sequence[float], spans: Sequence[tuple[float, float]]) -> list[float]:
    """Return how long the card had work of low after each time that high came to it."""
    begins = [begin for begin, _ in spans]
    found = []
    for at in came:
        place = bisect_right(begins, at) - 1
        found.append(max(spans[place][1] - at, 0.0) if place >= 0 else 0.0)
    return found


def digests(losses: Sequence[str]) -> dict[str, str]:
    """Return a digest of the first losses, by how many they are: for every `EVERY` of them."""
    found, digest = {}, hashlib.sha256()
    for count, loss in enumerate(losses, start=1):
        digest.update(f"{loss}\n".encode())
        if count % EVERY == 0:
            found[str(count)] = digest.hexdigest()[:_DIGITS]
    return found
