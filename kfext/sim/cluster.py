"""A model cluster from its first job to the end of its last, drawn from a seed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Self

from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.priority import PriorityClass
from kfext.sim.api import TEAM, ApiServer
from kfext.sim.clock import Clock
from kfext.sim.driver import Driver
from kfext.sim.faults import Faults
from kfext.sim.jobs import JobSpec, random_job
from kfext.sim.kubelets import Kubelets
from kfext.sim.objects import LiveJob, node
from kfext.sim.training import Doing, Training
from kfext.sim.training_operator import TrainingOperator
from kfext.state.planner import Planner

LONGEST = 4 * 3600.0
"""Seconds after which each job must have ended."""
URGENT = PriorityClass("urgent", 100, preempts=False)
"""The PriorityClass of jobs that go first."""
WITHOUT = TrainingPolicy("without", companion={"scale": PolicyChoice(Mode.OFF)})
"""The policy under which no running job changes its size."""


@dataclass(frozen=True, slots=True)
class World:
    """What a seed draws: nodes with their millicores, and jobs in the order of arrival."""

    nodes: Mapping[str, int]
    jobs: tuple[JobSpec, ...]


def random_world(seed: int) -> World:
    """Draw a small cluster with more work than room, and time to rest at the end."""
    random = Random(seed)
    nodes = {f"node-{i}": random.choice([2000, 4000, 4000]) for i in range(random.randint(2, 4))}
    jobs: list[JobSpec] = []
    at, number = 5.0, random.randint(3, 8)
    while len(jobs) < number:
        job = random_job(random, len(jobs), arrives=at)
        if job.pods <= sum(size // job.cpu for size in nodes.values()):
            jobs.append(job)
            at += random.choice([0, 1, 10, 30, 60, 120])
    return World(nodes, tuple(jobs))


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended. Times are in seconds.

    `elapsed`: from its arrival to its end. It `began` after so many seconds; then it `trained`, or
        was `paused`. `redone`: the time of steps that it did again, at its mean speed.
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
        """Seconds after the first step in which it did not train."""
        return self.elapsed - self.began - self.trained


class Cluster:
    """A world under kfext and a policy of its administrator.

    `late_writes`: whether two in ten steps are written late.
    `on_second`: called after each second in which something happened.
    """

    def __init__(
        self,
        seed: int,
        *,
        policy: TrainingPolicy | None = None,
        world: World | None = None,
        late_writes: bool = True,
    ) -> None:
        self.seed = seed
        self.world = world or random_world(seed)
        self.policy = policy
        self.clock = Clock()
        self.faults = Faults()
        self.planner = Planner(wake=self._wake)
        self.api = ApiServer(self.planner, self.clock)
        self.kubelets = Kubelets(self.api, self.clock, self.faults, self.world.nodes)
        self.operator = TrainingOperator(self.api, self.kubelets, self.clock, self.faults)
        self.driver = Driver(
            self.planner,
            self.api,
            self.kubelets,
            self.clock,
            self.faults,
            seed=seed if late_writes else None,
            successor=self._successor,
        )
        self.on_second: list[Callable[[], None]] = []
        self.api.priorities = {URGENT.name: URGENT.value}
        self._show_world()
        for spec in self.world.jobs:
            self.clock.after(spec.arrives, partial(self.submit, spec))
        self.driver.begin()

    def _show_world(self) -> None:
        self.planner.settings.observe_namespace(None, TEAM)
        self.planner.queue.observe_class(None, URGENT)
        if self.policy is not None:
            self.planner.settings.observe_policy(self.policy)
        for name, size in self.world.nodes.items():
            self.planner.cluster.observe_node(None, node(name, cpu=size))

    def _wake(self) -> None:
        self.driver.wake()

    def submit(self, spec: JobSpec) -> LiveJob:
        """Submit a job now."""
        training = Training(spec, self.clock, lambda: self.operator.end(self.api.jobs[spec.uid]))
        return self.api.submit(spec, training)

    def run(self) -> Self:
        """Run until each job has ended, or for LONGEST seconds."""
        while not self.over and self.clock.now < LONGEST:
            self._go_on(LONGEST)
        self.kubelets.count()
        return self

    def at(self, second: float) -> Self:
        """Run to the first whole second from `second` on, whether or not each job has ended."""
        while self.clock.now < second:
            self._go_on(math.ceil(second))
        self.kubelets.count()
        return self

    def _go_on(self, until: float) -> None:
        """Run the next second in which something happens, or `until`."""
        self.clock.now = min(self.clock.next(), math.ceil(self.driver.next_turn()), until)
        self.clock.run_due()
        self.driver.turn()
        while self.clock.run_due():
            self.driver.turn()
        for look in self.on_second:
            look()

    # --- faults -----------------------------------------------------------------------------------

    def lose(self, name: str) -> None:
        """Lose a node and its pods."""
        self.planner.cluster.observe_node(node(name, cpu=self.world.nodes[name]), None)
        self.kubelets.lose(name)

    def regain(self, name: str) -> None:
        """Bring a lost node back, without pods."""
        self.planner.cluster.observe_node(None, node(name, cpu=self.world.nodes[name]))
        self.faults.closed.discard(name)

    def restart(self) -> None:
        """Replace the controller by a new one, which knows only what the API server stores."""
        self.driver.planner = self._successor()

    def _successor(self) -> Planner:
        self.planner = Planner(wake=self._wake)
        self._show_world()
        self.api.show_to(self.planner)
        return self.planner

    # --- results ----------------------------------------------------------------------------------

    @property
    def jobs(self) -> list[LiveJob]:
        """All jobs that were submitted."""
        return list(self.api.jobs.values())

    @property
    def over(self) -> bool:
        """Whether each job of the world has come and ended."""
        jobs = self.api.jobs
        return len(jobs) == len(self.world.jobs) and all(live.job.finished for live in self.jobs)

    @property
    def utilisation(self) -> float:
        """The part of all cores that running pods requested, until the last job ended."""
        cores = sum(self.world.nodes.values()) / 1000
        return self.kubelets.busy / (cores * self.clock.now)

    def ended(self) -> dict[str, Ended]:
        """Return the jobs that have ended, by name."""
        return {live.spec.name: _ended(live) for live in self.jobs if live.ended is not None}


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
