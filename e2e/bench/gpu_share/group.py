"""Six jobs, three of each priority: one after the other on a card, or two at a time."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any, Self

from e2e.bench.gpu_share.cards import Card, Python
from e2e.bench.gpu_share.processes import Agent, Bench, Hooking, Job, bench
from e2e.bench.gpu_share.run import DEFAULT

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Member:
    """A job of the group. `u`: the part of the time that it alone keeps the card busy."""

    name: str
    high: bool
    u: float


MEMBERS = (
    Member("high-1", high=True, u=0.4),
    Member("low-1", high=False, u=0.9),
    Member("high-2", high=True, u=0.6),
    Member("low-2", high=False, u=0.7),
    Member("high-3", high=True, u=0.8),
    Member("low-3", high=False, u=0.5),
)
"""In the order in which they were submitted, all at once."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to share the card. `lines`: the jobs of one line run one after the other."""

    name: str
    lines: tuple[tuple[Member, ...], ...]
    hooked: bool


_BY_PRIORITY = tuple(
    tuple(member for member in MEMBERS if member.high is high) for high in (True, False)
)
EXCLUSIVE = Way("exclusive, one after the other", (MEMBERS,), hooked=False)
NATIVE = Way("native, one of each priority at a time", _BY_PRIORITY, hooked=False)
GATED = Way("kfext, one of each priority at a time", _BY_PRIORITY, hooked=True)
WAYS = (EXCLUSIVE, NATIVE, GATED)


@dataclass(frozen=True, slots=True)
class Pace:
    """The training alone: seconds of a step without loading, and of the card in a step."""

    step: float
    busy: float

    def load(self, u: float) -> float:
        """Return the seconds of loading in a step such that the card is busy for `u`."""
        return max(self.busy / u - self.step, 0.0)

    def steps(self, u: float, seconds: float) -> int:
        """Return the number of these steps in some seconds."""
        return max(round(seconds / (self.step + self.load(u))), 1)


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The end of each job, in seconds since the submission; the busy part of the card's time."""

    ended: Mapping[str, float]
    busy: float

    @property
    def makespan(self) -> float:
        """The end of the last job."""
        return max(self.ended.values())

    def stored(self) -> Object:
        return asdict(self)

    @classmethod
    def restore(cls, stored: Object) -> Self:
        return cls(**stored)


def run_group(card: Card, python: Python, way: Way, *, pace: Pace, seconds: float) -> GroupOutcome:
    """Return the outcome of the group; each job needs `seconds` alone. Raises SpoiledError."""
    with bench(card, python) as place:
        return asyncio.run(_run(place, way, pace=pace, seconds=seconds))


async def _run(place: Bench, way: Way, *, pace: Pace, seconds: float) -> GroupOutcome:
    async with AsyncExitStack() as stack:
        stack.callback(place.kill_all)
        agent = None
        if way.hooked:
            agent = await stack.enter_async_context(Agent(place.folder).running())
        # They start and load their model before, so that they wait only for the card.
        jobs = {
            member: place.start(
                member.name,
                load=pace.load(member.u),
                steps=pace.steps(member.u, seconds),
                hooking=Hooking(agent.hook, agent.folder(member.name), member.high)
                if agent
                else None,
            )
            for member in MEMBERS
        }
        for job in jobs.values():
            await job.ready()
        began, busy = monotonic(), place.busy()
        ended: dict[str, float] = {}
        await asyncio.gather(*(_line(agent, line, jobs, ended) for line in way.lines))
        lasted = monotonic() - began
        since = {name: at - began for name, at in ended.items()}
        return GroupOutcome(since, (place.busy() - busy) / lasted)


async def _line(
    agent: Agent | None, line: Sequence[Member], jobs: Mapping[Member, Job], ended: dict[str, float]
) -> None:
    for member in line:
        if agent:
            agent.admit(member.name, DEFAULT.terms(high=member.high))
        jobs[member].begin()
        await asyncio.to_thread(jobs[member].wait)
        ended[member.name] = jobs[member].steps()[-1].at
        if agent:
            agent.dismiss(member.name)
