"""How a hook learns a model: when it has watched enough steps, and where its gate should stand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import ref

_PATIENCE_STEPS = 50
"""After this many steps without a watched module the job counts as training another model; the
number doubles each time."""


class Learning:
    """Counts the steps of a job; calls `settle` after enough, and `learn` to watch another model.

    `steps`: the number of optimizer steps to watch. `most`: the number of passes that suffice
    without these steps, since a job that only infers makes no steps.
    """

    def __init__(
        self, *, steps: int, most: int, learn: Callable[[], None], settle: Callable[[], None]
    ) -> None:
        self._wanted = steps
        self._most = most
        self._learn = learn
        self._settle = settle
        self._patience = _PATIENCE_STEPS
        self._passed = False
        self._missed = 0
        self._models: dict[int, ref[Any]] = {}
        self.steps = 0
        self.passes = 0
        self.settled = False

    def record_parameter(self, parameter: Any) -> None:
        """Record a trained parameter: an unknown parameter means another model.

        The watched modules do not show another model: models may share some, such as a loss.
        """
        known = self._models.get(id(parameter))
        if known is None or known() is not parameter:
            self._models = {
                key: reference for key, reference in self._models.items() if reference() is not None
            }
            self._models[id(parameter)] = ref(parameter)
            if self.settled:
                self._begin_again()

    def record_pass(self) -> None:
        """Record that the job has reached a watched place."""
        self._passed = True
        if not self.settled:
            self.passes += 1
            if self.passes == self._most:
                self._end()

    def record_step(self) -> None:
        """Record a step of an optimizer.

        If no watched place was passed since the last step, the step is of another optimizer in the
        same iteration and does not count; after many such steps the job trains another model.
        """
        if not self._passed:
            self._missed += 1
            if self.settled and self._missed >= self._patience:
                self._patience *= 2
                self._begin_again()
            return
        self._passed, self._missed = False, 0
        if not self.settled:
            self.steps += 1
            if self.steps == self._wanted:
                self._end()

    def _end(self) -> None:
        self.settled = True
        self._settle()

    def _begin_again(self) -> None:
        self._missed = self.steps = self.passes = 0
        self.settled = False
        self._learn()


Place = Hashable
"""A place in a step where the gate could stand, such as before a module."""


_SLACK = 1.05
"""The length of a micro-step relative to its first work, if that is longer than a micro-step should
be: a gate before work of almost no length would leave the card idle after it."""


def choose(steps: Sequence[Sequence[tuple[Place, float]]], longest: float) -> frozenset[Place]:
    """Return the places to use, so that the work between two of them takes at most `longest` s.

    `steps`: for each step the places in order, each with the seconds that the card worked from it
    to the next place. If the work after a place takes longer than `longest`, that place and the
    next place with more than a little work are used. The first place of each step is used.
    """
    usual = typical(steps)
    places: set[Place] = set()
    for step in steps:
        since, limit = 0.0, -1.0
        for place, _ in step:
            lap = usual[place]
            if since + lap > limit:
                places.add(place)
                since, limit = 0.0, max(longest, _SLACK * lap)
            since += lap
    return frozenset(places)


def typical(steps: Sequence[Sequence[tuple[Place, float]]]) -> dict[Place, float]:
    """Return the median of the seconds from each place to the next."""
    laps: dict[Place, list[float]] = {}
    for step in steps:
        for place, seconds in step:
            laps.setdefault(place, []).append(seconds)
    return {place: median(times) for place, times in laps.items()}


def micro_steps(
    steps: Sequence[Sequence[tuple[Place, float]]], used: frozenset[Place]
) -> dict[Place, float]:
    """Return the longest time that the card works from each used place to the next, in seconds.

    The first place of each step must be used.
    """
    usual = typical(steps)
    longest: dict[Place, float] = {}
    for step in steps:
        began, since = step[0][0], 0.0
        for place, _ in step:
            if place in used:
                began, since = place, 0.0
            since += usual[place]
            longest[began] = max(longest.get(began, 0.0), since)
    return longest


def median(values: Sequence[float]) -> float:
    """Return the median. `statistics` is not imported, since a program may have its own."""
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[~middle]) / 2
