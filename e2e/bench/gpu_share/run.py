"""A run of an arm: the jobs warm up, and a window is measured.

The arms are the jobs on the card and their way to share it. The readings (rates, latencies, digests
of losses) are pure functions of the output of the jobs.
"""

import asyncio
import hashlib
import json
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any, Self

import numpy as np

from e2e.bench.gpu_share.cards import Card, Python
from e2e.bench.gpu_share.processes import STEADY, Agent, Bench, Hooking, Job, bench
from e2e.bench.store import SpoiledError
from e2e.testbed.preflight import Unavailable
from kfext.gpu.agent.hook_files import lay_out
from kfext.model.gpu import GpuShare

HIGH, LOW = "high", "low"
LOADS = (0.5, 0.8, 0.9)
"""The parts of the time that the job of high priority should keep the card busy."""
PAUSES = (STEADY, "spread", "bursts")
"""The distributions of the pauses of that job, see `share.py`."""
EXCLUSIVE, AGAIN, NATIVE = "exclusive", "exclusive again (A/A)", "native"
BUDGET, STRICT = "kfext, budget 5 %, minimum 20 %", "kfext, budget 2 %, minimum 20 %"
HOOKED = "exclusive, with the hook"
EVERY = 20
"""Steps between two digests of losses."""
_DIGITS = 12
_ROUNDING = 1e-6
_NEAR = 50
"""The number of ends of work, before and after an end, that show the delay of a waiting thread."""
_SAMPLED = 20
"""One of this number of values is stored."""
Object = dict[str, Any]
WARM_UP_SECONDS = 8.0
"""The time in which the agent first pauses low, and the hook mostly chooses its gates."""
_LONGEST_WARM_UP_SECONDS = 90.0
"""The time after which a run is spoiled without gates: the hook needs some steps of low."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The terms of hooked jobs: high's loss budget, and low's minimum."""

    budget: float
    minimum: float

    def terms(self, *, high: bool) -> GpuShare:
        """Return the terms of a job of a priority."""
        units = 50 if high else 30
        return GpuShare(units, high=high, loss_budget=self.budget, min_share=self.minimum)


DEFAULT = Sharing(budget=0.05, minimum=0.2)
"""The default of kfext, without an annotation."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A set-up. `u`: of high, None without high; `sharing`: None without the hook."""

    name: str
    u: float | None
    low: bool
    sharing: Sharing | None = None
    pauses: str = STEADY

    @property
    def title(self) -> str:
        """Its unique title."""
        jobs = "low alone" if self.u is None else f"u {self.u:g}, {self.pauses} pauses"
        return f"{self.name}, {jobs}"

    @property
    def jobs(self) -> tuple[str, ...]:
        return (*([] if self.u is None else [HIGH]), *([LOW] if self.low else []))


LOW_ALONE = Arm(EXCLUSIVE, None, low=True)


def exclusive(u: float, pauses: str = STEADY) -> Arm:
    """Return the arm of high alone."""
    return Arm(EXCLUSIVE, u, low=False, pauses=pauses)


def native(u: float) -> Arm:
    """Return the arm with both jobs and without kfext."""
    return Arm(NATIVE, u, low=True)


def gated(u: float, pauses: str = STEADY) -> Arm:
    """Return the arm with both jobs and kfext's defaults."""
    return Arm(BUDGET, u, low=True, sharing=DEFAULT, pauses=pauses)


def strict(u: float) -> Arm:
    """Return the arm with both jobs and a smaller loss budget of high."""
    return Arm(STRICT, u, low=True, sharing=Sharing(budget=0.02, minimum=0.2))


def figures(*, thorough: bool) -> list[Arm]:
    """Return all arms. `thorough`: also A/A, a small budget, and high that is almost always busy.

    A repeat of the others takes a quarter of an hour.
    """
    arms = [LOW_ALONE, *hooked_alone()]
    for u in LOADS if thorough else LOADS[:2]:
        for pauses in PAUSES if thorough else PAUSES[:2]:
            arms += [exclusive(u, pauses), gated(u, pauses)]
        arms.append(native(u))
        arms += [Arm(AGAIN, u, low=False), strict(u)] if thorough else []
    return arms


def hooked_alone() -> list[Arm]:
    """Return the arms of a lone job with the hook, and without a job to yield to."""
    return [
        Arm(HOOKED, None, low=True, sharing=DEFAULT),
        Arm(HOOKED, LOADS[0], low=False, sharing=DEFAULT),
    ]


def smoke() -> list[Arm]:
    """Return the fewest arms that show that everything works."""
    u = LOADS[0]
    return [LOW_ALONE, exclusive(u), native(u), gated(u)]


def wakes(card: Card, python: Python) -> list[Object]:
    """Return the lines of `wakes.py`, which needs a GPU. Raises SpoiledError, Unavailable."""
    if card.simulated:
        raise Unavailable("the delay of CUDA's wakes needs a GPU: --card cuda")
    with bench(card, python) as place:
        hook = lay_out(place.folder / "hook", busybox=Path(__file__))
        job = place.run("wakes", [f"{place.scripts}/wakes.py", python.inside(hook)])
        job.wait()
        return [json.loads(line) for line in job.said()]


def rates(ends: Sequence[float], began: float, ended: float) -> list[float]:
    """Return the steps a second in each whole second from `began` to `ended`.

    A step counts in each second for the part of it in that second.
    """
    edges = [began + second for second in range(int(ended - began + _ROUNDING) + 1)]
    steps = np.interp(edges, ends, np.arange(len(ends), dtype=float))
    return [float(later - earlier) for earlier, later in pairwise(steps)]


def ends(trace: Iterable[str]) -> tuple[list[float], list[float]]:
    """Return the ends of work on the card, and the delay of a blocked thread for each, in seconds.

    Among ends near each other, the least delay counts as 0: the card reports the time between two
    ends by a clock of its own.
    """
    lines = [line.split()[1:] for line in trace if line.startswith("done")]
    seen, passed = (np.array([int(line[column]) for line in lines]) / 1e9 for column in (0, 1))
    ahead = seen - np.cumsum(passed)
    near = [ahead[max(at - _NEAR, 0) : at + _NEAR + 1].min() for at in range(len(ahead))]
    late = ahead - np.array(near)
    return list(map(float, seen - late)), list(map(float, late))


def work(trace: Sequence[str]) -> list[tuple[float, float]]:
    """Return the spans in which the card had work of a job, in order, from the trace of its gate.

    Work that began at a `pass` has ended at the `done` of the next `pass`.
    """
    passed = [int(line.split()[1]) / 1e9 for line in trace if line.startswith("pass")]
    spans: list[tuple[float, float]] = []
    for begin, end in zip(passed, ends(trace)[0][1:], strict=False):
        if spans and begin <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((begin, end))
    return spans


def latencies(came: Sequence[float], spans: Sequence[tuple[float, float]]) -> list[float]:
    """Return the time that the card still had work of low after each arrival of high."""
    begins = [begin for begin, _ in spans]
    seconds = []
    for at in came:
        number = bisect_right(begins, at) - 1
        seconds.append(max(spans[number][1] - at, 0.0) if number >= 0 else 0.0)
    return seconds


def digests(losses: Sequence[str]) -> dict[str, str]:
    """Return digests of the first losses, by their number, for each multiple of `EVERY`."""
    by_count, digest = {}, hashlib.sha256()
    for count, loss in enumerate(losses, start=1):
        digest.update(f"{loss}\n".encode())
        if count % EVERY == 0:
            by_count[str(count)] = digest.hexdigest()[:_DIGITS]
    return by_count


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a window.

    `rates`: by job, the steps a second in each second of the window; `busy`: the part of the window
    that the card was busy; `cpu`: by job, the part that its threads used a CPU, in sum, with the
    polls of the hook; `cpu_wait`: the part that threads of the jobs waited for a CPU;
    `preempted`: the seconds from each time that high became busy until the card had finished low's
    work; `wakes`: the delays of a blocked thread after the ends of low's work; `losses`: see
    `digests`; `micro_step`: low's longest micro-step on its own, in seconds; `gates`: the gates
    that it passed a second, None without a gate; `idle`: the parts that the card was idle, by the
    jobs before and after.
    """

    rates: Mapping[str, Sequence[float]]
    busy: float
    cpu: Mapping[str, float]
    cpu_wait: float
    preempted: Sequence[float]
    wakes: Sequence[float]
    losses: Mapping[str, Mapping[str, str]]
    micro_step: float | None = None
    gates: float | None = None
    idle: Mapping[str, float] = field(default_factory=dict)

    def stored(self) -> Object:
        return asdict(self)

    @classmethod
    def restore(cls, stored: Object) -> Self:
        return cls(**stored)


def run(card: Card, python: Python, arm: Arm, *, load: float, seconds: float) -> Outcome:
    """Return the outcome of an arm in a window of some seconds. Raises SpoiledError.

    `load`: the seconds that high loads data in each step.
    """
    with bench(card, python) as place:
        return asyncio.run(_run(place, arm, load=load, seconds=seconds))


async def _run(place: Bench, arm: Arm, *, load: float, seconds: float) -> Outcome:
    async with training(place, arm, load=load) as (agent, jobs):
        await asyncio.sleep(WARM_UP_SECONDS)
        gates = None if agent is None or LOW not in arm.jobs else await _chosen_gates(agent)
        busy, cpu, began = place.busy(), [job.cpu() for job in jobs], monotonic()
        idle_before = place.idle()
        await asyncio.sleep(seconds)
        busy, ended = place.busy() - busy, monotonic()
        used = [
            [(now - before) / (ended - began) for before, now in zip(first, job.cpu(), strict=True)]
            for first, job in zip(cpu, jobs, strict=True)
        ]
        idle = {
            span: (seconds - idle_before.get(span, 0.0)) / (ended - began)
            for span, seconds in place.idle().items()
        }
        passed = None if gates is None else gates.passed() / (ended - began)
        place.kill_all()
        traced = [job.trace() for job in jobs if agent and len(jobs) > 1 and job.name == LOW]
        came = [at for at in agent.became_busy if began <= at < ended] if agent else []
        return Outcome(
            {job.name: rates([step.at for step in _steps(job)], began, ended) for job in jobs},
            busy / (ended - began),
            {job.name: ran for job, (ran, _) in zip(jobs, used, strict=True)},
            sum(waited for _, waited in used),
            [late for trace in traced for late in latencies(came, work(trace))],
            [late for trace in traced for late in ends(trace)[1][::_SAMPLED]],
            {job.name: digests([step.loss for step in job.steps()]) for job in jobs},
            None if gates is None else gates.longest,
            passed,
            idle,
        )


async def _chosen_gates(agent: Agent) -> "_Gates":
    """Wait until the hook has chosen the gates of low, and return these. Raises SpoiledError."""
    deadline = monotonic() + _LONGEST_WARM_UP_SECONDS - WARM_UP_SECONDS
    while not agent.is_calibrated(LOW):
        if monotonic() > deadline:
            raise SpoiledError("the hook has not chosen its gates in time")
        await asyncio.sleep(0.5)
    return _Gates(agent)


class _Gates:
    """The gates of low from now on."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._before = agent.micro_steps(LOW)
        self.longest = agent.longest_micro_step(LOW)

    def passed(self) -> int:
        """Return the number of gates that low has passed since."""
        return self._agent.micro_steps(LOW) - self._before


@asynccontextmanager
async def training(
    place: Bench, arm: Arm, *, load: float
) -> AsyncIterator[tuple[Agent | None, Sequence[Job]]]:
    """Train the jobs of an arm during the block, with the agent's part if the arm has the hook.

    `load`: see `run`. Raises SpoiledError.
    """
    loads = {HIGH: load, LOW: 0.0}
    async with AsyncExitStack() as stack:
        stack.callback(place.kill_all)
        agent = None
        if arm.sharing is not None:
            agent = await stack.enter_async_context(Agent(place.folder).running())
        jobs = [
            place.start(
                name, load=loads[name], loads=arm.pauses, hooking=_hooking(agent, arm, name)
            )
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
