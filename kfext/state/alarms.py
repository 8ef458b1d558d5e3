"""When time alone may change the next step of a job: at most one alarm for each."""

import heapq
import math

_SPARE = 64
"""How many outdated entries are tolerated before the heap is built again."""


class Alarms:
    """Alarms by job uid; a later one replaces an earlier one. Times are in seconds."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, uid: str) -> bool:
        return uid in self._at

    def at(self, uid: str) -> float | None:
        """Return when the alarm of a job rings, None without one."""
        return self._at.get(uid)

    def set(self, uid: str, at: float) -> None:
        """Have a job looked at again at the time `at`."""
        self._at[uid] = at
        heapq.heappush(self._heap, (at, uid))
        if len(self._heap) > 2 * len(self._at) + _SPARE:
            self._heap = [(when, one) for one, when in self._at.items()]
            heapq.heapify(self._heap)

    def forget(self, uid: str) -> None:
        """Remove the alarm of a job, if it has one."""
        self._at.pop(uid, None)

    def next(self) -> float:
        """Return when the next alarm rings, infinity without any."""
        self._drop_outdated()
        return self._heap[0][0] if self._heap else math.inf

    def due(self, now: float) -> list[str]:
        """Remove the alarms that ring by now and return their jobs."""
        rung = []
        while self.next() <= now:
            _, uid = heapq.heappop(self._heap)
            del self._at[uid]
            rung.append(uid)
        return rung

    def _drop_outdated(self) -> None:
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
