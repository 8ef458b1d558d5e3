"""How many workers jobs were seen with, and which changes of that were kfext's."""

from collections import Counter, deque
from dataclasses import dataclass, field

from e2e.soak.facts import Gang, Replica

ELASTIC = "kfext.dev/elastic"
BY_HAND = "soak.example.com/workers"
"""The soak's own annotation on a job: how many workers a person gave it last."""
_WORKER = "worker"
_MASTERS = ("master", "chief")
_MOST_CHANGES = 64


@dataclass(frozen=True, slots=True)
class _Seen:
    workers: int
    by_hand: str
    suspended: bool


@dataclass
class Sizes:
    """What was seen of the sizes of jobs, by uid.

    `wished` are the numbers of workers with which people submitted the job and which they set
    later; `changes` is when kfext gave another one to the job while it ran, in the clusters' time;
    `staying` are the pods, by their own uids, that such a change left alone. `done` counts those
    changes.
    """

    wished: dict[str, set[int]] = field(default_factory=dict)
    changes: dict[str, deque[float]] = field(default_factory=dict)
    staying: dict[str, dict[str, Replica]] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    _last: dict[str, _Seen] = field(default_factory=dict)

    def see(self, gang: Gang, at: float) -> None:
        """Take in a job as it stands."""
        by_hand = gang.annotations.get(BY_HAND, "")
        now = _Seen(workers_of(gang), by_hand, gang.suspended)
        before = self._last.get(gang.uid, now)
        self._last[gang.uid] = now
        wished = self.wished.setdefault(gang.uid, {now.workers})
        if by_hand:
            wished.add(int(by_hand))
        person = by_hand != before.by_hand and by_hand == str(now.workers)
        if gang.suspended or gang.over or gang.ending:
            self.staying.pop(gang.uid, None)
        elif now.workers != before.workers and not (person or before.suspended):
            self.changes.setdefault(gang.uid, deque(maxlen=_MOST_CHANGES)).append(at)
            self.done["grown" if now.workers > before.workers else "shrunk"] += 1
            bound = (pod for pod in gang.live if pod.node and not pod.over)
            self.staying[gang.uid] = {pod.uid: pod.replica for pod in bound}
        if gang.uid in self.staying:
            self.staying[gang.uid] = self._still_wanted(gang)

    def _still_wanted(self, gang: Gang) -> dict[str, Replica]:
        """Return the pods that stay, without those that have no place in the job any more."""
        return {
            uid: (kind, index)
            for uid, (kind, index) in self.staying[gang.uid].items()
            if index < gang.sizes.get(kind, 0)
        }


def workers_of(gang: Gang) -> int:
    """Return how many workers a job has."""
    return gang.sizes.get(_WORKER, 0)


def allowed(gang: Gang) -> tuple[int, int] | None:
    """Return how many workers kfext may give a job at least and at most, None if it may not.

    The annotation counts Master and Chief as well.
    """
    least, dash, most = gang.annotations.get(ELASTIC, "").partition("-")
    if not dash:
        return None
    masters = sum(gang.sizes.get(kind, 0) for kind in _MASTERS)
    return max(1, int(least) - masters), int(most) - masters
