"""Benchmark: four namespaces, one with half of the work; queues by age, by Kueue and by usage.

The namespace `heavy` submits its jobs in two bursts; the jobs of the others arrive at random. The
arm `age` orders jobs as without `queue.fairness`; `kueue` by the formula of admission fair sharing
(KEP-4136: sampled usage, and a penalty for each start until the next sample), after priority and
before age; `kfext` by usage as shipped. The half-life is 30 minutes, because the simulated jobs
take minutes.

The error of a ten-minute window with more demand than capacity is half the sum of the differences
between the fractions that the namespaces hold and their fractions by max-min fairness.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

import kfext
from e2e.bench.model.seeds import SEEDS, over_seeds
from e2e.bench.report import table
from e2e.bench.store import Store
from e2e.testbed.progress import say
from kfext.core.queue.usage import NamespaceUsage, dominant_share, requests_of
from kfext.model.moment import Moment
from kfext.model.parameters import Fairness, Queueing
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.sim.cluster import Cluster, World
from kfext.sim.compare import quantile
from kfext.sim.objects import LiveJob
from kfext.sim.worlds import cluster as cluster_world
from kfext.sim.worlds import spread_over
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.registry import POLICIES
from kfext.state.waiting.fairness import UsageOrder

LOADS = (0.9, 1.2)
HEAVY = "heavy"
_LIGHT = ("b", "c", "d")
_HALF_LIFE, _SAMPLE_SECONDS, _WINDOW = 1800.0, 300.0, 600.0
_JOBS = 45
"""The number of jobs in each of the two halves of a world."""
Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of a run.

    `errors`: the error of each window with more demand than capacity. `light`, `heavy`: the stretch
    of each job of these namespaces: its time / its time alone. `mean`: the mean time of all jobs,
    in seconds. `used`: the fraction of all cores that pods used.
    """

    errors: list[float]
    light: list[float]
    heavy: list[float]
    mean: float
    used: float


_Pair = tuple[Figures, Figures]
"""The results of an arm, and of the arm `age` for the same seed."""


def world(seed: int, *, load: float) -> World:
    random = Random(seed * 17 + 3)
    specs = [
        replace(spec, name=f"w{half}-{spec.name}", trains=f"{half}-{spec.trains}")
        for half in range(2)
        for spec in cluster_world(seed * 10 + half, load=1.0, cv=1.0).rigid().jobs[:_JOBS]
    ]
    drawn = spread_over(specs, random, load=load)
    end = max(spec.arrives for spec in drawn.jobs)
    jobs = []
    for spec in drawn.jobs:
        if random.random() < 0.5:
            at = random.choice([0.02, 0.5]) * end + random.uniform(0, 60)
            jobs.append(replace(spec, namespace=HEAVY, arrives=float(round(at))))
        else:
            jobs.append(replace(spec, namespace=random.choice(_LIGHT)))
    return World(drawn.nodes, tuple(sorted(jobs, key=lambda spec: spec.arrives)))


class _Kueue(UsageOrder):
    """Orders jobs by Kueue's formula, on kfext's measurements of the namespaces."""

    def __init__(self, cluster: Cluster) -> None:
        planner = cluster.planner
        super().__init__(planner.cluster, planner.settings, planner.queue.key)
        self._sampled_mean: dict[str, float] = defaultdict(float)
        self._penalty: dict[str, float] = defaultdict(float)
        self._sampled, self._started = 0.0, set[str]()
        cluster.api.on_job.append(self._observe)

    def begin_tick(self, now: Moment) -> None:
        super().begin_tick(now)
        elapsed = now.monotonic - (self._sampled or now.monotonic)
        self._sampled = self._sampled or now.monotonic
        if elapsed >= _SAMPLE_SECONDS:
            weight = self._weight(elapsed)
            for name in {*self._sampled_mean, *self.record.namespaces}:
                usage = self.record.namespaces.get(name, NamespaceUsage())
                self._sampled_mean[name] += weight * (usage.held - self._sampled_mean[name])
            self._penalty.clear()
            self._sampled = now.monotonic

    def _observe(self, live: LiveJob) -> None:
        if not live.job.suspend and live.uid not in self._started:
            self._started.add(live.uid)
            requested = dominant_share(requests_of(live.job), self._capacity)
            self._penalty[live.job.namespace] += self._weight(_SAMPLE_SECONDS) * requested

    def projected(self, tracked: TrackedJob) -> float:
        """Return the usage that decides the place of a job; 0 for a job that does not wait."""
        name = tracked.job.namespace
        usage = self._sampled_mean[name] + self._penalty[name]
        return usage if tracked.job.in_queue else 0.0

    def _weight(self, seconds: float) -> float:
        return float(1 - 0.5 ** (seconds / _HALF_LIFE))


class _UsageByWindow:
    """Records the usage and the demand of each namespace by window, in pod-seconds."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._at = 0.0
        self._now: tuple[dict[str, float], dict[str, float]] = {}, {}
        self.windows: dict[int, tuple[dict[str, float], dict[str, float]]] = {}
        cluster.on_second.append(self._record)

    def _record(self) -> None:
        now = self._cluster.clock.now
        empty: tuple[dict[str, float], dict[str, float]] = ({}, {})
        totals = self.windows.setdefault(int(self._at // _WINDOW), empty)
        for total, amounts in zip(totals, self._now, strict=True):
            for name, amount in amounts.items():
                total[name] = total.get(name, 0.0) + amount * (now - self._at)
        held: dict[str, float] = defaultdict(float)
        wanted: dict[str, float] = defaultdict(float)
        for live in self._cluster.jobs:
            if not live.job.finished:
                name, waits = live.job.namespace, live.job.suspend
                bound = sum(bool(pod.pod.node_name) for pod in live.pods.values())
                to_come = 0 if waits else live.spec.pods  # the job has its capacity before its pods
                held[name] += bound if live.pods else to_come
                wanted[name] += live.spec.pods
        self._at, self._now = now, (held, wanted)

    def errors(self, capacity: float) -> list[float]:
        """Return the error of each window with more demand than capacity."""
        errors = []
        for held, wanted in self.windows.values():
            demand = {name: min(amount / _WINDOW, capacity) for name, amount in wanted.items()}
            if sum(demand.values()) > 1.05 * capacity and (used := sum(held.values())):
                fair = fair_capacity(demand, capacity)
                differences = (
                    held.get(name, 0.0) / used - fair[name] / capacity for name in demand
                )
                errors.append(sum(map(abs, differences)) / 2)
        return errors


def fair_capacity(demand: Amounts, capacity: float) -> dict[str, float]:
    """Return the amount of each namespace by max-min fairness; the demand exceeds the capacity."""
    remaining, amounts = capacity, dict[str, float]()
    for number, name in enumerate(sorted(demand, key=demand.__getitem__)):
        amounts[name] = min(demand[name], remaining / (len(demand) - number))
        remaining -= amounts[name]
    return amounts


_USAGE = Queueing(fairness=Fairness.USAGE, half_life=_HALF_LIFE)
ARMS: Mapping[str, Queueing] = {"age": Queueing(), "kueue": _USAGE, "kfext": _USAGE}


def run(arm: str, drawn: World, *, luck: int) -> Figures:
    """Return the results of a world under an arm; no running job is changed."""
    off = {policy.name: PolicyChoice(Mode.OFF) for policy in POLICIES}
    policy = TrainingPolicy("arm", queue=ARMS[arm], companion=off)
    cluster = Cluster(drawn, luck, policy=policy)
    if arm == "kueue":
        cluster.planner.queue.usage = _Kueue(cluster)
    watch = _UsageByWindow(cluster)
    cluster.run()
    ended, specs = cluster.ended(), {spec.name: spec for spec in drawn.jobs}
    stretch = {name: job.elapsed / specs[name].alone for name, job in ended.items()}
    return Figures(
        # The capacity in pods: each requests one core.
        errors=watch.errors(sum(size.cpu for size in drawn.nodes.values()) / 1000),
        light=[n for name, n in stretch.items() if specs[name].namespace != HEAVY],
        heavy=[n for name, n in stretch.items() if specs[name].namespace == HEAVY],
        mean=fmean(job.elapsed for job in ended.values()),
        used=cluster.utilisation,
    )


_SHOWN: Mapping[str, tuple[Callable[[Sequence[_Pair]], float], str]] = {
    "error": (lambda pairs: fmean(n for own, _ in pairs for n in own.errors), "{:.2f}"),
    "light, stretch": (lambda pairs: fmean(n for own, _ in pairs for n in own.light), "{:.1f}"),
    "heavy": (lambda pairs: fmean(n for own, _ in pairs for n in own.heavy), "{:.1f}"),
    "all, p99": (
        lambda pairs: quantile([n for own, _ in pairs for n in (*own.light, *own.heavy)], 0.99),
        "{:.0f}",
    ),
    "light against age": (
        lambda pairs: (
            fmean(n for own, _ in pairs for n in own.light)
            / fmean(n for _, age in pairs for n in age.light)
        ),
        "x{:.2f}",
    ),
    "mean against age": (
        lambda pairs: fmean(own.mean for own, _ in pairs) / fmean(age.mean for _, age in pairs),
        "x{:.2f}",
    ),
    "cores used": (lambda pairs: fmean(own.used for own, _ in pairs), "{:.1%}"),
}


def measure(*, quick: bool) -> str:
    """Return a table of all arms and loads; runs are stored as they end."""
    package, here = Path(kfext.__file__).parent, Path(__file__)
    sources = [here, *(package / part for part in ("core", "model", "sim", "state"))]
    store = Store("fairness", sources=sources)
    seeds, rows = SEEDS[:1] if quick else SEEDS, []
    for load in LOADS:
        by_age: list[Figures] = []
        for arm in ARMS:
            say(f"  load {load:g}, {arm}")
            figures = [_figures(store, arm, seed, load=load) for seed in seeds]
            by_age = by_age or figures
            pairs = list(zip(figures, by_age, strict=True))
            cells = (over_seeds(pairs, figure, form) for figure, form in _SHOWN.values())
            rows.append((f"{load:g}", arm, *cells))
    return table("Namespaces, order by usage", ("load", "arm", *_SHOWN), rows)


def _figures(store: Store, arm: str, seed: int, *, load: float) -> Figures:
    name = f"{arm}-{load:g}-{seed}"
    stored = store.find(name)
    if stored is None:
        figures = run(arm, world(seed, load=load), luck=seed * 1000)
        stored = {field: getattr(figures, field) for field in Figures.__slots__}
        store.put(name, stored)
    return Figures(**stored)
