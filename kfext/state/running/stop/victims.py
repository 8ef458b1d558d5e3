"""Victims: the running jobs that may stop for a waiting job, ordered by cost.

Order: jobs with a checkpoint, then the lowest priority, then the least lost work for each slot that
the waiting job needs. Earlier stops raise the cost of a job.
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
"""The time in which a job is not stopped again, doubled with each stop."""
_LONGEST_REST_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job that may stop for others. Times are in seconds.

    `saves`: whether it has shown a checkpoint.
    `unsaved`: the work that a stop by kfext loses. `restart`: the pause of a stop and a start.
    `stops`: the number of earlier stops.
    `size`: its number of slots, units of the same resource for all jobs.
    """

    uid: str
    priority: int
    saves: bool
    unsaved: float
    restart: float
    stops: int
    size: float

    def cost(self) -> float:
        """Return the cost of a stop, in slot-seconds."""
        return (self.unsaved + self.restart) * (1 + self.stops) * self.size


def by_cost(victims: Iterable[Victim], *, needed: float) -> list[Victim]:
    """Return victims in the order of their stops, for a job that needs `needed` slots."""

    def rank(victim: Victim) -> tuple[bool, int, float, str]:
        useful = max(min(victim.size, needed), 1e-9)
        return (not victim.saves, victim.priority, victim.cost() / useful, victim.uid)

    return sorted(victims, key=rank)


def slots(job: TrainingJob, *, waiting: TrainingJob) -> float:
    """Return the slots of a job: GPUs if the job `waiting` needs GPUs, else cores, at least 1."""
    resource = NATIVE_GPU if waiting.requests.get(NATIVE_GPU) else CPU
    amount = job.requests.get(resource, 0)
    return max(1.0, amount / 1000 if resource == CPU else float(amount))


def rests_until(stop: StopState, *, now: float) -> float:
    """Return the end of the rest after a job's last stop, 0.0 without a stop, in epoch seconds."""
    if not stop.count:
        return 0.0
    rest = exponential_backoff(stop.count, first=REST_SECONDS, longest=_LONGEST_REST_SECONDS)
    return past(stop.at, now=now) + rest


def unsaved(
    ready: Readiness, *, saved: float | None, began: float, next_save: float | None, now: float
) -> float:
    """Return the seconds of work that a job loses if kfext stops it.

    `saved`: the time of its last checkpoint. `began`: its last start. `next_save`: the expected
    time of its next checkpoint without a request. All are in epoch seconds.
    """
    if ready is Readiness.ASK or saves_soon(next_save, now=now):
        return 0.0
    return max(0.0, now - max(saved or 0.0, began))


def saves_soon(next_save: float | None, *, now: float) -> bool:
    """Return whether a job is expected to save its work without a request within the wait."""
    return next_save is not None and 0 <= next_save - now <= ANSWER_SECONDS
