"""The jobs that wait for a decision, in rounds: in the order of the queue, each once in a round."""

import heapq

from kfext.core.queue.order import Turn
from kfext.state.tracked_job import TrackedJob


class Agenda:
    """Jobs of this round and of the next.

    A job that changes joins the round unless it has had its turn. Then it waits for the next round,
    so that jobs that change again and again keep none behind them from its turn.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Turn, str]] = []
        self._jobs: dict[str, TrackedJob] = {}
        self._had: set[str] = set()
        self._next: dict[str, tuple[TrackedJob, Turn]] = {}

    def __len__(self) -> int:
        return len(self._jobs) + len(self._next)

    @property
    def is_over(self) -> bool:
        """Whether no job is left in this round."""
        return not self._jobs

    def add(self, tracked: TrackedJob, turn: Turn) -> None:
        """Put a job on the agenda."""
        uid = tracked.job.uid
        if uid in self._had:
            self._next[uid] = (tracked, turn)
        elif uid not in self._jobs:
            self._jobs[uid] = tracked
            heapq.heappush(self._heap, (turn, uid))

    def pop(self) -> TrackedJob | None:
        """Remove the first job of this round and return it, None if there is none."""
        if not self._heap:
            return None
        _, uid = heapq.heappop(self._heap)
        self._had.add(uid)
        return self._jobs.pop(uid)

    def begin_round(self) -> None:
        """Begin the next round, with the jobs that are left in this one."""
        self._had.clear()
        waiting, self._next = self._next, {}
        for tracked, turn in waiting.values():
            self.add(tracked, turn)
