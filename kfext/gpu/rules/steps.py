"""How long the steps of a job take, from the number of steps on its page, read now and then.

The speed of each job of a card, as a part of that with the card to itself, summed up over all of
them tells whether sharing gains anything: below 1, the jobs would end sooner one after the other
(W. Xiao et al., "Gandiva", OSDI 2018).
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

_SPAN = 1.0
"""Seconds in which steps are averaged: a gate lets several pass, and then none for a while."""
_TIMES = 30
_ENOUGH = 3
_OTHERWISE = 3.0
"""A step that takes so many times the median one is an evaluation, or has saved a checkpoint."""
_STEPS_TO_OTHERS = 20
"""At most one step in so many, rounded up, is taken for one of those; more are slowed by others."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Of a job's page: how many steps it has made until `at`, and when it made the last of them."""

    at: float
    steps: int
    stepped: float


class Stretch:
    """Times steps that are all made under the same conditions; the first one is left out.

    Each time is the mean of the steps in `span` seconds or a little more. `began`: when it did.
    """

    def __init__(self, first: Reading, *, span: float = 0.0) -> None:
        self.began = first.at
        self._span = span
        self._steps = first.steps
        self._stepped: float | None = None

    def note(self, reading: Reading) -> float | None:
        """Return how long a step has taken, None if that is not known yet."""
        made = reading.steps - self._steps
        before = self._stepped
        if made <= 0:
            if made < 0:  # another process counts, or this one lies
                self._steps, self._stepped = reading.steps, None
            return None
        if before is None or reading.stepped < before:
            self._steps, self._stepped = reading.steps, reading.stepped
            return None
        lasted = reading.stepped - before
        if lasted <= 0 or lasted < self._span:
            return None
        self._steps, self._stepped = reading.steps, reading.stepped
        return lasted / made


def typical(times: Iterable[float]) -> float:
    """Return the mean of some times, without those in which the job did something else as well."""
    found = sorted(times)
    most = _OTHERWISE * median(found)
    fewest = len(found) - math.ceil(len(found) / _STEPS_TO_OTHERS)
    return fmean(one for place, one in enumerate(found) if place < fewest or one <= most)


class Throughput:
    """Times the steps of one job, alone on its card and beside others."""

    def __init__(self) -> None:
        self._stretch: Stretch | None = None
        self._alone = False
        self._times: dict[bool, deque[float]] = {
            alone: deque(maxlen=_TIMES) for alone in (True, False)
        }

    def note(self, reading: Reading, *, alone: bool) -> None:
        """Take in how far the job is; `alone`: since the last call it had the card to itself."""
        if self._stretch is None or alone is not self._alone:
            self._stretch, self._alone = Stretch(reading, span=_SPAN), alone
            return
        took = self._stretch.note(reading)
        if took is not None:
            self._times[alone].append(took)

    def restart(self) -> None:
        """Forget where the job was: it was held back, or has other processes."""
        self._stretch = None

    @property
    def normalised(self) -> float | None:
        """Its speed beside others, as a part of that alone; None where one was not measured."""
        alone, beside = self._times[True], self._times[False]
        if min(len(alone), len(beside)) < _ENOUGH:
            return None
        return typical(alone) / typical(beside)
