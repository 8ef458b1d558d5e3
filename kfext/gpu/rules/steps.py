"""How long the steps of a job take, by the number of steps on its page.

The sum of the normalised speeds of all jobs on a card tells whether sharing gains anything. A
normalised speed is the speed beside others as a part of the speed alone. Below 1, the jobs would
end sooner one after the other (W. Xiao et al., "Gandiva", OSDI 2018).
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

_SPAN = 1.0
"""Steps are averaged over this many seconds: a gate lets several pass, and then none for a
while."""
_TIMES = 30
_ENOUGH = 3
_OTHERWISE = 3.0
"""A step of this many median steps is an evaluation, or has saved a checkpoint."""
_STEPS_TO_OTHERS = 20
"""At most one step in this many, rounded up, counts as such; more are slow because of others."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of a job's page: the steps made until `at`, and when the last step was made."""

    at: float
    steps: int
    stepped: float


class Stretch:
    """Times steps that are all made under the same conditions; the first step is left out.

    Each time is the mean over the steps in at least `span` seconds. `began`: when the stretch
    began.
    """

    def __init__(self, first: Reading, *, span: float = 0.0) -> None:
        self.began = first.at
        self._span = span
        self._steps = first.steps
        self._stepped: float | None = None

    def note(self, reading: Reading) -> float | None:
        """Return the time of a step, or None without enough steps so far."""
        made = reading.steps - self._steps
        before = self._stepped
        if made <= 0:
            if made < 0:  # the steps are of another process, or the process lies
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
    """Return the mean of some times, without the times in which the job also did something else."""
    ordered = sorted(times)
    longest = _OTHERWISE * median(ordered)
    fewest = len(ordered) - math.ceil(len(ordered) / _STEPS_TO_OTHERS)
    return fmean(time for place, time in enumerate(ordered) if place < fewest or time <= longest)


class Throughput:
    """Times the steps of one job, alone on its card and beside others."""

    def __init__(self) -> None:
        self._stretch: Stretch | None = None
        self._alone = False
        self._times: dict[bool, deque[float]] = {
            alone: deque(maxlen=_TIMES) for alone in (True, False)
        }

    def note(self, reading: Reading, *, alone: bool) -> None:
        """Record how far the job is; `alone`: it had the card to itself since the last call."""
        if self._stretch is None or alone is not self._alone:
            self._stretch, self._alone = Stretch(reading, span=_SPAN), alone
            return
        took = self._stretch.note(reading)
        if took is not None:
            self._times[alone].append(took)

    def restart(self) -> None:
        """Forget where the job was: it was held back, or its processes have changed."""
        self._stretch = None

    @property
    def normalised(self) -> float | None:
        """Its speed beside others, as a part of its speed alone; None before both are measured."""
        alone, beside = self._times[True], self._times[False]
        if min(len(alone), len(beside)) < _ENOUGH:
            return None
        return typical(alone) / typical(beside)
