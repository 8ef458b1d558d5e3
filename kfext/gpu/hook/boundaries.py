"""Where the gate stands in a step: at few places, with little work for the card between them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

Place = Hashable
"""A place in a step where the gate could stand, such as before a module."""


def choose(steps: Sequence[Sequence[tuple[Place, float]]], longest: float) -> frozenset[Place]:
    """Return the places to keep, so that the work between two of them takes at most `longest` s.

    `steps`: for each step the places in order, each with the seconds that the card worked from it
    to the next place. If the work after a place takes longer than `longest`, that place and the
    next place are kept. The first place of each step is kept.
    """
    usual = typical(steps)
    places: set[Place] = set()
    for step in steps:
        since = longest
        for place, _ in step:
            lap = usual[place]
            if since + lap > longest:
                places.add(place)
                since = 0.0
            since += lap
    return frozenset(places)


def typical(steps: Sequence[Sequence[tuple[Place, float]]]) -> dict[Place, float]:
    """Return the median of the seconds from each place to the next."""
    laps: dict[Place, list[float]] = {}
    for step in steps:
        for place, seconds in step:
            laps.setdefault(place, []).append(seconds)
    return {place: _median(times) for place, times in laps.items()}


def longest_between(
    steps: Sequence[Sequence[tuple[Place, float]]], kept: frozenset[Place]
) -> float:
    """Return the longest time that the card works between two kept places, in seconds."""
    usual, longest = typical(steps), 0.0
    for step in steps:
        since = 0.0
        for place, _ in step:
            since = usual[place] if place in kept else since + usual[place]
            longest = max(longest, since)
    return longest


def _median(values: list[float]) -> float:
    """Return the median. `statistics` is not imported, since a program may have its own."""
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[~middle]) / 2
