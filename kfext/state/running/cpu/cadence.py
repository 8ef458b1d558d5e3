"""The condition and the opt-in of the CPU policies, and when they decide on which jobs.

A policy visits, which means decides on, all jobs of a group that shares nodes at its interval.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from kfext import names
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Resize
from kfext.model.policy import Mode
from kfext.state.running.policy import Condition
from kfext.state.running.signals import JobSignal

RESIZED = Condition(
    names.RESIZED,
    "Resize",
    names.REASON_RESIZE_REFUSED,
    frozenset(
        {
            *(names.REASON_CPU_MOVED, names.REASON_WOULD_MOVE, names.REASON_NOTHING_TO_MOVE),
            *(names.REASON_STANDS_DOWN, names.REASON_RESTS, names.REASON_RESIZE_REFUSED),
            *(names.REASON_TOO_EARLY, names.REASON_CPU_RESTORED),
        }
    ),
)
"""Whether the CPU of pods differs from what the user wrote."""

_MODES = {Resize.OFF: Mode.OFF, Resize.OBSERVE: Mode.OBSERVE, Resize.CPU: Mode.ACT}


def opted_in(settings: Settings) -> Mode:
    """Return the highest mode of CPU policies that the settings of a job allow."""
    return _MODES[settings.resize]


Neighbours = frozenset[str]
"""The uids of jobs that share nodes, directly or through others."""


def neighbourhoods(jobs: Iterable[JobSignal]) -> list[tuple[JobSignal, ...]]:
    """Return the jobs in groups so that no two groups share a node; a group is ordered by uid."""
    by_uid = attrgetter("uid")
    group_of: dict[str, list[JobSignal]] = {}
    groups: dict[int, list[JobSignal]] = {}
    for job in sorted(jobs, key=by_uid):
        near = {id(group): group for node in job.nodes if (group := group_of.get(node)) is not None}
        largest = max(near.values(), key=len, default=[])
        groups[id(largest)] = largest
        for group in near.values():
            if group is not largest:
                # The smaller group joins the larger, so a job changes its group only a few times.
                largest += group
                del groups[id(group)]
                group_of |= {node: largest for member in group for node in member.nodes}
        largest.append(job)
        group_of |= dict.fromkeys(job.nodes, largest)
    return [tuple(sorted(group, key=by_uid)) for group in groups.values()]


@dataclass(slots=True)
class _Visit:
    """The last visit of a policy to a group, in monotonic seconds; `first`: it was the first."""

    at: float
    first: bool = False


class Cadence:
    """The visits of a policy. A group that a job has joined or left is due at once.

    It stays due for an interval, because some measurements of its jobs are older than that change.
    """

    def __init__(self) -> None:
        self._visits: dict[Neighbours, _Visit] = {}

    def due(self, jobs: Iterable[JobSignal], *, interval: float, now: float) -> list[JobSignal]:
        """Return the jobs that are due now; `interval`: the seconds between two visits of a job.

        A group stays due while an operation on one of its jobs is in flight, because `arbitrate`
        drops other proposals for that job.
        """
        due: list[JobSignal] = []
        visits: dict[Neighbours, _Visit] = {}
        for group in neighbourhoods(jobs):
            key = frozenset(job.uid for job in group)
            visit = self._visits.get(key)
            busy = any(job.in_flight or job.settling for job in group)
            if visit is None or now >= visit.at + interval:
                visit = _Visit(at=-math.inf if busy else now, first=visit is None)
                due += group
            elif visit.first:
                due += group
            visits[key] = visit
        self._visits = visits
        return due
