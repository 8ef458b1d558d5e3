"""One arm once: the jobs warm up, and then a window is measured."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any, Self

from e2e.bench.gpu_share.agent import Agent
from e2e.bench.gpu_share.arms import HIGH, LOW, Arm
from e2e.bench.gpu_share.cards import Card
from e2e.bench.gpu_share.processes import Bench, Hooking, Job, bench
from e2e.bench.gpu_share.pythons import Python
from e2e.bench.gpu_share.readings import digests, latencies, rates, work
from e2e.bench.interleaved import SpoiledError

Object = dict[str, Any]
WARM_UP_SECONDS = 8.0
"""In which the gate finds its places, and the agent holds low back for the first time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a window has shown.

    `rates`: by job, the steps a second in each second of the window; `busy`: the part of it in
    which the card was busy; `cpu_wait`: that in which the threads of the jobs waited for a CPU, in
    sum; `preempted`: seconds from each time that high became busy until low had
    nothing left on the card; `losses`: see `digests`; `micro_step`: low's longest by itself, in
    seconds, None without a gate.
    """

    rates: Mapping[str, Sequence[float]]
    busy: float
    cpu_wait: float
    preempted: Sequence[float]
    losses: Mapping[str, Mapping[str, str]]
    micro_step: float | None = None

    def stored(self) -> Object:
        """Return it as JSON."""
        return asdict(self)

    @classmethod
    def of(cls, stored: Object) -> Self:
        """Return what was stored."""
        return cls(**stored)


def run(card: Card, python: Python, arm: Arm, *, load: float, seconds: float) -> Outcome:
    """Return what an arm has shown in so many seconds. Raises SpoiledError.

    `load`: for how many seconds high loads data in each step.
    """
    with bench(card, python) as place:
        return asyncio.run(_run(place, arm, load=load, seconds=seconds))


async def _run(place: Bench, arm: Arm, *, load: float, seconds: float) -> Outcome:
    async with training(place, arm, load=load) as (agent, jobs):
        await asyncio.sleep(WARM_UP_SECONDS)
        busy, waited, began = place.busy(), _cpu_wait(jobs), monotonic()
        await asyncio.sleep(seconds)
        busy, waited, ended = place.busy() - busy, _cpu_wait(jobs) - waited, monotonic()
        micro_step = _micro_step(agent) if agent is not None and LOW in arm.jobs else None
        place.kill_all()
        return Outcome(
            {job.name: rates([one.at for one in _steps(job)], began, ended) for job in jobs},
            busy / (ended - began),
            waited / (ended - began),
            _preempted(agent, jobs, began, ended),
            {job.name: digests([one.loss for one in job.steps()]) for job in jobs},
            micro_step,
        )


@asynccontextmanager
async def training(
    place: Bench, arm: Arm, *, load: float
) -> AsyncIterator[tuple[Agent | None, Sequence[Job]]]:
    """Have the jobs of an arm train meanwhile, with the agent's part where the arm has the hook.

    `load`: see `run`. Raises SpoiledError.
    """
    loads = {HIGH: load, LOW: 0.0}
    async with AsyncExitStack() as stack:
        stack.callback(place.kill_all)
        agent = None
        if arm.sharing is not None:
            made = Agent(place.folder, longest_micro_step=arm.sharing.micro_step)
            agent = await stack.enter_async_context(made.running())
        jobs = [
            place.start(name, load=loads[name], hooking=_hooking(agent, arm, name))
            for name in arm.jobs
        ]
        for job in jobs:
            await job.ready()
        for job in jobs:
            job.begin()
        yield agent, jobs


def _hooking(agent: Agent | None, arm: Arm, job: str) -> Hooking | None:
    if agent is None or arm.sharing is None:
        return None
    agent.admit(job, arm.sharing.terms(high=job == HIGH))
    traced = job == LOW and HIGH in arm.jobs
    return Hooking(agent.hook, agent.door(job), job == HIGH, traced)


def _steps(job: Job) -> Sequence[Any]:
    steps = job.steps()
    if not steps:
        raise SpoiledError(f"{job.name} has made no steps")
    return steps


def _cpu_wait(jobs: Sequence[Job]) -> float:
    return sum(job.cpu_wait() for job in jobs)


def _micro_step(agent: Agent) -> float:
    if not agent.is_calibrated(LOW):
        raise SpoiledError("the gate has not found its places in time")
    return agent.longest_micro_step(LOW)


def _preempted(agent: Agent | None, jobs: Sequence[Job], began: float, ended: float) -> list[float]:
    traced = [job for job in jobs if job.name == LOW and len(jobs) > 1]
    if agent is None or not traced:
        return []
    came = [at for at in agent.became_busy if began <= at < ended]
    return latencies(came, work(traced[0].trace()))
