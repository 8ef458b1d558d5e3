"""Scale: how many workers a job has and may have, and how far growth pays.

A job returns to its requested size. It gets more while another worker saves more time than a
change costs. A step takes a / n + b + c * n with n workers: work that is divided among them, work
that is not, and what each worker adds for all others. No term is negative.
Sources: the speed functions and the marginal gain of Optimus (Peng et al., EuroSys 2018); the price
of a restart, and the bound of twice the largest size seen, of Pollux (Qiao et al., OSDI 2021).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kfext import names
from kfext.core.elastic import SCALE_NAME, fewest_workers, opted, with_workers, workers_of
from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob
from kfext.state.running.policy import Condition, Parameter, Policy
from kfext.state.running.proposal import RESTORES, Proposal, Rank, Workers

SCALED = Condition(
    names.SCALED,
    "Rescale",
    names.REASON_SCALE_REFUSED,
    frozenset(
        {
            *(names.REASON_AS_ASKED, names.REASON_SHRUNK, names.REASON_GROWN),
            *(names.REASON_RESCALING, names.REASON_AWAITS_CHECKPOINT, names.REASON_NO_CHECKPOINT),
            *(names.REASON_WOULD_SCALE, names.REASON_SCALE_REFUSED),
            *(names.REASON_STANDS_DOWN, names.REASON_RESTS),
        }
    ),
)
"""Whether a job has another number of workers than its user asked for."""
_DAY = 86400.0
SCALE = Policy(
    name=SCALE_NAME,
    effect="changes the number of workers of running jobs: makes room for a job that waits, and "
    "uses room that no job waits for",
    condition=SCALED,
    max_mode=opted,
    evidence="| 9 jobs: mean elapsed time against kfext without scaling |",
    parameters={
        "acrossNamespaces": Parameter(
            1.0,
            0.0,
            1.0,
            "`0`: a job neither gives workers for a job of another namespace nor gets room from "
            "it; it has to be `1` for both jobs",
            type="integer",
        ),
        "ceiling": Parameter(
            0.97,
            0.0,
            1.0,
            "the part of the cluster's CPU that may be requested for a job to grow beyond what its "
            "user asked for",
        ),
        "idle": Parameter(
            10.0, 1.0, _DAY, "seconds without a start or a change of size before a job grows"
        ),
        "rest": Parameter(60.0, 1.0, _DAY, "seconds between two changes of the size of one job"),
        "wait": Parameter(
            5.0,
            1.0,
            _DAY,
            "seconds that a job waits for room before others give workers for it; the value of the "
            "waiting job counts",
        ),
    },
    without_act="With observe and off, jobs get back the number of workers that their users asked "
    "for.",
)


def workers_proposal(job: str, change: Workers, reason: str) -> Proposal:
    """Return the proposal of another number of workers."""
    rank = Rank.RESTORE if change.cause in RESTORES else Rank.SCALE
    return Proposal(
        policy=SCALE.name,
        job=job,
        change=change,
        reason=reason,
        rank=rank if change.rescue is None else Rank.RESCUE,
    )


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of workers of a job.

    `now`: how many it has.
    `least`, `most`: the fewest and the most that it may have.
    `requested`: its requested size.
    """

    now: int
    least: int
    most: int
    requested: int


def sizes_of(job: TrainingJob, allowed: Range, *, requested: int) -> Sizes:
    """Return the sizes of a job; `requested`: its requested size, 0 for its present size.

    The minimum follows from the requested size, so a grown job keeps its minimum. The
    minimum is the full size if the framework cannot run with fewer workers. The setting also counts
    Master and Chief, which are never scaled.
    """
    now = workers_of(job)
    requested = requested or now
    masters = job.training_pods - now
    limit = max(requested, allowed.maximum - masters)
    if job.scaling.most > 0:
        limit = min(limit, job.scaling.most)
    least = min(fewest_workers(with_workers(job, requested), allowed), limit)
    return Sizes(now=now, least=least, most=limit, requested=requested)


_Floats: TypeAlias = npt.NDArray[np.float64]
_MOST_SIZES = 16
"""The largest sizes are fitted, this many."""
_SLOWEST, _FASTEST = 1e-9, 1e9
"""Steps a second outside these bounds are ignored."""
_TERMS = 3
_EQUAL = 1e-9
"""Errors of two fits count as equal within this difference."""


@dataclass(frozen=True, slots=True)
class Speed:
    """A fitted speed: the seconds of each term of a step, as in the head of this file."""

    divided: float
    constant: float
    added: float

    def at(self, workers: int) -> float:
        """Return the steps a second with a number of workers, 0.0 without workers."""
        if workers < 1:
            return 0.0
        return 1.0 / (self.divided / workers + self.constant + self.added * workers)


def fitted(speeds: Mapping[int, float]) -> Speed | None:
    """Return the speed that fits best; `speeds`: steps a second by number of workers.

    A step must be the same amount of work at every size, as where workers divide a fixed global
    batch. Where the batch grows with the workers, steps get no faster and growth never seems to
    pay: count examples there, not steps.

    Return None with fewer than two sizes, which show nothing about another worker. Errors are
    relative, so fast and slow steps count alike. Two sizes have several equally good fits; the fit
    that expects least of twice the largest size is taken.
    """
    measurements = sorted(
        (size, speed)
        for size, speed in speeds.items()
        if size > 0 and _SLOWEST <= speed <= _FASTEST
    )[-_MOST_SIZES:]
    if len(measurements) < 2:
        return None
    sizes, measured = np.array(measurements, dtype=float).T
    fits = list(_fits(sizes, measured))
    best = min(error for error, _ in fits)
    twice = 2 * measurements[-1][0]
    return min(
        (speed for error, speed in fits if error <= best + _EQUAL),
        key=lambda speed: speed.at(twice),
    )


def _fits(sizes: _Floats, measured: _Floats) -> Iterator[tuple[float, Speed]]:
    """Yield the least-squares fit, with its error, of each choice of terms without a negative term.

    The best of these is the non-negative least-squares fit.
    """
    scale = np.array([1.0 / sizes[-1], 1.0, sizes[-1]])
    # Each row is divided by the measured time, so every step should take 1.
    terms = np.stack([1.0 / sizes, np.ones_like(sizes), sizes], axis=1) / scale
    rows, ones = terms * measured[:, None], np.ones_like(sizes)
    for count in range(1, min(_TERMS, len(sizes)) + 1):
        for chosen in map(list, combinations(range(_TERMS), count)):
            solution = np.linalg.lstsq(rows[:, chosen], ones, rcond=None)[0]
            if (solution < 0).any() or not solution.any():
                continue
            values = np.zeros(_TERMS)
            values[chosen] = solution
            error = float(np.mean((rows @ values - ones) ** 2))
            yield error, Speed(*(float(value) for value in values / scale))


SEEN_FACTOR = 2
"""A job may have this many times its largest size seen: beyond that its speed is a guess."""
HORIZON = 600.0
"""Seconds that a job without a known end is assumed to run, when growth is weighed."""
TRIAL_FACTOR = 10
"""A trial of one more worker needs this many pauses of remaining time."""
LEAST_GAIN = 0.02
"""A job grows to a measured size only if it was faster than the next smaller by this share."""


def best_size(
    sizes: Sizes,
    *,
    speeds: Mapping[int, float],
    largest: int,
    room: int,
    pause: float,
    left: float | None,
) -> int:
    """Return the number of workers to grow to, or the present number if growth does not pay.

    A job returns to its requested size if there is room, unless it ends before that makes up
    for the pause. Beyond that, each worker must save more time than a pause costs. A job that has
    run at its present size alone may try one more worker.

    `speeds`: steps a second by number of workers, as measured (see `fitted`).
    `largest`: the largest number of workers that was seen running.
    `room`: the most workers that there is room for.
    `pause`: the seconds that one change of size costs the job.
    `left`: the seconds to its end at its present speed, or None.
    """
    bound = min(room, sizes.most, SEEN_FACTOR * largest)
    if bound <= sizes.now or sizes.now < 1:
        return sizes.now
    speed = fitted(speeds)
    start = sizes.now
    if sizes.now < sizes.requested:
        start = min(sizes.requested, bound)
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
    """Return the seconds that a job saves until its end if it returns to its requested size.

    The speedup is at most proportional to the workers. That much is assumed without measurements,
    and if the job was slower with more workers: its steps may be larger, and its user asked for it.
    """
    ratio = speed.at(then) / speed.at(now) if speed else 0.0
    if ratio <= 1.0:
        ratio = then / now
    return left * (1.0 - 1.0 / ratio)


def _before_useless(speeds: Mapping[int, float], *, start: int, bound: int) -> int:
    """Return the most workers up to `bound` before a size that was measured to gain nothing."""
    for smaller, size in pairwise(sorted(speeds)):
        if start < size <= bound and speeds[size] < (1.0 + LEAST_GAIN) * speeds[smaller]:
            return size - 1
    return bound


def _while_it_pays(speed: Speed, *, start: int, bound: int, steps: float, pause: float) -> int:
    """Return the size beyond which the next worker saves no more time than a pause costs.

    `steps`: the steps that remain, or the steps within the horizon.
    """
    size = start
    while size < bound and steps / speed.at(size) - steps / speed.at(size + 1) > pause:
        size += 1
    return size
