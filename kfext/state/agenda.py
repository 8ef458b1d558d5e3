"""The jobs that wait for a decision, taken in the order of the queue."""

import heapq
from collections.abc import Iterator

from kfext.core.queue.order import Turn
from kfext.state.tracked_job import TrackedJob


class Agenda:
    """A set of jobs, each once; iteration yields the uids."""

    def __init__(self) -> None:
        self._heap: list[tuple[Turn, str]] = []
        self._jobs: dict[str, TrackedJob] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def add(self, tracked: TrackedJob, turn: Turn) -> None:
        """Put a job on the agenda."""
        uid = tracked.job.uid
        if uid not in self._jobs:
            self._jobs[uid] = tracked
            heapq.heappush(self._heap, (turn, uid))

    def pop(self) -> TrackedJob | None:
        """Remove the first job and return it, None if there is none."""
        if not self._heap:
            return None
        _, uid = heapq.heappop(self._heap)
        return self._jobs.pop(uid)
