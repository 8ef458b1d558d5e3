"""Compares arms on the same worlds: the time of each job under an arm and under the reference arm.

An arm is judged on the seeds on which it and the reference arm both end all jobs; the other seeds
are counted. The row of the reference arm compares it with itself under other luck, which shows the
effect of luck alone.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from kfext.core.queue.expected import Accuracy
from kfext.sim.arms import GANG, Arm
from kfext.sim.cluster import Cluster, Ended, World
from kfext.sim.objects import LiveJob
from kfext.sim.worlds import Draw
from kfext.state.forecast.forecaster import Score

LATE = 1.10
"""A job that took longer by more than this is late."""
_LUCKS = 1000
"""The number of luck seeds for each seed of a world."""
_RESAMPLES = 2000
PARTS = 100
"""The units in which the progress of a run is reported; a whole run has this many."""


@dataclass(frozen=True, slots=True)
class Run:
    """A world under an arm. Times are in seconds.

    `jobs`: the jobs that ended in time; `alone`: the time of each job in an empty world.
    `changes`: the size changes of jobs that had begun. `starts`: the scores of forecast starts.
    """

    jobs: Mapping[str, Ended]
    alone: Mapping[str, float]
    makespan: float
    utilisation: float
    changes: int
    starts: Sequence[Score] = ()

    @property
    def ended(self) -> bool:
        """Whether all jobs ended in time."""
        return len(self.jobs) == len(self.alone)

    @property
    def mean(self) -> float:
        """The mean time of a job."""
        return fmean(job.elapsed for job in self.jobs.values())


def run(
    arm: Arm, world: World, *, luck: int, on_parts: Callable[[int], object] = lambda _: None
) -> Run:
    """Run a world under an arm."""
    cluster = arm(world, luck)
    changes, done = _Changes(cluster), _ProgressReport(cluster, on_parts)
    cluster.run()
    done.end()
    return Run(
        jobs=cluster.ended(),
        alone={spec.name: spec.alone for spec in world.jobs},
        makespan=cluster.clock.now,
        utilisation=cluster.utilisation,
        changes=changes.count,
        starts=cluster.starts,
    )


class _Changes:
    """Counts the changes of the number of workers of jobs that had begun."""

    def __init__(self, cluster: Cluster) -> None:
        self.count = 0
        self._sizes: dict[str, int] = {}
        cluster.api.on_job.append(self._observe)

    def _observe(self, live: LiveJob) -> None:
        before = self._sizes.get(live.uid, live.workers)
        self._sizes[live.uid] = live.workers
        self.count += before != live.workers and live.training.began is not None


class _ProgressReport:
    """Reports how many PARTS of a run are done, by the jobs that have ended."""

    def __init__(self, cluster: Cluster, on_parts: Callable[[int], object]) -> None:
        self._ended: set[str] = set()
        self._reported = 0
        self._jobs = len(cluster.world.jobs)
        self._on_parts = on_parts
        cluster.api.on_job.append(self._observe)

    def _observe(self, live: LiveJob) -> None:
        if live.job.finished:
            self._ended.add(live.uid)
        self._report(min(PARTS, len(self._ended) * PARTS // self._jobs))

    def end(self) -> None:
        """Report the remaining parts."""
        self._report(PARTS)

    def _report(self, parts: int) -> None:
        if parts > self._reported:
            self._on_parts(parts - self._reported)
            self._reported = parts


@dataclass(frozen=True, slots=True)
class Row:
    """An arm over all seeds.

    `unended`: the number of seeds on which it did not end all jobs; the other values are for the
        seeds on which both arms did, and NaN if there is none.
    `mean`: the mean time of a job in seconds. `against`: its relative change from the reference
        arm; `low`, `high`: the 95 % interval of that change over the seeds, NaN for one seed.
        `by_seed`: the mean of the changes of each seed, so that seeds with long jobs weigh no more.
    `stretch`, `stretch_p99`: the mean and 99th percentile of the time of a job / its time alone.
    `late`: the fraction of the jobs that took over 10 % longer than under the reference arm.
        `ratio_p99`, `worst`: the 99th percentile and the maximum of the ratio of both times.
    `makespan`: in seconds. `utilisation`: the used fraction of all cores. `changes`: size changes
        per job.
    `start_error`, `start_p90`: the median and 90th percentile of the error of a forecast start /
        the wait. `start_within`: the fraction of starts within the forecast range. `start_width`:
        the mean width of the ranges / the mean wait.
    """

    arm: str
    seeds: int
    unended: int
    mean: float
    against: float
    low: float
    high: float
    by_seed: float
    stretch: float
    stretch_p99: float
    late: float
    ratio_p99: float
    worst: float
    makespan: float
    utilisation: float
    changes: float
    start_error: float
    start_p90: float
    start_within: float
    start_width: float


RunOf = Callable[[str, int, int], Run]
"""Returns a run: the arguments are the name of an arm, the seed of a world, and a luck seed."""


def run_of(
    arms: Mapping[str, Arm], draw: Draw, *, on_parts: Callable[[int], object] = lambda _: None
) -> RunOf:
    """Return a RunOf for these arms. `on_parts`: called with the number of PARTS newly done."""
    return lambda name, seed, luck: run(arms[name], draw(seed), luck=luck, on_parts=on_parts)


def luck_of(seed: int) -> int:
    """Return the luck seed for a world's seed; the next number is for the reference arm's row."""
    return seed * _LUCKS


def compare(
    arms: Iterable[str], seeds: Iterable[int], runs: RunOf, *, against: str = GANG
) -> list[Row]:
    """Return a row for each arm; the arm `against` is compared with itself under other luck."""
    by_arm: dict[str, list[Run]] = {name: [] for name in arms}
    reference: list[Run] = []
    for seed in seeds:
        luck = luck_of(seed)
        reference.append(runs(against, seed, luck))
        for name, collected in by_arm.items():
            collected.append(runs(name, seed, luck + (name == against)))
    return [row(name, collected, reference) for name, collected in by_arm.items()]


def row(arm: str, runs: Sequence[Run], reference: Sequence[Run]) -> Row:
    """Return the row of an arm, compared with the reference arm's runs on the same worlds."""
    pairs = [
        (run, other)
        for run, other in zip(runs, reference, strict=True)
        if run.ended and other.ended
    ]
    stretches = [
        job.elapsed / run.alone[name] for run, _ in pairs for name, job in run.jobs.items()
    ]
    ratios = [
        job.elapsed / other.jobs[name].elapsed
        for run, other in pairs
        for name, job in run.jobs.items()
    ]
    starts = [score for run in runs for score in run.starts]
    errors = [score.error / score.wait for score in starts]
    mean = _mean(run.mean for run, _ in pairs)
    means = [(run.mean, other.mean) for run, other in pairs]
    low, high = _interval(means)
    return Row(
        arm,
        seeds=len(runs),
        unended=sum(not run.ended for run in runs),
        mean=mean,
        against=_change(means),
        low=low,
        high=high,
        by_seed=_mean(mean / other for mean, other in means) - 1,
        stretch=_mean(stretches),
        stretch_p99=quantile(stretches, 0.99),
        late=_mean(ratio > LATE for ratio in ratios),
        ratio_p99=quantile(ratios, 0.99),
        worst=quantile(ratios, 1.0),
        makespan=_mean(run.makespan for run, _ in pairs),
        utilisation=_mean(run.utilisation for run, _ in pairs),
        changes=_mean(run.changes / len(run.jobs) for run, _ in pairs),
        start_error=quantile(errors, 0.5),
        start_p90=quantile(errors, 0.9),
        start_within=_mean(score.was is Accuracy.WITHIN for score in starts),
        start_width=_mean(score.width for score in starts) / _mean(score.wait for score in starts),
    )


def _change(means: Sequence[tuple[float, float]]) -> float:
    return _mean(mean for mean, _ in means) / _mean(other for _, other in means) - 1


def _interval(means: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the 95 % interval of the change, by bootstrapping over seeds."""
    if len(means) < 2:
        return math.nan, math.nan
    random = Random(0)
    drawn = [_change(random.choices(means, k=len(means))) for _ in range(_RESAMPLES)]
    return quantile(drawn, 0.025), quantile(drawn, 0.975)


def quantile(values: Sequence[float], fraction: float) -> float:
    """Return the quantile at `fraction` by the nearest-rank method; NaN if there are no values."""
    ordered = sorted(values)
    rank = math.ceil(round(fraction * len(ordered), 9))  # 0.07 * 100 is slightly above 7
    return ordered[max(rank, 1) - 1] if ordered else math.nan


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else math.nan
