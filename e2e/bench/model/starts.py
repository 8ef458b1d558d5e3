"""Benchmark: kfext's expected starts of jobs, beside an average of past waits.

The forecast of each waiting job is read once a minute, and judged once the job has started; waits
below 30 s do not count. The arm `average`, requested in kueue#13159, forecasts the moving average
of past waits minus the job's wait so far, with kfext's initial range around it. kfext learns the
length of all jobs by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

import kfext
from e2e.bench.model.seeds import SEEDS, over_seeds
from e2e.bench.report import table
from e2e.bench.store import Store
from e2e.testbed.progress import say
from kfext.core.lifecycle.steps import Unsuspend
from kfext.core.queue.expected import SHORTEST, Accuracy, Scores
from kfext.sim.arms import ARMS, GANG, KFEXT, Arm
from kfext.sim.clock import EPOCH
from kfext.sim.cluster import URGENT, Cluster, World
from kfext.sim.compare import quantile
from kfext.sim.worlds import WORLDS, Draw
from kfext.state.forecast.forecaster import Forecaster

_LOOK_SECONDS = 60.0
_URGENT_FRACTION = 0.15
_NEW_WAIT_WEIGHT = 0.2
"""The weight of the newest wait in the moving average of past waits."""


@dataclass(frozen=True, slots=True)
class Look:
    """The forecast for a waiting job at second `at`; its three times may be unknown (None).

    These times are seconds from `at` on. `arrived`: for how many seconds the job has waited.
    """

    at: float
    job: str
    arrived: float
    time: float | None
    earliest: float | None
    latest: float | None


@dataclass(frozen=True, slots=True)
class Judged:
    """The quality of a forecast for a job that waited `wait` more seconds.

    `error`: in seconds; None means that the start was unknown. `width`: the range's.
    """

    wait: float
    error: float | None
    was: Accuracy = Accuracy.WITHIN
    width: float = 0.0


def _rigid(draw: Draw) -> Draw:
    return lambda seed: draw(seed).rigid()


def _urgent(draw: Draw) -> Draw:
    def drawn(seed: int) -> World:
        random, world = Random(seed * 7 + 1), draw(seed).rigid()
        jobs = [
            replace(job, priority=URGENT.name if random.random() < _URGENT_FRACTION else "")
            for job in world.jobs
        ]
        return replace(world, jobs=tuple(jobs))

    return drawn


CASES: Mapping[str, tuple[Callable[[Draw], Draw], Arm]] = {
    "arrival order": (_rigid, ARMS[GANG]),
    "15 % urgent": (_urgent, ARMS[GANG]),
    "shortest": (_rigid, ARMS["kfext-shortest"]),
    "elastic": (lambda draw: draw, ARMS[KFEXT]),
}
LOADS = ("cpu-0.8", "cpu-1.2")


class WatchedCluster:
    """Runs a cluster to its end; has the forecasts read (`looks`) and the first starts of jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self.looks: list[Look] = []
        self.started: dict[str, float] = {}
        self._cluster, self._forecaster = cluster, Forecaster(cluster.planner)
        self._read, self._next = 0, 0.0
        cluster.on_second.append(self._look)
        cluster.run()

    def _look(self) -> None:
        cluster, moment = self._cluster, self._cluster.driver.moment
        written = cluster.driver.written
        for step in written[self._read :]:
            if isinstance(step.step, Unsuspend) and not step.refused:
                self.started.setdefault(step.job, step.at)
        self._read = len(written)
        list(self._forecaster.scores_of_started(moment.wall))
        if self._forecaster.due(moment):
            list(self._forecaster.forecast(moment))
        if cluster.clock.now < self._next:
            return
        now, self._next = cluster.clock.now, cluster.clock.now + _LOOK_SECONDS
        for live in cluster.jobs:
            shown = self._forecaster.expected(live.uid)
            if shown is not None and live.spec.name not in self.started:
                times = (shown.time, shown.earliest, shown.latest)
                remaining = (None if at is None else at - EPOCH - now for at in times)
                waited = now - live.spec.arrives
                self.looks.append(Look(now, live.spec.name, waited, *remaining))


def judged(looks: Sequence[Look], started: Mapping[str, float]) -> list[Judged]:
    """Return the quality of the forecasts for jobs that started after 30 s or more."""
    return [
        _judged(look, started[look.job] - look.at)
        for look in looks
        if started.get(look.job, 0.0) - look.at >= SHORTEST
    ]


def _judged(look: Look, wait: float) -> Judged:
    if look.time is None or look.earliest is None or look.latest is None:
        return Judged(wait, None)
    accuracy = (
        Accuracy.EARLIER
        if wait < look.earliest
        else Accuracy.LATER
        if wait > look.latest
        else Accuracy.WITHIN
    )
    return Judged(wait, abs(wait - look.time), accuracy, look.latest - look.earliest)


def averaged(looks: Sequence[Look], started: Mapping[str, float]) -> Iterator[Look]:
    """Yield the forecast by the average of past waits for each look, after the first wait."""
    arrived = {look.job: look.at - look.arrived for look in looks}
    waits = sorted((at, at - arrived[job]) for job, at in started.items() if job in arrived)
    average, number = None, 0
    for look in sorted(looks, key=lambda look: look.at):
        while number < len(waits) and waits[number][0] <= look.at:
            wait = waits[number][1]
            average = wait if average is None else average + _NEW_WAIT_WEIGHT * (wait - average)
            number += 1
        if average is not None:
            remaining = max(0.0, average - look.arrived)
            low, high = Scores().range(remaining, behind=remaining)
            yield replace(look, time=remaining, earliest=low, latest=high)


def measure(*, quick: bool) -> str:
    package = Path(kfext.__file__).parent
    sources = [Path(__file__), *(package / part for part in ("core", "model", "sim", "state"))]
    store = Store("starts", sources=sources)
    seeds = SEEDS[:1] if quick else SEEDS
    head = ("jobs", "forecast", "looks", *_FIGURES, "not known")
    tables = []
    for load in LOADS:
        rows = []
        for case in CASES:
            say(f"  {load}, {case}")
            runs = [_run(store, load, case, seed) for seed in seeds]
            rows += [(case, arm, *_cells([run[arm] for run in runs])) for arm in runs[0]]
        tables.append(table(f"Expected starts, {load}", head, rows))
    return "\n\n".join(tables)


def _run(store: Store, load: str, case: str, seed: int) -> dict[str, list[Judged]]:
    name = f"{load}-{case}-{seed}".replace(" ", "-").replace("%", "percent")
    stored = store.find(name)
    if stored is None:
        change, arm = CASES[case]
        watched = WatchedCluster(arm(change(WORLDS[load])(seed), seed * 1000))
        looks, started = watched.looks, watched.started
        by_arm = {"kfext": looks, "average": list(averaged(looks, started))}
        stored = {
            title: [asdict(look) for look in judged(shown, started)]
            for title, shown in by_arm.items()
        }
        store.put(name, stored)
    return {arm: [Judged(**look) for look in rows] for arm, rows in stored.items()}


_JudgedRuns = Sequence[Sequence[Judged]]


def _known(runs: _JudgedRuns) -> list[Judged]:
    return [look for run in runs for look in run if look.error is not None]


def _errors(runs: _JudgedRuns) -> list[float]:
    return [look.error / look.wait for look in _known(runs) if look.error is not None]


def _fraction(runs: _JudgedRuns, accuracy: Accuracy) -> float:
    return fmean(look.was == accuracy for look in _known(runs))


def _width(runs: _JudgedRuns) -> float:
    return fmean(look.width for look in _known(runs)) / fmean(look.wait for look in _known(runs))


_FIGURES: Mapping[str, tuple[Callable[[_JudgedRuns], float], str]] = {
    "error / wait": (lambda runs: quantile(_errors(runs), 0.5), "{:.1%}"),
    "p90": (lambda runs: quantile(_errors(runs), 0.9), "{:.0%}"),
    "in the range": (lambda runs: _fraction(runs, Accuracy.WITHIN), "{:.1%}"),
    "later": (lambda runs: _fraction(runs, Accuracy.LATER), "{:.1%}"),
    "width / wait": (_width, "{:.2f}"),
}
"""The columns about forecasts of a known start."""


def _cells(runs: _JudgedRuns) -> tuple[str, ...]:
    number, known = sum(map(len, runs)), len(_known(runs))
    cells = [over_seeds(runs, figure, form) if known else "-" for figure, form in _FIGURES.values()]
    return (f"{number}", *cells, f"{(number - known) / max(number, 1):.1%}")
