"""The policy `scale`: the sizes that a job may have, and how far it pays to scale up.

A job returns to its requested size. It scales up further while one more worker saves more time
than a change costs. A step with n workers takes a / n + b + c * n seconds: the divided work, the
constant work, and the overhead that each worker adds for all others. No term is negative.
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
from kfext.core.elastic import SCALE_NAME, fewest_workers, highest_mode, with_workers, workers_of
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
"""Whether the number of workers of a job differs from its requested size."""
_DAY = 86400.0
SCALE = Policy(
    name=SCALE_NAME,
    effect="changes the number of workers of running jobs: frees capacity for a waiting job, "
    "and uses capacity that no job waits for",
    condition=SCALED,
    max_mode=highest_mode,
    evidence="| 9 jobs: mean elapsed time against kfext without scaling |",
    parameters={
        "acrossNamespaces": Parameter(
            1.0,
            0.0,
            1.0,
            "with `1` for both namespaces, jobs scale down for jobs of other namespaces",
            type="integer",
        ),
        "ceiling": Parameter(
            0.97,
            0.0,
            1.0,
            "the fraction of the cluster's CPU that may be requested when a job grows beyond its "
            "requested size",
        ),
        "idle": Parameter(
            10.0, 1.0, _DAY, "seconds without a start or a change of size before a job grows"
        ),
        "rest": Parameter(60.0, 1.0, _DAY, "seconds between two changes of the size of one job"),
        "wait": Parameter(
            5.0,
            1.0,
            _DAY,
            "seconds that a job waits for capacity before others scale down for it; taken from the "
            "policy of the waiting job",
        ),
    },
    without_act="With observe and off, jobs return to the number of workers that their users "
    "requested.",
)


def workers_proposal(job: str, change: Workers, reason: str) -> Proposal:
    """Return the proposal of a new number of workers; `job`: the uid of the job."""
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

    `now`: the present number. `least`, `most`: the bounds. `requested`: the requested size.
    """

    now: int
    least: int
    most: int
    requested: int


def sizes_of(job: TrainingJob, allowed: Range, *, requested: int) -> Sizes:
    """Return the sizes of a job.

    The minimum follows from the requested size, so a scale-up does not change it. It is the
    requested size if the framework cannot run with fewer workers.
    `allowed`: the range of training pods in `kfext.dev/elastic`, with Master and Chief, which are
    never scaled. `requested`: the requested size; 0 means the present size.
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
_MAX_SIZES = 16
"""Only this many of the largest sizes are fitted."""
_SLOWEST, _FASTEST = 1e-9, 1e9
"""Speeds outside these bounds, in steps a second, are ignored."""
_TERMS = 3
_EQUAL = 1e-9
"""Mean squared errors of fits count as equal up to this difference."""


@dataclass(frozen=True, slots=True)
class Speed:
    """A fitted speed: the terms a, b and c of the formula in the module docstring, in seconds."""

    divided: float
    constant: float
    added: float

    def at(self, workers: int) -> float:
        """Return the steps a second with a number of workers, at least one; otherwise 0.0."""
        if workers < 1:
            return 0.0
        return 1.0 / (self.divided / workers + self.constant + self.added * workers)


def fit_speed(speeds: Mapping[int, float]) -> Speed | None:
    """Return the speed that fits best; `speeds`: steps a second by number of workers.

    A step must be the same amount of work at every size, as when workers divide a fixed global
    batch. If the batch grows with the workers, steps get no faster and growth never seems to pay:
    such jobs should count examples, not steps.

    With fewer than two measured sizes return None: they do not show what one more worker would
    gain. Errors are relative, so fast and slow steps have equal weight. Two sizes have several
    equally good fits; the fit with the lowest speed at twice the largest size is chosen.
    """
    measurements = sorted(
        (size, speed)
        for size, speed in speeds.items()
        if size > 0 and _SLOWEST <= speed <= _FASTEST
    )[-_MAX_SIZES:]
    if len(measurements) < 2:
        return None
    sizes, measured = np.array(measurements, dtype=float).T
    fits = list(_candidate_fits(sizes, measured))
    best = min(error for error, _ in fits)
    twice = 2 * measurements[-1][0]
    return min(
        (speed for error, speed in fits if error <= best + _EQUAL),
        key=lambda speed: speed.at(twice),
    )


def _candidate_fits(sizes: _Floats, measured: _Floats) -> Iterator[tuple[float, Speed]]:
    """Yield, for each subset of the terms, the error and the least-squares fit.

    Fits with a negative term are left out, so the best of the others is the non-negative fit.
    """
    scale = np.array([1.0 / sizes[-1], 1.0, sizes[-1]])
    # Each row is divided by the measured seconds of its step, so every step should take 1.
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
"""A job has at most this multiple of its largest observed size: beyond, speed is a guess."""
HORIZON = 600.0
"""The remaining time that is assumed for a job without a known end, in seconds."""
TRIAL_FACTOR = 10
"""One more worker is only tried if the remaining time is more than this many times the cost."""
MIN_GAIN = 0.02
"""A job scales up only to a measured size that was this fraction faster than the next smaller."""


def best_size(
    sizes: Sizes,
    *,
    speeds: Mapping[int, float],
    largest: int,
    fitting: int,
    pause: float,
    remaining: float | None,
) -> int:
    """Return the number of workers to scale up to, or the present number if none pays.

    A job returns to its requested size if that fits, unless it ends before the gain exceeds the
    cost. Beyond that, each worker must save more time than a change costs. A job that was only
    measured at its present size may try one more worker.

    `speeds`: the measured steps a second by number of workers (see `fit_speed`).
    `largest`: the largest number of workers that was observed running.
    `fitting`: the largest number of workers that fits.
    `pause`: the cost of a change of size, in seconds.
    `remaining`: the seconds to its end at its present speed; None means unknown.
    """
    bound = min(fitting, sizes.most, SEEN_FACTOR * largest)
    if bound <= sizes.now or sizes.now < 1:
        return sizes.now
    speed = fit_speed(speeds)
    start = sizes.now
    if sizes.now < sizes.requested:
        start = min(sizes.requested, bound)
        if remaining is not None and _saved(sizes.now, start, speed, remaining=remaining) <= pause:
            return sizes.now
    bound = _before_useless(speeds, start=start, bound=bound)
    if sizes.now not in speeds or bound <= start:
        return start  # the speed at the present size must be known before a larger size
    if speed is None:
        tries = start == sizes.now and (remaining is None or remaining > TRIAL_FACTOR * pause)
        return start + 1 if tries else start
    steps = (HORIZON if remaining is None else remaining) * speed.at(sizes.now)
    return _while_it_pays(speed, start=start, bound=bound, steps=steps, pause=pause)


def _saved(now: int, then: int, speed: Speed | None, *, remaining: float) -> float:
    """Return the seconds that a job saves until its end if it returns to its requested size.

    The speedup is at most proportional to the workers. This is assumed without measurements, and
    also if the job was slower with more workers: its steps may be larger, as its user wanted.
    """
    ratio = speed.at(then) / speed.at(now) if speed else 0.0
    if ratio <= 1.0:
        ratio = then / now
    return remaining * (1.0 - 1.0 / ratio)


def _before_useless(speeds: Mapping[int, float], *, start: int, bound: int) -> int:
    """Return the largest size up to `bound` below the first measured size without a gain."""
    for smaller, size in pairwise(sorted(speeds)):
        if start < size <= bound and speeds[size] < (1.0 + MIN_GAIN) * speeds[smaller]:
            return size - 1
    return bound


def _while_it_pays(speed: Speed, *, start: int, bound: int, steps: float, pause: float) -> int:
    """Return the first size at which one more worker saves no more time than a change costs.

    `steps`: the remaining steps, or the steps in HORIZON. `pause`: the cost in seconds.
    """
    size = start
    while size < bound and steps / speed.at(size) - steps / speed.at(size + 1) > pause:
        size += 1
    return size
