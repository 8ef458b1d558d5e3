"""A model cluster from its first job to the end of its last, drawn from a seed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.priority import PriorityClass
from kfext.state.planner import Planner
from tests.builders import node
from tests.unit.fluid.api import TEAM, Api
from tests.unit.fluid.clock import Clock
from tests.unit.fluid.driver import Driver
from tests.unit.fluid.jobs import JobSpec, random_job
from tests.unit.fluid.kubelets import Kubelets
from tests.unit.fluid.live import LiveJob
from tests.unit.fluid.training import Doing, Training
from tests.unit.fluid.training_operator import TrainingOperator

LONGEST = 4 * 3600.0
"""Seconds after which every job must have ended."""
URGENT = PriorityClass("urgent", 100, preempts=False)
WITHOUT = TrainingPolicy("without", companion={"scale": PolicyChoice(Mode.OFF)})


@dataclass(frozen=True, slots=True)
class World:
    """What a seed stands for: nodes with their millicores, and jobs in the order they arrive."""

    nodes: Mapping[str, int]
    jobs: tuple[JobSpec, ...]


def random_world(seed: int) -> World:
    """Return a small cluster with more to do than it has room for, and time to rest at the end."""
    random = Random(seed)
    nodes = {f"node-{i}": random.choice([2000, 4000, 4000]) for i in range(random.randint(2, 4))}
    jobs: list[JobSpec] = []
    at, number = 5.0, random.randint(3, 8)
    while len(jobs) < number:
        one = random_job(random, len(jobs), arrives=at)
        if one.pods <= sum(size // one.cpu for size in nodes.values()):
            jobs.append(one)
            at += random.choice([0, 1, 10, 30, 60, 120])
    return World(nodes, tuple(jobs))


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a job. Times are in seconds.

    `elapsed`: from its arrival to its end: `began` until its first step, then it `trained`, or was
        `paused`. `redone`: the time for steps that it had to do again, at its mean speed.
    `workers`: how many trained on average.
    """

    name: str
    elapsed: float
    began: float
    trained: float
    redone: float
    workers: float

    @property
    def paused(self) -> float:
        return self.elapsed - self.began - self.trained


class Cluster:
    """One seed, with the policy or without it. `on_second` is called after each that matters."""

    def __init__(self, seed: int, *, policy: bool = True, world: World | None = None) -> None:
        self.seed = seed
        self.world = world or random_world(seed)
        self.clock = Clock()
        self.planner = Planner(wake=self._wake)
        self.api = Api(self.planner, self.clock)
        self.kubelets = Kubelets(self.api, self.clock, self.world.nodes)
        self.operator = TrainingOperator(self.api, self.kubelets, self.clock)
        self.driver = Driver(self.planner, self.api, self.kubelets, self.clock, seed)
        self.on_second: list[Callable[[], None]] = []
        self.policy = policy
        self.api.set_priorities({URGENT.name: URGENT.value})
        self._show_world(policy=policy)
        for spec in self.world.jobs:
            self.clock.after(spec.arrives, partial(self._submit, spec))
        self.driver.begin()

    def _show_world(self, *, policy: bool) -> None:
        self.planner.settings.observe_namespace(None, TEAM)
        self.planner.queue.observe_class(None, URGENT)
        if not policy:
            self.planner.settings.observe_policy(WITHOUT)
        for name, size in self.world.nodes.items():
            self.planner.cluster.observe_node(None, node(name, cpu=f"{size}m"))

    def _wake(self) -> None:
        self.driver.wake()

    def _submit(self, spec: JobSpec) -> None:
        training = Training(spec, self.clock, lambda: self.operator.end(self.api.jobs[spec.uid]))
        self.api.submit(spec, training)

    def run(self, *, until: float = LONGEST) -> "Cluster":
        """Run until each job has ended, or for so long."""
        while not self.over and self.clock.now < until:
            self.clock.now = min(self.clock.next(), math.ceil(self.driver.next_turn()))
            self.clock.run_due()
            self.driver.turn()
            while self.clock.run_due():
                self.driver.turn()
            for look in self.on_second:
                look()
        self.kubelets.count()
        return self

    @property
    def jobs(self) -> list[LiveJob]:
        return list(self.api.jobs.values())

    @property
    def over(self) -> bool:
        jobs = self.api.jobs
        return len(jobs) == len(self.world.jobs) and all(one.job.finished for one in self.jobs)

    @property
    def utilisation(self) -> float:
        """The part of all cores that running pods requested, until the last job ended."""
        cores = sum(self.world.nodes.values()) / 1000
        return self.kubelets.busy / (cores * self.clock.now)

    def ended(self) -> dict[str, Ended]:
        """Return what became of each job, by name."""
        return {one.spec.name: _ended(one) for one in self.jobs if one.ended is not None}


def _ended(live: LiveJob) -> Ended:
    spec, training = live.spec, live.training
    assert live.ended is not None
    assert training.began is not None
    trained = training.spent[Doing.TRAINS]
    return Ended(
        name=spec.name,
        elapsed=live.ended - spec.arrives,
        began=training.began - spec.arrives,
        trained=trained,
        redone=trained * training.lost / (spec.steps + training.lost),
        workers=training.worked / trained,
    )
