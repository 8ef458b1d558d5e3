"""What the policies for CPU share: their condition, the opt-in, and when they look at jobs.

A policy visits jobs that share nodes at its interval.
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
    """Return the most that a job lets policies do with the CPU of its pods."""
    return _MODES[settings.resize]


Neighbours = frozenset[str]
"""The uids of jobs that share nodes, directly or through others."""


def neighbourhoods(jobs: Iterable[JobSignal]) -> list[tuple[JobSignal, ...]]:
    """Return the jobs in groups without a common node, each group in order of uid."""
    by_uid = attrgetter("uid")
    group_of: dict[str, list[JobSignal]] = {}
    groups: dict[int, list[JobSignal]] = {}
    for job in sorted(jobs, key=by_uid):
        met = {id(group): group for node in job.nodes if (group := group_of.get(node)) is not None}
        largest = max(met.values(), key=len, default=[])
        groups[id(largest)] = largest
        for group in met.values():
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
    """When a policy last visited neighbours; `first`: whether that was the first visit."""

    at: float
    first: bool = False


class Cadence:
    """Follows one policy. A job that comes or goes makes new neighbours, which are due at once.

    They stay due for one interval, because some of their figures are older than the change.
    """

    def __init__(self) -> None:
        self._turns: dict[Neighbours, _Turn] = {}

    def due(self, jobs: Iterable[JobSignal], *, interval: float, now: float) -> list[JobSignal]:
        """Return the jobs that are due now; `interval`: the seconds between two looks at a job.

        Neighbours stay due while an operation is in flight, because arbitration drops proposals for
        that job.
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
