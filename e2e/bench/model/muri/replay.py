"""Muri's published simulation of jobs that do not share GPUs: from one decision to the next.

Source: the simulator of Zhao et al., SIGCOMM 2022 (github.com/Rivendile/Muri, simulator/). The
scheduler decides when a job comes or ends, and when a job has attained so much that its rank
changes; there is no other tick. Then it chooses anew among all jobs. A job that stops keeps the
iterations that it has done, and goes on wherever there is room.

Its faults are kept, since the published figures contain them:
- Every decision costs every running job a start, whether the job stops, moves or just goes on. So
  a job that runs for less than a start between two decisions gets nothing done.
- Only a job that ends before the next decision is spared.

The simulator counts CPU and memory as well, but its nodes have more than their GPUs can use.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple, Protocol

from e2e.bench.model.muri.trace import Job
from e2e.bench.report import quantile
from kfext.errors import UserError

_TOGETHER = 1e-9
"""Jobs with ends that differ by this part of the time at most end at once."""


@dataclass(slots=True, eq=False)
class Live:
    """A job that has come and has not ended.

    `iterations`: how many it still has to do.
    `attained`: seconds that it has had its GPUs.
    """

    job: Job
    iterations: float
    attained: float = 0.0

    @property
    def remaining(self) -> float:
        """Seconds until it ends if it is not stopped."""
        return self.iterations * self.job.seconds

    def run(self, seconds: float) -> None:
        """Let it run from one decision to the next, a start included."""
        self.attained += seconds
        self.iterations -= max(seconds - self.job.start, 0) / self.job.seconds


class Scheduler(Protocol):
    """Says which jobs run."""

    def add(self, live: Live) -> None:
        """Register a job that has come."""

    def remove(self, live: Live) -> None:
        """Forget a job that has ended."""

    def choose(self) -> Sequence[Live]:
        """Return the jobs that run until the next decision; all others wait."""

    def holds(self) -> float:
        """Return for how many seconds the choice holds if no job comes or ends."""


class Ended(NamedTuple):
    """A job and the second of its end."""

    job: Job
    at: float


class Figures(NamedTuple):
    """What is published of a replay, in seconds: mean and 99th percentile of the JCT, last end."""

    mean: float
    makespan: float
    p99: float


def replay(jobs: Sequence[Job], scheduler: Scheduler) -> list[Ended]:
    """Return the jobs, which are in order of arrival, in order of their ends.

    Raises UserError if a job never fits.
    """
    arrivals, running, ended = deque(jobs), list[Live](), list[Ended]()
    now = 0.0
    while arrivals or running:
        came = arrivals[0].submitted if arrivals else math.inf
        first = min((now + live.remaining for live in running), default=math.inf)
        then = min(came, first, now + scheduler.holds())
        for live in running:
            if first == then and now + live.remaining <= first * (1 + _TOGETHER):
                ended.append(Ended(live.job, then))
                scheduler.remove(live)
            else:
                live.run(then - now)
        now = then
        while arrivals and arrivals[0].submitted <= now:
            job = arrivals.popleft()
            scheduler.add(Live(job, job.iterations))
        running = list(scheduler.choose())
    if len(ended) < len(jobs):
        raise UserError(f"{len(jobs) - len(ended)} jobs need more GPUs than the cluster has")
    return ended


def figures(ended: Sequence[Ended]) -> Figures:
    """Return the published figures of a replay; the makespan counts from second 0."""
    times = [at - job.submitted for job, at in ended]
    return Figures(fmean(times), max(at for _, at in ended), quantile(times, 0.99))
