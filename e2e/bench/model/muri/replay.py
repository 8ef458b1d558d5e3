"""Muri's published simulation of jobs that do not share GPUs, decision by decision.

Source: the simulator of Zhao et al., SIGCOMM 2022 (github.com/Rivendile/Muri, simulator/). The
scheduler decides when a job arrives or ends, and when the attained service of a job changes its
rank; there are no ticks. Each time it chooses again among all jobs. A stopped job keeps its
finished iterations, and resumes on any free GPUs.

Its faults are kept, since the published figures contain them:
- Every decision costs every running job the time of a start, whether the job stops, moves or
  continues; only a job that ends before the next decision is exempt. So a job makes no progress
  between two decisions that are less than a start apart.

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

_TIE_TOLERANCE = 1e-9
"""Jobs end together if their ends differ by at most this fraction of the time."""


@dataclass(slots=True, eq=False)
class Live:
    """A job that has arrived and has not ended.

    `iterations`: the remaining number of iterations.
    `attained`: for how many seconds it has had its GPUs.
    """

    job: Job
    iterations: float
    attained: float = 0.0

    @property
    def remaining(self) -> float:
        """The seconds until its end if it is not stopped."""
        return self.iterations * self.job.seconds

    def run(self, seconds: float) -> None:
        """Run it from one decision to the next, with a start at the first."""
        self.attained += seconds
        self.iterations -= max(seconds - self.job.start, 0) / self.job.seconds


class Scheduler(Protocol):
    """Chooses the running jobs."""

    def add(self, live: Live) -> None:
        """Add a job that has arrived."""

    def remove(self, live: Live) -> None:
        """Remove a job that has ended."""

    def choose(self) -> Sequence[Live]:
        """Return the jobs that run until the next decision; all others wait."""

    def holds(self) -> float:
        """Return how many seconds the choice holds if no job arrives or ends."""


class Ended(NamedTuple):
    """A job and the second of its end."""

    job: Job
    at: float


class Figures(NamedTuple):
    """The published results, in seconds: mean and p99 of job completion times, and makespan."""

    mean: float
    makespan: float
    p99: float


def replay(jobs: Sequence[Job], scheduler: Scheduler) -> list[Ended]:
    """Return the jobs with their ends, in order of end. `jobs`: in order of arrival.

    Raises UserError if a job never fits.
    """
    arrivals, running, ended = deque(jobs), list[Live](), list[Ended]()
    now = 0.0
    while arrivals or running:
        next_arrival = arrivals[0].submitted if arrivals else math.inf
        next_end = min((now + live.remaining for live in running), default=math.inf)
        next_time = min(next_arrival, next_end, now + scheduler.holds())
        for live in running:
            if next_end == next_time and now + live.remaining <= next_end * (1 + _TIE_TOLERANCE):
                ended.append(Ended(live.job, next_time))
                scheduler.remove(live)
            else:
                live.run(next_time - now)
        now = next_time
        while arrivals and arrivals[0].submitted <= now:
            job = arrivals.popleft()
            scheduler.add(Live(job, job.iterations))
        running = list(scheduler.choose())
    if len(ended) < len(jobs):
        raise UserError(f"{len(jobs) - len(ended)} jobs need more GPUs than the cluster has")
    return ended


def figures(ended: Sequence[Ended]) -> Figures:
    """Return the results of a replay; the makespan counts from second 0."""
    times = [at - job.submitted for job, at in ended]
    return Figures(fmean(times), max(at for _, at in ended), quantile(times, 0.99))
