"""Invariants of each change of size: which jobs it helps, and when and how far jobs grow."""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from kfext.model.job_state import state_of
from kfext.sim.cluster import URGENT, Cluster
from kfext.sim.jobs import Style
from kfext.sim.objects import LiveJob
from kfext.state.running.proposal import Cause

WAIT = 5.0
"""Seconds that a job waits before other jobs give workers for it."""
IDLE = 10.0
"""Seconds in which nothing starts and no size changes before a job grows."""
CEILING = 0.97
"""The largest fraction of all CPU that is requested while a job has more workers than requested."""
_LATE = 4.0
"""The most seconds from a decision to its write; the decision ignores what happens in between."""
_SAVES = 120.0
"""The most seconds in which a job saves its work before a change; a job with servers need not."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A number of workers that was written at a second.

    `waiting`: the jobs in the queue then, or up to _LATE seconds before.
    """

    workers: int
    at: float
    waiting: tuple[LiveJob, ...]


class ChangeRules:
    """Watches a cluster, and judges each change of a size."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._numbers: dict[str, _Number] = {}
        self._requested: dict[str, list[tuple[float, int]]] = {}
        self._acts = [0.0]
        self._queues: deque[tuple[float, tuple[LiveJob, ...]]] = deque()
        cluster.on_second.append(self._record_queue)
        cluster.api.on_job.append(self._observe)

    def broken(self, live: LiveJob, before: int, *, last: tuple[int, int] | None) -> Iterator[str]:
        """Yield the rules that a change from `before` workers to the present number breaks.

        `last`: the numbers of workers before and after the job's previous change.
        """
        number = self._numbers[live.spec.name]
        if number.workers > before:
            yield from self._growth(live, number)
            return
        took_back = last is not None and last[0] <= number.workers < before == last[1]
        if not took_back or state_of(live.job).scale.cause == Cause.RESCUE:
            yield from self._giving(live, number)

    def _giving(self, live: LiveJob, number: _Number) -> Iterator[str]:
        long = [job for job in number.waiting if number.at - job.spec.arrives >= WAIT]
        if not long:
            yield f"gave workers, and no job had waited for {WAIT:g} s"
        elif all(priority(job) < priority(live) for job in long):
            yield "gave workers for a job of a lower priority"

    def _growth(self, live: LiveJob, number: _Number) -> Iterator[str]:
        if number.workers <= live.spec.workers and not state_of(live.job).scale.largest:
            return  # it had shown no step, and gets its requested size at once
        saves = 0.0 if live.spec.style is Style.SERVERS else _SAVES
        acts = [*(at for at in self._acts if at < number.at), number.at]
        if not any(
            later - earlier >= IDLE - _LATE and later >= number.at - saves - _LATE
            for earlier, later in pairwise(acts)
        ):
            yield f"grew without {IDLE:g} s in which nothing started or changed"
        if number.workers > live.spec.workers:
            total = sum(size.cpu for size in self._cluster.world.nodes.values())
            requested = live.job.pods * live.spec.cpu + sum(
                self._least(name, number.at) for name in self._requested if name != live.spec.name
            )
            if requested > CEILING * total:
                yield f"grew beyond what it asked for, with {requested}m of {total}m requested"

    def _least(self, name: str, at: float) -> int:
        """Return the fewest millicores that a job requested at a time, or up to _LATE s before."""
        known = [(-math.inf, 0), *self._requested[name], (math.inf, 0)]
        return min(
            millicores
            for (since, millicores), (until, _) in pairwise(known)
            if since <= at and until >= at - _LATE
        )

    # --- observations ---------------------------------------------------------------------------

    def _observe(self, live: LiveJob) -> None:
        name, now = live.spec.name, self._cluster.clock.now
        stopped = live.job.suspend or live.job.finished
        millicores = 0 if stopped else live.job.pods * live.spec.cpu
        requested = self._requested.setdefault(name, [])
        if not requested or requested[-1][1] != millicores:
            requested.append((now, millicores))
            if millicores:
                self._acts.append(now)
        known = self._numbers.get(name)
        if known is None or known.workers != live.workers:
            before = [live for at, queue in self._queues if at >= now - _LATE for live in queue]
            self._numbers[name] = _Number(live.workers, now, (*before, *self._waiting()))

    def _record_queue(self) -> None:
        now = self._cluster.clock.now
        self._queues.append((now, self._waiting()))
        while self._queues[0][0] < now - _LATE:
            self._queues.popleft()

    def _waiting(self) -> tuple[LiveJob, ...]:
        jobs = self._cluster.jobs
        return tuple(live for live in jobs if live.job.in_queue and live.training.began is None)


def priority(live: LiveJob) -> int:
    """Return the value of a job's PriorityClass."""
    return URGENT.value if live.spec.priority == URGENT.name else 0
