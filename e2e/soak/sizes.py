"""How many workers jobs were seen with, what people wanted, and which changes were kfext's."""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.soak.facts import Gang, Replica

ELASTIC = "kfext.dev/elastic"
BY_HAND = "soak.example.com/workers"
"""The soak's own annotation on a job: how many workers a person gave it last."""
HEEDED_SECONDS = 10.0
"""An edit of an annotation acts at kfext's next look, within 5 s; as much again for a write that is
under way, and for a busy machine."""
_WORKER = "worker"
_MASTERS = ("master", "chief")
_MOST_CHANGES = 64


@dataclass(frozen=True, slots=True)
class Change:
    """kfext gave a job another number of workers while it ran, seen at `at`.

    `wished` is what people wanted then, `largest` the most that the job was seen with before.
    `unasked`: whether it was not to be scaled, for long enough that kfext had to know.
    `overruled`: whether kfext was to leave it alone since a person's edit.
    `unsaved`: how long before its programs had last saved their work at least, in seconds.
    `interrupts`: whether they start anew for it, though kfext might wait for a checkpoint. It does
        not where it releases a job.
    `undoes`: whether it takes back some of the growth before it.
    """

    at: float
    before: int
    after: int
    wished: frozenset[int]
    largest: int
    unasked: bool
    overruled: bool
    unsaved: float
    interrupts: bool
    undoes: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    workers: int
    by_hand: str
    suspended: bool
    opted_in: bool


@dataclass
class Sizes:
    """What was seen of the sizes of jobs, by uid.

    `wished` is the number of workers that people want: that of the submission, or what they set
    last. An edit to what the job has already is none that kfext can see, so what was wanted before
    may hold as well. `changes` are those by kfext, in the clusters' time, and `done` counts them.
    `staying` are the pods, by their own uids, that such a change left alone. `servers` is how many
    pods of the other types a job has since it runs, `largest` the most workers it was seen with.
    `out_since` is since when it is not to be scaled.
    `left_alone` are those that kfext had resized when a person set another size: kfext is not to
    touch these until they opt out or are suspended.
    """

    wished: dict[str, frozenset[int]] = field(default_factory=dict)
    changes: dict[str, deque[Change]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_MOST_CHANGES))
    )
    staying: dict[str, dict[str, Replica]] = field(default_factory=dict)
    servers: dict[str, Mapping[str, int]] = field(default_factory=dict)
    largest: dict[str, int] = field(default_factory=dict)
    out_since: dict[str, float] = field(default_factory=dict)
    left_alone: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    _last: dict[str, _Seen] = field(default_factory=dict)

    def see(self, gang: Gang, at: float, *, saved_at: float = 0.0) -> None:
        """Take in a job as it stands, and when its programs last saved their work."""
        by_hand = gang.annotations.get(BY_HAND, "")
        now = _Seen(at, workers_of(gang), by_hand, gang.suspended, has_opted_in(gang))
        before = self._last.get(gang.uid, now)
        self._last[gang.uid] = now
        self._take_choice(gang.uid, now, at)
        self._take_wish(gang.uid, before, now)
        if gang.suspended or gang.over or gang.ending:
            self.staying.pop(gang.uid, None)
            self.servers.pop(gang.uid, None)
            # kfext may not have looked between the edit and the suspension, and takes it in then.
            self.left_alone.discard(gang.uid)
        else:
            self.servers.setdefault(gang.uid, servers_of(gang))
            if now.workers != before.workers and not (_edited(before, now) or before.suspended):
                # It came at some time since the last look: under load that may be long ago.
                self._take_change(gang, before, now, at, unsaved=before.at - saved_at)
        self.largest[gang.uid] = max(now.workers, self.largest.get(gang.uid, 0))
        if gang.uid in self.staying:
            self.staying[gang.uid] = self._still_wanted(gang)

    def _take_choice(self, uid: str, now: _Seen, at: float) -> None:
        """Take in whether a job is to be scaled."""
        if now.opted_in:
            self.out_since.pop(uid, None)
        else:
            self.out_since.setdefault(uid, at)
            self.left_alone.discard(uid)

    def _take_wish(self, uid: str, before: _Seen, now: _Seen) -> None:
        """Take in what people want of a job, and whether that is the end of its being scaled.

        It is only where kfext had given it another size. That kfext was about to is not seen.
        """
        wish = int(now.by_hand or now.workers)
        known = self.wished.setdefault(uid, frozenset({wish}))
        if now.by_hand == before.by_hand:
            return
        if before.workers == wish:
            self.wished[uid] = known | {wish}
            return
        self.wished[uid] = frozenset({wish})
        runs = not (before.suspended or now.suspended)
        scaled = before.opted_in and now.opted_in and before.workers not in known
        if _edited(before, now) and runs and scaled:
            self.left_alone.add(uid)

    def _take_change(
        self, gang: Gang, before: _Seen, now: _Seen, at: float, *, unsaved: float
    ) -> None:
        last = next(reversed(self.changes[gang.uid]), None)
        change = Change(
            at,
            before.workers,
            now.workers,
            wished=self.wished[gang.uid],
            largest=self.largest[gang.uid],
            unasked=at - self.out_since.get(gang.uid, at) > HEEDED_SECONDS,
            overruled=gang.uid in self.left_alone,
            unsaved=unsaved,
            interrupts=gang.kind == "PyTorchJob" and not gang.released,
            undoes=last is not None
            and last.after == before.workers
            and last.before <= now.workers < last.after,
        )
        self.changes[gang.uid].append(change)
        self.done["grown" if now.workers > before.workers else "shrunk"] += 1
        bound = (pod for pod in gang.live if pod.node and not pod.over)
        self.staying[gang.uid] = {pod.uid: pod.replica for pod in bound}

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


def servers_of(gang: Gang) -> dict[str, int]:
    """Return how many pods a job has of each type that is never scaled."""
    return {kind: count for kind, count in gang.sizes.items() if kind != _WORKER}


def allowed(gang: Gang) -> tuple[int, int] | None:
    """Return how many workers kfext may give a job at least and at most, None if it may not.

    The annotation counts Master and Chief as well.
    """
    least, dash, most = gang.annotations.get(ELASTIC, "").partition("-")
    if not dash:
        return None
    masters = sum(gang.sizes.get(kind, 0) for kind in _MASTERS)
    return max(1, int(least) - masters), int(most) - masters


def has_opted_in(gang: Gang) -> bool:
    """Say whether kfext may scale a job while it runs: nobody else does, and it was asked to."""
    elsewhere = gang.kueue or gang.autoscaled or gang.released
    return gang.managed and gang.operated and not elsewhere and allowed(gang) is not None


def _edited(before: _Seen, now: _Seen) -> bool:
    """Say whether the size that a job has now is one that a person has just set."""
    return now.by_hand != before.by_hand and now.by_hand == str(now.workers)
