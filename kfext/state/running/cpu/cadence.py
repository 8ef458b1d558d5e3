"""The condition and the opt-in of the CPU policies, and the times of their visits.

A policy visits the jobs of a group that shares nodes at its interval.
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
"""Whether pods have other CPU than the user wrote."""

_MODES = {Resize.OFF: Mode.OFF, Resize.OBSERVE: Mode.OBSERVE, Resize.CPU: Mode.ACT}


def opted_in(settings: Settings) -> Mode:
    """Return the highest mode of CPU policies that a job allows."""
    return _MODES[settings.resize]


Neighbours = frozenset[str]
"""The uids of jobs that share nodes, directly or through others."""


def neighbourhoods(jobs: Iterable[JobSignal]) -> list[tuple[JobSignal, ...]]:
    """Return the jobs in groups that share no node with each other, each in order of uid."""
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
class _Turn:
    """The last visit of a policy to neighbours; `first`: whether it was the first visit."""

    at: float
    first: bool = False


class Cadence:
    """The visits of a policy. A new or ended job makes new neighbours, which are due at once.

    They stay due for an interval, because some of their measurements are older than the change.
    """

    def __init__(self) -> None:
        self._turns: dict[Neighbours, _Turn] = {}

    def due(self, jobs: Iterable[JobSignal], *, interval: float, now: float) -> list[JobSignal]:
        """Return the jobs that are due now; `interval`: the seconds between two visits of a job.

        Neighbours stay due while an operation is in flight, because arbitration drops the
        proposals for its job.
        """
        due: list[JobSignal] = []
        turns: dict[Neighbours, _Turn] = {}
        for group in neighbourhoods(jobs):
            key = frozenset(job.uid for job in group)
            turn = self._turns.get(key)
            busy = any(job.in_flight or job.settling for job in group)
            if turn is None or now >= turn.at + interval:
                turn = _Turn(at=-math.inf if busy else now, first=turn is None)
                due += group
            elif turn.first:
                due += group
            turns[key] = turn
        self._turns = turns
        return due
