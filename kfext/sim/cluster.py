"""A simulated cluster, from its first job to the end of the last."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, Self

from kfext.model.policy import TrainingPolicy
from kfext.model.priority import PriorityClass
from kfext.sim.api import TEAM, ApiServer
from kfext.sim.clock import Clock
from kfext.sim.driver import Driver
from kfext.sim.jobs import JobSpec
from kfext.sim.kubelets import Kubelets
from kfext.sim.nodes import NodeSize, node
from kfext.sim.objects import LiveJob
from kfext.sim.training import Doing, Training
from kfext.sim.training_operator import TrainingOperator
from kfext.state.forecast.forecaster import Forecaster, Score
from kfext.state.planner.planner import Planner

LONGEST = 4 * 3600.0
"""Simulated seconds that any run may take."""
URGENT = PriorityClass("urgent", 100, preempts=False)
"""The only PriorityClass of the simulation; its jobs are first in the queue."""


@dataclass(frozen=True, slots=True)
class World:
    """Nodes, and jobs in the order of arrival."""

    nodes: Mapping[str, NodeSize]
    jobs: tuple[JobSpec, ...]

    @property
    def longest(self) -> float:
        """The seconds after which a run is cut off: enough for all jobs in sequence, twice."""
        last = max((job.arrives for job in self.jobs), default=0.0)
        return max(LONGEST, math.ceil(last + 2 * sum(job.alone for job in self.jobs)))

    def rigid(self) -> "World":
        """Return the world without elastic jobs: each has its requested size."""
        return replace(self, jobs=tuple(replace(job, bounds=None) for job in self.jobs))


class Scheduler(Protocol):
    """The component that starts jobs and changes their sizes: kfext or a replacement."""

    def next_turn(self) -> float:
        """Return the second of the next turn if nothing happens before it."""
        ...

    def turn(self) -> None:
        """Decide and act; called in each second in which something happened."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended. Times are in seconds.

    `elapsed`: the time from arrival to end. `began`: from arrival to the first step; from then on
        the job `trained` or `paused`. `redone`: the time of repeated steps, at the mean speed.
    """

    name: str
    elapsed: float
    began: float
    trained: float
    redone: float

    @property
    def paused(self) -> float:
        """Seconds after the first step in which it did not train."""
        return self.elapsed - self.began - self.trained


class Cluster:
    """A world under kfext and a policy of its administrator, or under another scheduler.

    `luck`: the seed that draws which steps are written late.
    `scheduler`: returns the scheduler that replaces kfext, given the still empty cluster.
    `late_writes`: whether two in ten steps of a job are written late.
    `on_second`: called after each second in which something happened. `starts`: the scores of the
        starts of jobs since `forecast` was called.
    """

    def __init__(
        self,
        world: World,
        luck: int,
        *,
        policy: TrainingPolicy | None = None,
        late_writes: bool = True,
        scheduler: "Callable[[Cluster], Scheduler] | None" = None,
    ) -> None:
        self.world = world
        self.luck = luck
        self.policy = policy
        self.clock = Clock()
        self.planner = Planner(wake=self._wake)
        self.api = ApiServer(self.planner, self.clock)
        self.kubelets = Kubelets(self.api, self.clock, self.world.nodes)
        self.operator = TrainingOperator(self.api, self.kubelets, self.clock)
        self.driver = Driver(
            self.planner, self.api, self.kubelets, self.clock, seed=luck if late_writes else None
        )
        self.on_second: list[Callable[[], None]] = []
        self.starts: list[Score] = []
        self.api.priorities = {URGENT.name: URGENT.value}
        self._show_world()
        for spec in self.world.jobs:
            self.clock.after(spec.arrives, partial(self.submit, spec))
        self._scheduler: Scheduler = scheduler(self) if scheduler else self.driver
        if not scheduler:
            self.driver.begin()

    def _show_world(self) -> None:
        for namespace in sorted({TEAM.name, *(spec.namespace for spec in self.world.jobs)}):
            self.planner.settings.observe_namespace(None, replace(TEAM, name=namespace))
        self.planner.queue.observe_class(None, URGENT)
        if self.policy is not None:
            self.planner.settings.observe_policy(self.policy)
        for name, size in self.world.nodes.items():
            self.planner.cluster.observe_node(None, node(name, size))

    def _wake(self) -> None:
        self.driver.woken = True

    def forecast(self) -> Self:
        """Forecast the starts of jobs from now on, as the controller does."""
        forecaster = Forecaster(self.planner)

        def check() -> None:
            moment = self.driver.moment
            self.starts.extend(forecaster.scores_of_started(moment.wall))
            if forecaster.due(moment):
                list(forecaster.forecast(moment))

        self.on_second.append(check)
        return self

    def submit(self, spec: JobSpec) -> LiveJob:
        """Submit a job now."""
        training = Training(spec, self.clock, lambda: self.operator.end(self.api.jobs[spec.uid]))
        return self.api.submit(spec, training)

    def run(self) -> Self:
        """Run until each job has ended, or until `world.longest`."""
        longest = self.world.longest
        while not self.over and self.clock.now < longest:
            self._advance(longest)
        self.kubelets.count()
        return self

    def at(self, second: float) -> Self:
        """Run to the first whole second from `second` on, even if all jobs have ended."""
        while self.clock.now < second:
            self._advance(math.ceil(second))
        self.kubelets.count()
        return self

    def _advance(self, until: float) -> None:
        """Run the next second in which something happens, or `until`."""
        scheduler = self._scheduler
        self.clock.now = math.ceil(min(self.clock.next(), scheduler.next_turn(), until))
        self.clock.run_due()
        scheduler.turn()
        while self.clock.run_due():
            scheduler.turn()
        for check in self.on_second:
            check()

    # --- results ----------------------------------------------------------------------------------

    @property
    def jobs(self) -> list[LiveJob]:
        """All jobs that were submitted."""
        return list(self.api.jobs.values())

    @property
    def over(self) -> bool:
        """Whether each job of the world has arrived and ended."""
        jobs = self.api.jobs
        return len(jobs) == len(self.world.jobs) and all(live.job.finished for live in self.jobs)

    @property
    def utilisation(self) -> float:
        """The fraction of all cores that running pods used, until the last job ended."""
        cores = sum(size.cpu for size in self.world.nodes.values()) / 1000
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
    )
