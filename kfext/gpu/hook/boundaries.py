"""Where in a step the gate stands: few places, between which the card has little work."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

Place = Hashable
"""A place in a step where the gate could stand, such as before a module."""


def choose(steps: Sequence[Sequence[tuple[Place, float]]], longest: float) -> frozenset[Place]:
    """Return the places to keep, so that the work between two of them takes `longest` s at most.

    `steps`: of some steps, each place that was passed, in order, with the seconds that the card
    worked from it to the next. A place from which the card works longer than that is kept, and so
    is the one after it. The first of each step is kept.
    """
    usual = typical(steps)
    kept: set[Place] = set()
    for step in steps:
        since = longest
        for place, _ in step:
            lap = usual[place]
            if since + lap > longest:
                kept.add(place)
                since = 0.0
            since += lap
    return frozenset(kept)


def typical(steps: Sequence[Sequence[tuple[Place, float]]]) -> dict[Place, float]:
    """Return the median of the seconds from each place to the next."""
    laps: dict[Place, list[float]] = {}
    for step in steps:
        for place, seconds in step:
            laps.setdefault(place, []).append(seconds)
    return {place: _median(found) for place, found in laps.items()}


def longest_between(
    steps: Sequence[Sequence[tuple[Place, float]]], kept: frozenset[Place]
) -> float:
    """Return the longest time that the card works between two of the places kept, in seconds."""
    usual, longest = typical(steps), 0.0
    for step in steps:
        since = 0.0
        for place, _ in step:
            since = usual[place] if place in kept else since + usual[place]
            longest = max(longest, since)
    return longest


def _median(values: list[float]) -> float:
    """Return the median; `statistics` is not imported, as a program may have its own."""
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[~middle]) / 2
