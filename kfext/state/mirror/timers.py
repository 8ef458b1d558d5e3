"""Choosing the next jobs: in queue order, by time, namespace by namespace, or a few at a time."""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from kfext.core.queue.order import QueueKey
from kfext.state.mirror.tracked_job import TrackedJob


class RoundQueue:
    """The jobs of this round and of the next round, in queue order; each job is once in a round.

    A job that changes joins the round unless it has had its turn. Then it waits for the next round,
    so that jobs that change again and again do not delay the jobs behind them.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[QueueKey, str]] = []
        self._jobs: dict[str, TrackedJob] = {}
        self._served: set[str] = set()
        self._next: dict[str, tuple[TrackedJob, QueueKey]] = {}

    def __len__(self) -> int:
        return len(self._jobs) + len(self._next)

    @property
    def is_over(self) -> bool:
        """Whether no job is left in this round."""
        return not self._jobs

    def add(self, tracked: TrackedJob, key: QueueKey) -> None:
        """Add a job to this round, or to the next round if it has had its turn."""
        uid = tracked.job.uid
        if uid in self._served:
            self._next[uid] = (tracked, key)
        elif uid not in self._jobs:
            self._jobs[uid] = tracked
            heapq.heappush(self._heap, (key, uid))

    def pop(self) -> TrackedJob | None:
        """Remove and return the first job of this round, or None at the end of the round."""
        if not self._heap:
            return None
        _, uid = heapq.heappop(self._heap)
        self._served.add(uid)
        return self._jobs.pop(uid)

    def begin_round(self) -> None:
        """Begin the next round, which includes the remaining jobs of this round."""
        self._served.clear()
        waiting, self._next = self._next, {}
        for tracked, key in waiting.values():
            self.add(tracked, key)


_SPARE = 64
"""The number of outdated entries that are tolerated before the heap is rebuilt."""


class Timers:
    """Alarms by the uid of a job or pod, at most one alarm for each. Times are in seconds.

    A new alarm replaces the earlier alarm.
    """

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, uid: str) -> bool:
        return uid in self._at

    def set(self, uid: str, at: float) -> None:
        """Set the alarm of a uid to the time `at`."""
        self._at[uid] = at
        heapq.heappush(self._heap, (at, uid))
        if len(self._heap) > 2 * len(self._at) + _SPARE:
            self._heap = [(when, other) for other, when in self._at.items()]
            heapq.heapify(self._heap)

    def forget(self, uid: str) -> None:
        """Remove the alarm of a uid, if it has an alarm."""
        self._at.pop(uid, None)

    def next(self) -> float:
        """Return when the next alarm rings; infinity means that no alarm is set."""
        self._drop_outdated()
        return self._heap[0][0] if self._heap else math.inf

    def due(self, now: float) -> list[str]:
        """Remove the alarms that ring by `now`, and return their uids."""
        due = []
        while self.next() <= now:
            _, uid = heapq.heappop(self._heap)
            del self._at[uid]
            due.append(uid)
        return due

    def _drop_outdated(self) -> None:
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)


class FairQueue:
    """The uids of jobs that wait for a scarce resource; their namespaces take turns.

    Within a namespace jobs are served in the order in which they were added.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, namespace: str, uid: str) -> None:
        """Add a job behind the other jobs of its namespace."""
        self._waiting.setdefault(namespace, deque()).append(uid)

    def add_first(self, namespace: str, uid: str) -> None:
        """Add a job before the other jobs of its namespace."""
        self._waiting.setdefault(namespace, deque()).appendleft(uid)

    def next(self) -> str:
        """Remove and return the first job of the next namespace."""
        namespace, uids = next(iter(self._waiting.items()))
        del self._waiting[namespace]
        uid = uids.popleft()
        if uids:
            self._waiting[namespace] = uids  # behind all other namespaces
        return uid


_Item = TypeVar("_Item")


class RoundRobin:
    """Visits a sequence in turn, `most` items at a time; the sequence may change in between."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = 0

    def some(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """Return the next items; the first item follows the last."""
        start = self._next if self._next < len(items) else 0
        self._next = start + self._most
        return items[start : self._next]
