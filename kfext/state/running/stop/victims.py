"""Victims: the running jobs that may stop for a waiting job, in the order of what that costs.

Order: jobs that show a checkpoint, then the lowest priority, then the least work that is done again
for each slot that the waiting job needs. A job that was stopped before costs more.
Source of the order: trials on random clusters, docs/reports/stops.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kfext.model.backoff import exponential_backoff
from kfext.model.job import TrainingJob
from kfext.model.quantity import CPU
from kfext.model.scale_state import StopState
from kfext.model.timestamps import past
from kfext.names import NATIVE_GPU
from kfext.state.running.operation import ANSWER_SECONDS, Readiness

REST_SECONDS = 600.0
"""A job is not stopped again for this long, doubled with each stop."""
_LONGEST_REST_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job that may stop for others. Times are in seconds.

    `saves`: whether it has shown a checkpoint.
    `unsaved`: the work that it does again if it stops as kfext stops it.
    `restart`: the pause for a stop and a start.
    `stops`: how often it was stopped before.
    `size`: how many slots it has, in units of the same resource for all jobs.
    """

    uid: str
    priority: int
    saves: bool
    unsaved: float
    restart: float
    stops: int
    size: float

    def cost(self) -> float:
        """Return what a stop costs, in slot-seconds."""
        return (self.unsaved + self.restart) * (1 + self.stops) * self.size


def by_cost(victims: Iterable[Victim], *, needed: float) -> list[Victim]:
    """Return victims in the order in which they stop, for a job that needs so many slots."""

    def turn(victim: Victim) -> tuple[bool, int, float, str]:
        useful = max(min(victim.size, needed), 1e-9)
        return (not victim.saves, victim.priority, victim.cost() / useful, victim.uid)

    return sorted(victims, key=turn)


def slots(job: TrainingJob, *, of: TrainingJob) -> float:
    """Return how many slots a job has: GPUs if the job `of` needs GPUs, else cores, at least 1."""
    resource = NATIVE_GPU if of.requests.get(NATIVE_GPU) else CPU
    amount = job.requests.get(resource, 0)
    return max(1.0, amount / 1000 if resource == CPU else float(amount))


def rests_until(stop: StopState, *, now: float) -> float:
    """Return until when a job is not stopped again; both in epoch seconds, 0.0: it may be."""
    if not stop.count:
        return 0.0
    rest = exponential_backoff(stop.count, first=REST_SECONDS, longest=_LONGEST_REST_SECONDS)
    return past(stop.at, now=now) + rest


def unsaved(
    ready: Readiness, *, saved: float | None, began: float, next_save: float | None, now: float
) -> float:
    """Return the seconds of work that a job does again if kfext stops it.

    `saved`: the time of its last checkpoint, `began`: of its last start, `next_save`: when it is
    expected to save by itself; all in epoch seconds.
    """
    if ready is Readiness.ASK or saves_soon(next_save, now=now):
        return 0.0
    return max(0.0, now - max(saved or 0.0, began))


def saves_soon(next_save: float | None, *, now: float) -> bool:
    """Return whether a job is expected to save its work by itself while kfext waits for that."""
    return next_save is not None and 0 <= next_save - now <= ANSWER_SECONDS
