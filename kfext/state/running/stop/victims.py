"""Victims: the running jobs that may stop for a waiting job, in the order of their stops.

Order: jobs with a checkpoint, then by lowest priority, then by least cost per unit that helps
the waiting job. Earlier stops raise the cost. A unit is a GPU for a job that needs GPUs, or a core.
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
"""A job is not stopped again for this long after its first stop, doubled with each further stop."""
_LONGEST_REST_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job that may stop for a waiting job.

    `has_checkpoint`: whether it has reported a checkpoint.
    `lost_work`: the seconds of work that it loses if kfext stops it now.
    `restart_seconds`: the seconds that a stop and the next start cost it.
    `stops`: the number of its earlier stops. `size`: the number of units that it uses.
    """

    uid: str
    priority: int
    has_checkpoint: bool
    lost_work: float
    restart_seconds: float
    stops: int
    size: float

    def cost(self) -> float:
        """Return the cost of a stop, in unit-seconds."""
        return (self.lost_work + self.restart_seconds) * (1 + self.stops) * self.size


def in_stop_order(victims: Iterable[Victim], *, needed: float) -> list[Victim]:
    """Return victims in the order of their stops, for a waiting job that needs `needed` units."""

    def rank(victim: Victim) -> tuple[bool, int, float, str]:
        useful = max(min(victim.size, needed), 1e-9)
        return (not victim.has_checkpoint, victim.priority, victim.cost() / useful, victim.uid)

    return sorted(victims, key=rank)


def units(job: TrainingJob, *, waiting: TrainingJob) -> float:
    """Return the number of units of a job, at least 1: GPUs if `waiting` needs GPUs, else cores."""
    resource = NATIVE_GPU if waiting.requests.get(NATIVE_GPU) else CPU
    amount = job.requests.get(resource, 0)
    return max(1.0, amount / 1000 if resource == CPU else float(amount))


def rests_until(stop: StopState, *, now: float) -> float:
    """Return when a job may be stopped again, in epoch seconds; 0.0 if it was never stopped."""
    if not stop.count:
        return 0.0
    rest = exponential_backoff(stop.count, first=REST_SECONDS, longest=_LONGEST_REST_SECONDS)
    return past(stop.at, now=now) + rest


def lost_work(
    ready: Readiness, *, saved: float | None, began: float, next_save: float | None, now: float
) -> float:
    """Return the seconds of work that a job loses if kfext stops it now.

    `saved`: the time of its last checkpoint. `began`: its last start. `next_save`: the expected
    time of its next checkpoint without a request. All times are in epoch seconds.
    """
    if ready is Readiness.ASK or saves_soon(next_save, now=now):
        return 0.0
    return max(0.0, now - max(saved or 0.0, began))


def saves_soon(next_save: float | None, *, now: float) -> bool:
    """Return whether a job is expected to save its work unasked within ANSWER_SECONDS."""
    return next_save is not None and 0 <= next_save - now <= ANSWER_SECONDS
