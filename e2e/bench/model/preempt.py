"""Benchmark: urgent jobs among others, without preemption, with killed jobs, and with kfext's.

In the arm `0.3` the policy `preempt` is off. `kill` stops jobs in Kueue's order of victims, the
lowest priority and then the newest (its pkg/scheduler/preemption/common/ordering.go), without
checkpoint requests. `kfext` is as shipped, with the policy acting. All arms place and queue jobs
like kfext, and stop a job only where the urgent job then fits. In the world `answers` each job
saves on request; in `mixed` a quarter never saves, a quarter saves on request, and the others save
by themselves every 5 to 20 minutes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from unittest.mock import patch

import kfext
from e2e.bench.model.seeds import SEEDS, over_seeds
from e2e.bench.report import table
from e2e.bench.store import Store
from e2e.testbed.progress import say
from kfext.core.lifecycle.steps import Suspend, Unsuspend
from kfext.model.parameters import Placement
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.priority import PriorityClass
from kfext.sim.cluster import Cluster, World
from kfext.sim.compare import quantile
from kfext.sim.jobs import JobSpec, Saving
from kfext.sim.worlds import cluster as cluster_world
from kfext.sim.worlds import spread_over
from kfext.state.running.operation import Readiness
from kfext.state.running.registry import POLICIES
from kfext.state.running.stop.stopping import JobStops
from kfext.state.running.stop.victims import Victim

LOADS = (0.8, 1.0)
_JOBS = 45
_STEPS_FACTOR = 5
"""The factor on the number of steps, for jobs of 20 minutes on average."""
_SOON_SECONDS = 200.0
_NEVER_RELEASED = 30 * 86_400.0
_CLASSES = {"low": -100, "normal": 50, "urgent": 100}
_SAVINGS = {
    "answers": (Saving.ON_REQUEST,),
    "mixed": (Saving.NEVER, Saving.ON_REQUEST, Saving.PERIODIC, Saving.PERIODIC),
}
Rule = Callable[[Cluster], AbstractContextManager[object]]
"""Returns a context in which a part of kfext is replaced while a cluster runs."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of a run. Times are in seconds, work in pod-seconds.

    `begins`: the time from the arrival of each urgent job to its first step. `others`: the time
    from the arrival of each other job to its end. `work`, `again`: the work of all jobs, and the
    repeated work. `stops`: how often a job was stopped for an urgent job; `in_vain`: how often the
    urgent job then did not start soon.
    """

    begins: list[float]
    others: list[float]
    work: float
    again: float
    stops: int
    in_vain: int


_Pair = tuple[Figures, Figures]
"""The results of an arm, and of the arm 0.3 for the same seed."""


def world(seed: int, *, load: float, saving: str) -> World:
    """Return rigid jobs at a load: 15 % urgent and a third as long; 30 % of the others are low."""
    random = Random(seed * 31 + 5)
    jobs = cluster_world(seed, load=1.0, cv=1.5).rigid().jobs[:_JOBS]
    return spread_over([_drawn(spec, random, saving) for spec in jobs], random, load=load)


def _drawn(spec: JobSpec, random: Random, saving: str) -> JobSpec:
    priority = "urgent" if random.random() < 0.15 else "low" if random.random() < 0.3 else "normal"
    steps = max(60, spec.steps * _STEPS_FACTOR // (3 if priority == "urgent" else 1))
    pace = spec.pace.seconds(spec.workers + spec.leaders)
    return replace(
        spec,
        priority=priority,
        steps=steps,
        saving=random.choice(_SAVINGS[saving]),
        every=max(1, round(random.uniform(300, 1200) / pace)),
        preempt="always",
        starts=25.0,
        meets=20.0,
        answers=float(random.randint(3, 40)),
        prints=10.0,
    )


class _Classes(Cluster):
    """A cluster with the priority classes of the worlds."""

    def _show_world(self) -> None:
        super()._show_world()
        self.api.priorities = dict(_CLASSES)
        for name, value in _CLASSES.items():
            self.planner.queue.observe_class(None, PriorityClass(name, value))


def _kill(cluster: Cluster) -> AbstractContextManager[object]:
    """Stop jobs in Kueue's order, without a checkpoint request or a pause between two stops."""

    def newest(victims: Iterable[Victim], *, needed: float) -> list[Victim]:
        jobs = cluster.api.jobs
        return sorted(victims, key=lambda victim: (victim.priority, -jobs[victim.uid].job.started))

    package = "kfext.state.running.stop"
    stack = ExitStack()
    stack.enter_context(patch(f"{package}.search.in_stop_order", newest))
    stack.enter_context(patch(f"{package}.executor.rests_until", lambda _stop, now: 0.0))
    ready = patch.object(JobStops, "lossless_readiness", lambda _self, _job, now: Readiness.READY)
    stack.enter_context(ready)
    return stack


_RULES: Mapping[str, tuple[Mode, Rule]] = {
    "0.3": (Mode.OFF, lambda _: nullcontext()),
    "kill": (Mode.ACT, _kill),
    "kfext": (Mode.ACT, lambda _: nullcontext()),
}


def run(arm: str, drawn: World, *, luck: int) -> Figures:
    mode, rule = _RULES[arm]
    choices = {policy.name: PolicyChoice(Mode.OFF) for policy in POLICIES}
    policy = TrainingPolicy(
        "arm",
        placement=Placement(release_after=_NEVER_RELEASED),
        companion=choices | {"preempt": PolicyChoice(mode)},
    )
    cluster = _Classes(drawn, luck, policy=policy)
    with rule(cluster):
        cluster.run()
    specs, ended = {spec.name: spec for spec in drawn.jobs}, cluster.ended()
    urgent = {name for name, spec in specs.items() if spec.priority == "urgent"}
    stops = list(_stops(cluster))
    return Figures(
        begins=[ended[name].began for name in sorted(urgent & ended.keys())],
        others=[ended[name].elapsed for name in sorted(ended.keys() - urgent)],
        work=sum(spec.alone * spec.pods for spec in specs.values()),
        again=sum(job.redone * specs[name].pods for name, job in ended.items()),
        stops=len(stops),
        in_vain=sum(not started for started in stops),
    )


def _stops(cluster: Cluster) -> Iterator[bool]:
    """Yield for each stop whether the waiting job started soon afterwards."""
    written = cluster.driver.written
    starts = [(write.job, write.at) for write in written if isinstance(write.step, Unsuspend)]
    for write in written:
        if isinstance(write.step, Suspend) and (uid := write.step.state.stop.waiting):
            waiting = cluster.api.jobs[uid].spec.name
            waits = (at - write.at for job, at in starts if job == waiting and at >= write.at)
            yield min(waits, default=_SOON_SECONDS + 1) <= _SOON_SECONDS


def measure(*, quick: bool) -> str:
    """Return a table for each kind of world; each run is stored at its end."""
    package, here = Path(kfext.__file__).parent, Path(__file__)
    sources = [here, *(package / name for name in ("core", "model", "sim", "state"))]
    store = Store("preempt", sources=sources)
    seeds = SEEDS[:1] if quick else SEEDS
    head = ("load", "arm", "stops", "urgent begin p50 s", "p99 s", "others", "again", "in vain")
    tables = []
    for saving in _SAVINGS:
        rows = []
        for load in LOADS:
            reference: list[Figures] = []
            for arm in _RULES:
                say(f"  {saving}, load {load:g}, {arm}")
                of_arm = [_figures(store, arm, seed, load=load, saving=saving) for seed in seeds]
                reference = reference or of_arm
                rows.append((f"{load:g}", arm, *_cells(list(zip(of_arm, reference, strict=True)))))
        tables.append(table(f"Jobs of higher priority, world {saving}", head, rows))
    return "\n\n".join(tables)


def _figures(store: Store, arm: str, seed: int, *, load: float, saving: str) -> Figures:
    name = f"{arm}-{saving}-{load:g}-{seed}"
    stored = store.find(name)
    if stored is None:
        figures = run(arm, world(seed, load=load, saving=saving), luck=seed * 1000)
        stored = {field: getattr(figures, field) for field in Figures.__slots__}
        store.put(name, stored)
    return Figures(**stored)


def _cells(pairs: Sequence[_Pair]) -> tuple[str, ...]:
    stops = fmean(of_arm.stops for of_arm, _ in pairs)
    median, p99 = (
        over_seeds(pairs, partial(_begin, quantile_=quantile_), "{:.0f}")
        for quantile_ in (0.5, 0.99)
    )
    others, again = over_seeds(pairs, _others, "x{:.2f}"), over_seeds(pairs, _again, "{:.2%}")
    in_vain = sum(of_arm.in_vain for of_arm, _ in pairs)
    return f"{stops:.1f}", median, p99, others, again, f"{in_vain}"


def _begin(pairs: Sequence[_Pair], *, quantile_: float) -> float:
    return quantile([seconds for of_arm, _ in pairs for seconds in of_arm.begins], quantile_)


def _others(pairs: Sequence[_Pair]) -> float:
    of_arm, reference = (fmean(s for pair in pairs for s in pair[index].others) for index in (0, 1))
    return of_arm / reference


def _again(pairs: Sequence[_Pair]) -> float:
    return sum(of_arm.again for of_arm, _ in pairs) / sum(of_arm.work for of_arm, _ in pairs)
