"""Scale: how many workers a job has and may have, and to how many it grows while that pays.

A job gets back what its user asked for, and more while another worker saves more time than a
change costs. The time of a step is a / n + b + c * n with n workers: work that is divided among
them, work that is not, and what each worker adds for all others. No term is negative.
Sources: the speed functions and the marginal gain of Optimus (Peng et al., EuroSys 2018); the price
of a restart, and the bound of twice the largest size seen, of Pollux (Qiao et al., OSDI 2021).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kfext.core.companion.policy import Policy
from kfext.core.elastic import fewest_workers, with_workers, workers_of
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob
from kfext.model.kinds.job_kind import WORKER
from kfext.model.policy import Mode


def _opted(settings: Settings) -> Mode:
    return Mode.OFF if settings.elastic is None else Mode.ACT


SCALE = Policy(
    name="scale",
    opted=_opted,
    parameters={
        "wait": 30.0,
        "idle": 60.0,
        "rest": 60.0,
        "ceiling": 0.97,
        "acrossNamespaces": 1.0,
    },
)
"""`wait`: seconds that a job waits for room before others are shrunk. `idle`: seconds without a
change of any size before a job grows. `rest`: seconds between two changes of one job. `ceiling`:
the share of the cluster's CPU up to which jobs grow beyond what they asked for. `acrossNamespaces`:
0 if a job is never shrunk for a job of another namespace."""


def starts_anew(job: TrainingJob) -> bool:
    """Return whether a job must be stopped at a checkpoint and resumed to change its size.

    It must unless its workers come and go, or if a worker that ends with an error fails the job
    (restartPolicy Never and ExitCode): torchrun ends with an error when its pod is deleted.
    """
    fails = any(group.fails for group in job.groups if group.type == WORKER)
    return fails or not job.scaling.elastic


def interrupts(job: TrainingJob) -> bool:
    """Return whether a change of size loses what a job has done since its last checkpoint."""
    return job.scaling.restarts_all or starts_anew(job)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of workers of a job.

    `now`: how many it has.
    `least`, `most`: the fewest and the most that it may have.
    `asked`: how many its user asked for.
    """

    now: int
    least: int
    most: int
    asked: int

    @property
    def fulfilment(self) -> float:
        """How much the job has of what it asked for beyond its least; above 1 if it was grown.

        Source: Lin et al., DRAGON, CLOSER 2019, whose code measures against the most instead: a job
        that may grow far is then poor, and never gives.
        """
        return self.fulfilment_with(self.now)

    @property
    def surplus(self) -> int:
        """How many workers it can give."""
        return max(0, self.now - self.least)

    def fulfilment_with(self, workers: int) -> float:
        """Return the fulfilment that the job would have with so many workers."""
        if self.asked <= self.least:
            return 1.0 + workers - self.asked
        return (workers - self.least) / (self.asked - self.least)


def sizes_of(job: TrainingJob, allowed: Range, *, asked: int) -> Sizes:
    """Return the sizes of a job; `asked`: what its user asked for, 0 if that is what it has.

    The least is that of the job as its user asked for it, so a job that has grown may shrink again
    as far as before; it is all of them if the framework cannot run with fewer. The setting counts
    Master and Chief, which are never scaled, as well as workers.
    """
    now = workers_of(job)
    asked = asked or now
    masters = job.training_pods - now
    most = max(asked, allowed.maximum - masters)
    if job.scaling.most > 0:
        most = min(most, job.scaling.most)
    least = min(fewest_workers(with_workers(job, asked), allowed), most)
    return Sizes(now=now, least=least, most=most, asked=asked)


_Floats: TypeAlias = npt.NDArray[np.float64]
_MOST_SIZES = 16
"""Sizes that are fitted to, the largest ones."""
_SLOWEST, _FASTEST = 1e-9, 1e9
"""Steps a second that are believed."""
_TERMS = 3
_EQUAL = 1e-9
"""By how much the errors of two fits may differ without one being the better."""


@dataclass(frozen=True, slots=True)
class Speed:
    """A fitted speed: seconds that each term of a step takes, as in the head of this file."""

    divided: float
    constant: float
    added: float

    def at(self, workers: int) -> float:
        """Return the steps a second with so many workers, 0.0 without any."""
        if workers < 1:
            return 0.0
        return 1.0 / (self.divided / workers + self.constant + self.added * workers)


def fitted(speeds: Mapping[int, float]) -> Speed | None:
    """Return the speed that fits best; `speeds`: steps a second by number of workers.

    A step has to be the same amount of work with every number of workers, as where workers divide a
    fixed global batch among them. Where the batch grows with the workers steps get no faster, so
    that growth is never seen to pay: count examples there, not steps.

    None with fewer than two sizes, which show nothing of what another worker would gain. Errors are
    relative, as fast steps are measured as well as slow ones. Of fits that are equally good, as two
    sizes have, it is the one that expects the least of growing to twice the largest size.
    """
    known = sorted(
        (size, speed)
        for size, speed in speeds.items()
        if size > 0 and _SLOWEST <= speed <= _FASTEST
    )[-_MOST_SIZES:]
    if len(known) < 2:
        return None
    sizes, measured = np.array(known, dtype=float).T
    fits = list(_fits(sizes, measured))
    best = min(error for error, _ in fits)
    twice = 2 * known[-1][0]
    return min(
        (speed for error, speed in fits if error <= best + _EQUAL),
        key=lambda speed: speed.at(twice),
    )


def _fits(sizes: _Floats, measured: _Floats) -> Iterator[tuple[float, Speed]]:
    """Yield the least-squares fit of each choice of terms that has no negative one, with its error.

    The best of these is the non-negative least-squares fit.
    """
    scale = np.array([1.0 / sizes[-1], 1.0, sizes[-1]])
    # Each row is divided by the measured time, so that all steps are to take 1.
    terms = np.stack([1.0 / sizes, np.ones_like(sizes), sizes], axis=1) / scale
    rows, ones = terms * measured[:, None], np.ones_like(sizes)
    for count in range(1, min(_TERMS, len(sizes)) + 1):
        for chosen in map(list, combinations(range(_TERMS), count)):
            found = np.linalg.lstsq(rows[:, chosen], ones, rcond=None)[0]
            if (found < 0).any() or not found.any():
                continue
            values = np.zeros(_TERMS)
            values[chosen] = found
            error = float(np.mean((rows @ values - ones) ** 2))
            yield error, Speed(*(float(value) for value in values / scale))


SEEN_FACTOR = 2
"""How many times the largest size seen a job may have: beyond that its speed is a guess."""
HORIZON = 600.0
"""Seconds that a job whose end is unknown is taken to run still, when growth is weighed."""
TRIAL_FACTOR = 10
"""How many pauses a job must still run for a trial of one worker more."""
LEAST_GAIN = 0.02
"""The share by which a size must have been faster than the next smaller one to be grown to."""


def best_size(
    sizes: Sizes,
    *,
    speeds: Mapping[int, float],
    largest: int,
    room: int,
    pause: float,
    left: float | None,
) -> int:
    """Return the number of workers to grow to, the present one if growing does not pay.

    What the user asked for is given back if there is room, unless the job ends before that makes up
    for the pause. Beyond it each worker must save more time than a pause costs. A job that has run
    with its present size alone may try one worker more.

    `speeds`: steps a second by number of workers, as measured (see `fitted`).
    `largest`: the largest number of workers that was seen running.
    `room`: the most workers that there is room for.
    `pause`: the seconds that one change of size costs the job.
    `left`: the seconds to its end at its present speed, None if unknown.
    """
    bound = min(room, sizes.most, SEEN_FACTOR * largest)
    if bound <= sizes.now or sizes.now < 1:
        return sizes.now
    speed = fitted(speeds)
    start = sizes.now
    if sizes.now < sizes.asked:
        start = min(sizes.asked, bound)
        if left is not None and _saved(sizes.now, start, speed, left=left) <= pause:
            return sizes.now
    bound = _before_useless(speeds, start=start, bound=bound)
    if sizes.now not in speeds or bound <= start:
        return start  # what the present size gains has to be known before the next is weighed
    if speed is None:
        tries = start == sizes.now and (left is None or left > TRIAL_FACTOR * pause)
        return start + 1 if tries else start
    steps = (HORIZON if left is None else left) * speed.at(sizes.now)
    return _while_it_pays(speed, start=start, bound=bound, steps=steps, pause=pause)


def _saved(now: int, then: int, speed: Speed | None, *, left: float) -> float:
    """Return the seconds that a job saves until its end if it gets back what it asked for.

    At most it is as much faster as it has more workers. So much is expected if nothing is known, or
    if it was slower with more: its steps may be larger then, and its user asked for them.
    """
    ratio = speed.at(then) / speed.at(now) if speed else 0.0
    if ratio <= 1.0:
        ratio = then / now
    return left * (1.0 - 1.0 / ratio)


def _before_useless(speeds: Mapping[int, float], *, start: int, bound: int) -> int:
    """Return the most workers up to `bound` before a size that was seen to gain nothing."""
    for smaller, size in pairwise(sorted(speeds)):
        if start < size <= bound and speeds[size] < (1.0 + LEAST_GAIN) * speeds[smaller]:
            return size - 1
    return bound


def _while_it_pays(speed: Speed, *, start: int, bound: int, steps: float, pause: float) -> int:
    """Return the size beyond which the next worker saves no more time than a pause costs.

    `steps`: the steps that remain, or that are looked at.
    """
    size = start
    while size < bound and steps / speed.at(size) - steps / speed.at(size + 1) > pause:
        size += 1
    return size
