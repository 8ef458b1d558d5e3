"""Benchmark: false alarms of the rule for stalled jobs, and its delay after a hang.

Random jobs are sequences of silences between two lines of a log, with evaluations, saves, waits for
data and a first step. Their shapes follow public reports: a median of 10 s between lines, varying
by a factor of 3.7; an evaluation of a minute each half hour in 70 % of the series (40 % print a
progress bar); saves of 25 s (2 % take 3 or 10 times as long; half of the series announce them); and
a first step of a minute, at most 90 minutes. Each job hangs after a random line.

The arms `report` and `restart` are the rules as shipped, for the jobs of a series in order. `flat`
waits for 10 minutes, as in DLRover; `slowest` for 6 times the longest silence, 1.5 to 15 minutes,
as in PortOS.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from e2e.bench.model.seeds import SEEDS, over_seeds
from e2e.bench.report import table
from kfext.core.progress.stall import REPORT, RESTART, Habits, Rule, Start
from kfext.sim.compare import quantile

_JOBS = 1_000
"""The minimum number of jobs for each seed."""
_MAX_LINES = 60_000
_HOUR, _MINUTE = 3600.0, 60.0
Times = NDArray[np.float64]


class Kind(IntEnum):
    """The cause of a silence."""

    STEP = 0
    EVALUATION = 1
    SAVE = 2
    DATA = 3


@dataclass(frozen=True, slots=True)
class Series:
    """The properties that the jobs of a series share. Times are in seconds.

    `prints`: the time between two lines, with a relative `jitter`. `evaluates`, `saves`: the
    interval (infinity means never) and the duration. `varies`: the deviation of the durations of
    evaluations. `first`: the time to the first step. `waits`: waits for data per hour.
    """

    prints: float
    jitter: float
    evaluates: tuple[float, float]
    varies: float
    has_bar: bool
    saves: tuple[float, float]
    announces: bool
    first: float
    waits: float
    length: float


@dataclass(frozen=True, slots=True)
class Course:
    """A job: the time to its first step, its silences in order, and their causes."""

    series: Series
    first: float
    silences: Times
    kinds: NDArray[np.int64]

    @property
    def hours(self) -> float:
        return float(self.first + self.silences.sum()) / _HOUR


@dataclass(slots=True)
class Result:
    """The result of an arm for the jobs of a seed: hours, false alarms, and delays in seconds."""

    hours: float = 0.0
    alarms: int = 0
    delays: list[float] = field(default_factory=list)


def _lognormal(rng: np.random.Generator, median: float, spread: float) -> float:
    """Draw from a log-normal distribution with a median."""
    return float(median * np.exp(rng.normal(0.0, spread)))


def _series(rng: np.random.Generator) -> Series:
    evaluates, bar = rng.random() < 0.7, rng.random() < 0.4
    stored, announces = rng.random() < 0.85, rng.random() < 0.5
    return Series(
        prints=min(1800.0, max(1.0, _lognormal(rng, 10, 1.3))),
        jitter=float(rng.choice([0.05, 0.15, 0.3, 0.6], p=[0.5, 0.25, 0.15, 0.1])),
        evaluates=(
            _lognormal(rng, 1800, 0.8) if evaluates else np.inf,
            min(7200.0, _lognormal(rng, 60, 1.3)),
        ),
        varies=float(rng.choice([0.1, 0.5], p=[0.8, 0.2])),
        has_bar=bar,
        saves=(
            _lognormal(rng, 1800, 0.6) if stored else np.inf,
            min(1800.0, _lognormal(rng, 25, 1.2)),
        ),
        announces=announces,
        first=min(5400.0, _lognormal(rng, 60, 1.2)),
        waits=float(rng.exponential(0.15)),
        length=min(72.0, max(0.2, _lognormal(rng, 4, 1.0))) * _HOUR,
    )


def _events(
    rng: np.random.Generator, series: Series, length: float
) -> Iterator[tuple[float, float, Kind]]:
    """Yield the time, the length in seconds and the kind of each interruption of a job's steps."""
    for (every, usual), varies, kind in (
        (series.evaluates, series.varies, Kind.EVALUATION),
        (series.saves, 0.3, Kind.SAVE),
    ):
        at = every
        while at < length:
            seconds = _lognormal(rng, usual, varies)
            if kind is Kind.SAVE and rng.random() < 0.02:
                seconds *= float(rng.choice([3, 10]))
            yield at, seconds, kind
            at += every + seconds
    for _ in range(rng.poisson(series.waits * length / _HOUR)):
        yield rng.uniform(0, length), min(1200.0, _lognormal(rng, 20, 1.2)), Kind.DATA


def _course(rng: np.random.Generator, series: Series) -> Course:
    length = _lognormal(rng, series.length, 0.2)
    lines = int(min(length / series.prints, _MAX_LINES)) + 2
    silences = series.prints * np.exp(rng.normal(0.0, series.jitter, lines))
    begins = np.concatenate([[0.0], np.cumsum(silences)[:-1]])
    kinds = np.zeros(lines, dtype=np.int64)
    for at, seconds, kind in _events(rng, series, length):
        index = min(int(np.searchsorted(begins, at)), lines - 1)
        bar = kind is Kind.EVALUATION and series.has_bar
        silences[index] += min(seconds, 2 * series.prints) if bar else seconds
        kinds[index] = kind
    return Course(series, _lognormal(rng, series.first, 0.3), silences, kinds)


Judge = Callable[[Course, Habits], Callable[[int], float]]
"""Returns, for a job and what is known of its series, the limit of the silence after a line."""


def _longest(course: Course) -> Times:
    return np.maximum.accumulate(np.concatenate([[0.0], course.silences[:-1]]))


def _kfext_rule(rule: Rule) -> Judge:

    def judged(course: Course, known: Habits) -> Callable[[int], float]:
        before = _longest(course)
        begins = course.first + np.concatenate([[0.0], np.cumsum(course.silences)[:-1]])

        def limit(line: int) -> float:
            at, longest = float(begins[line]), float(before[line])
            start = Start(0.0, read=at, moved=at, stepped=course.first, longest=longest)
            saving = course.series.announces and course.kinds[line] == Kind.SAVE
            return start.limit(rule, known, saving=bool(saving))

        return limit

    return judged


def _slowest(course: Course, _known: Habits) -> Callable[[int], float]:
    before = _longest(course)
    return lambda line: float(min(900.0, max(90.0, 6 * before[line])))


def _first(rule: Rule, known: Habits) -> float:
    return Start(0.0, 0.0, 0.0, alive=True).limit(rule, known, saving=False)


ARMS: dict[str, tuple[Judge, Callable[[Habits], float], float]] = {
    "report": (_kfext_rule(REPORT), lambda known: _first(REPORT, known), REPORT.least),
    "restart": (_kfext_rule(RESTART), lambda known: _first(RESTART, known), RESTART.least),
    "flat": (lambda _course, _known: lambda _line: 600.0, lambda _known: 600.0, 600.0),
    "slowest": (_slowest, lambda _known: 900.0, 90.0),
}
"""By arm: its limits of silences, its limit of the first step, and the least of its limits."""


def run(seed: int, *, jobs: int = _JOBS) -> dict[str, Result]:
    """Return the result of each arm, for series of together at least `jobs` jobs."""
    rng = np.random.default_rng(seed)
    results = {arm: Result() for arm in ARMS}
    drawn = 0
    while drawn < jobs:
        series, known = _series(rng), Habits()
        for _ in range(int(rng.integers(1, 9))):
            course, drawn = _course(rng, series), drawn + 1
            hang_after = int(rng.integers(0, len(course.silences)))
            for arm, (judge, first, least) in ARMS.items():
                limit, result = judge(course, known), results[arm]
                result.hours += course.hours
                result.alarms += course.first > first(known)
                long = np.flatnonzero(course.silences > least)
                result.alarms += sum(course.silences[line] > limit(int(line)) for line in long)
                result.delays.append(limit(hang_after))
            longest, lasted = float(course.silences.max()), float(course.silences.sum())
            known = Habits(*map(max, known, (longest, course.first, lasted)))
    return results


def measure(*, quick: bool) -> str:
    runs = [run(seed) for seed in (SEEDS[:2] if quick else SEEDS)]
    rows = []
    for arm in ARMS:
        results = [run_of_seed[arm] for run_of_seed in runs]
        delays = [delay / _MINUTE for result in results for delay in result.delays]
        hours = sum(result.hours for result in results)
        delay_cells = (f"{quantile(delays, fraction):.0f}" for fraction in (0.5, 0.9, 0.99))
        rows.append((arm, f"{hours:,.0f}", over_seeds(results, _rate, "{:.2f}"), *delay_cells))
    head = ("rule", "job-hours", "false alarms in 1,000", "delay p50 min", "p90", "p99")
    return table("Stalled jobs", head, rows)


def _rate(results: Sequence[Result]) -> float:
    return 1000 * sum(result.alarms for result in results) / sum(result.hours for result in results)
