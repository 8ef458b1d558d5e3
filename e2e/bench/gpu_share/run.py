"""One arm once: the jobs warm up, and a window is measured.

The arms are the jobs on the card and how they share it. The readings (rates, latencies, digests of
losses) are taken from what the jobs have written; they are pure.
"""

import asyncio
import hashlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from time import monotonic
from typing import Any, Self

import numpy as np

from e2e.bench.gpu_share.cards import Card, Python
from e2e.bench.gpu_share.processes import Agent, Bench, Hooking, Job, bench
from e2e.bench.store import SpoiledError
from kfext.gpu.rules.neighbours import LONGEST_MICRO_STEP
from kfext.model.gpu import GpuShare

HIGH, LOW = "high", "low"
LOADS = (0.5, 0.8)
"""The parts of the time that the job of high priority should keep the card busy."""
EXCLUSIVE, AGAIN, NATIVE = "exclusive", "exclusive again (A/A)", "native"
BUDGET, STRICT = "gate, budget 5 %, minimum 20 %", "gate, budget 2 %, minimum 20 %"
HOOKED = "exclusive, with the hook"
NO_BUDGET = 1.0
"""What high may lose so that no job is ever shut out, and micro-steps are not shortened."""
_QUOTAS = (10, 5, 2)
EVERY = 20
"""Steps from one digest of losses to the next."""
_DIGITS = 12
_ROUNDING = 1e-6
Object = dict[str, Any]
WARM_UP_SECONDS = 8.0
"""In which the gate finds its places, and the agent holds low back for the first time."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How hooked jobs share: what low is promised, and high may lose; `micro_step` in seconds."""

    budget: float
    minimum: float
    micro_step: float = LONGEST_MICRO_STEP

    def terms(self, *, high: bool) -> GpuShare:
        """Return what a job of that priority is promised."""
        units = 50 if high else 30
        return GpuShare(units, high=high, loss_budget=self.budget, min_share=self.minimum)


DEFAULT = Sharing(budget=0.05, minimum=0.2)
"""The default of kfext, without an annotation."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One set-up. `u`: of high, unset: high is not there; `sharing`: unset: no hook."""

    name: str
    u: float | None
    low: bool
    sharing: Sharing | None = None

    @property
    def title(self) -> str:
        """What tells it from all others."""
        return f"{self.name}, {'low alone' if self.u is None else f'u {self.u:g}'}"

    @property
    def jobs(self) -> tuple[str, ...]:
        """Who is on the card."""
        return (*([] if self.u is None else [HIGH]), *([LOW] if self.low else []))


LOW_ALONE = Arm(EXCLUSIVE, None, low=True)


def gate(milliseconds: float) -> str:
    """Return the name of the arm with micro-steps of that length."""
    return f"gate {milliseconds:g} ms"


def shared(u: float, *, quotas: tuple[float, ...] = _QUOTAS) -> list[Arm]:
    """Return the arms with both jobs."""
    return [
        Arm(NATIVE, u, low=True),
        *(gated(u, quota) for quota in quotas),
        Arm(BUDGET, u, low=True, sharing=DEFAULT),
    ]


def strict(u: float) -> Arm:
    """Return the arm with both jobs that lets high lose no more than the target."""
    return Arm(STRICT, u, low=True, sharing=Sharing(budget=0.02, minimum=0.2))


def gated(u: float, milliseconds: float) -> Arm:
    """Return the arm with both jobs where micro-steps are that long, and nothing else counts."""
    sharing = Sharing(NO_BUDGET, 0.0, milliseconds / 1000)
    return Arm(gate(milliseconds), u, low=True, sharing=sharing)


def figures(*, thorough: bool) -> list[Arm]:
    """Return all arms. `thorough`: also A/A, and micro-steps of 10 ms."""
    arms = [LOW_ALONE, *hooked_alone()]
    for u in LOADS:
        arms.append(Arm(EXCLUSIVE, u, low=False))
        arms += [Arm(AGAIN, u, low=False)] if thorough else []
        arms += [*shared(u), strict(u)] if thorough else shared(u, quotas=_QUOTAS[1:])
    return arms


def hooked_alone() -> list[Arm]:
    """Return the arms of a lone job that has the hook, and no job to give way to."""
    return [
        Arm(HOOKED, None, low=True, sharing=DEFAULT),
        Arm(HOOKED, LOADS[0], low=False, sharing=DEFAULT),
    ]


def smoke() -> list[Arm]:
    """Return the fewest arms that show that everything works."""
    u = LOADS[0]
    return [LOW_ALONE, Arm(EXCLUSIVE, u, low=False), *shared(u, quotas=(5,))[:2]]


def rates(ends: Sequence[float], began: float, ended: float) -> list[float]:
    """Return the steps a second in each whole second from `began` to `ended`.

    A step counts in the seconds while it ran, each by its part.
    """
    edges = [began + second for second in range(int(ended - began + _ROUNDING) + 1)]
    made = np.interp(edges, ends, np.arange(len(ends), dtype=float))
    return [float(later - earlier) for earlier, later in pairwise(made)]


def work(trace: Iterable[str]) -> list[tuple[float, float]]:
    """Return from when to when the card had work of a job, in order, from the lines of its gate.

    What was begun at one `pass` is done at the `done` that the next one waits for.
    """
    words = [line.split() for line in trace]
    passed = [int(at) / 1e9 for word, at in words if word == "pass"]
    done = [int(at) / 1e9 for word, at in words if word == "done"]
    found: list[tuple[float, float]] = []
    for begin, end in zip(passed, done[1:], strict=False):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def latencies(came: Sequence[float], spans: Sequence[tuple[float, float]]) -> list[float]:
    """Return how long the card had work of low after each time that high came to it."""
    begins = [begin for begin, _ in spans]
    found = []
    for at in came:
        place = bisect_right(begins, at) - 1
        found.append(max(spans[place][1] - at, 0.0) if place >= 0 else 0.0)
    return found


def digests(losses: Sequence[str]) -> dict[str, str]:
    """Return a digest of the first losses, by how many they are: for every `EVERY` of them."""
    found, digest = {}, hashlib.sha256()
    for count, loss in enumerate(losses, start=1):
        digest.update(f"{loss}\n".encode())
        if count % EVERY == 0:
            found[str(count)] = digest.hexdigest()[:_DIGITS]
    return found


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
            {job.name: rates([step.at for step in _steps(job)], began, ended) for job in jobs},
            busy / (ended - began),
            waited / (ended - began),
            _preempted(agent, jobs, began, ended),
            {job.name: digests([step.loss for step in job.steps()]) for job in jobs},
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
    return Hooking(agent.hook, agent.folder(job), job == HIGH, traced)


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
