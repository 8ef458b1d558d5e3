"""The starvation guard: the choice of the donors that scale down for a waiting job.

Donors release workers beyond their requested size. They are scaled below it only for a job that is
expected to end long before them, and only if the waiting job then fits. Jobs without a checkpoint
so far are tried late, as they may never answer. Jobs that missed the last request are tried last,
so each of them delays the others by a single attempt.
Source of all or nothing: the second published code of DRAGON (Lin et al., CLOSER 2019).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import TypeAlias

from kfext.model.bounds import MOST_PODS
from kfext.state.running.size.scale import Sizes

MUCH_SHORTER = 0.5
"""A job is scaled below its requested size only for a job with at most this fraction of its
remaining time."""
MOST_DONORS = 16
"""The most donors for a waiting job."""
MOST_CONSIDERED = 128
"""The most jobs that a decision considers as donors."""
MOST_CALLS = 64
"""The most placement searches in a decision."""

Fits: TypeAlias = Callable[[Mapping[str, int]], bool]
"""Whether the waiting job fits if the jobs, by uid, have these numbers of workers."""

_Rank: TypeAlias = tuple[tuple[int, bool], bool, float, int, str]

Removed: TypeAlias = dict[str, int]
"""By uid the number of removed workers, in the order in which the jobs become donors."""


@dataclass(frozen=True, slots=True)
class Donor:
    """A running job that may be scaled down.

    `priority`: the priority of its pods. `lowest`: the lowest number of workers that remain.
    `requested`: its requested size. `remaining`: the seconds to its end. `doubts`: the number of
    consecutive failures, and whether it needs a checkpoint but has never shown any.
    """

    uid: str
    priority: int
    now: int
    lowest: int
    requested: int
    remaining: float
    doubts: tuple[int, bool] = (0, False)


def lowest_size(sizes: Sizes, *, remaining: float, length: float, most: float, rested: bool) -> int:
    """Return the lowest size of a donor for a waiting job of `length` seconds.

    Workers beyond the requested size are available to any job. The donor is scaled below that size
    only for a job with at most MUCH_SHORTER of its own `remaining` time, and only if it has
    `rested`. `most`: the longest possible duration of the waiting job. If that exceeds the limit,
    half of the donor's workers stay, so that it loses no more time than the waiting job gains.
    """
    requested = min(sizes.now, sizes.requested)
    if not rested or length > MUCH_SHORTER * remaining:
        return requested
    if most <= MUCH_SHORTER * remaining:
        return sizes.least
    return max(sizes.least, min(requested, (sizes.now + 1) // 2))


def donors_for(donors: Sequence[Donor], fits: Fits, *, priority: int) -> Mapping[str, int] | None:
    """Return by uid the remaining workers of donors so that the waiting job fits, or None.

    Donors have at most the `priority` of the waiting job. At most MOST_DONORS of the first
    MOST_CONSIDERED jobs are chosen.

    `fits`: called at most MOST_CALLS times. It must cover the waiting job as a whole, parameter
    servers and masters included, and stay true if a job is scaled down further.
    """
    able = [donor for donor in donors if donor.priority <= priority and donor.now > donor.lowest]
    able.sort(key=lambda donor: _rank(donor, donor.now))
    search = _Search(able[:MOST_CONSIDERED], fits)
    removed = search.fewest()
    if removed is not None:
        removed = search.without_idle_donors(removed)
    return None if removed is None else search.sizes(search.trimmed(removed))


def _steps(donor: Donor) -> Iterator[_Rank]:
    """Yield the rank of a donor at each size above its lowest, from its present size down."""
    for workers in range(donor.now, donor.lowest, -1):
        yield _rank(donor, workers)


def _rank(donor: Donor, workers: int) -> _Rank:
    """Return the sort key of a donor with a number of workers; the lowest key is the next donor.

    Workers beyond a requested size come first, then the job with the most remaining time.
    """
    return (donor.doubts, workers <= donor.requested, -donor.remaining, -workers, donor.uid)


class _Search:
    """Searches the workers to remove; every result was tried and fits."""

    def __init__(self, donors: Sequence[Donor], fits: Fits) -> None:
        self._now = {donor.uid: donor.now for donor in donors}
        steps = merge(*map(_steps, donors))
        self._order = [uid for *_, uid in islice(steps, MOST_PODS)]
        self._fits = fits
        self._calls = 0

    def sizes(self, removed: Mapping[str, int]) -> dict[str, int]:
        """Return by uid the remaining workers of each donor."""
        return {uid: self._now[uid] - count for uid, count in removed.items()}

    def fewest(self) -> Removed | None:
        """Return the shortest prefix of the order that suffices, or None."""
        every = len(self._order)
        if not self._enough(self._first(every)):
            return None
        return self._first(
            bisect_left(range(every), True, key=lambda count: self._enough(self._first(count)))
        )

    def without_idle_donors(self, removed: Removed) -> Removed | None:
        """Return the removed workers of the donors that are needed, or None with too many donors.

        The last donors are dropped first, as many at once as possible.
        """
        untested, needed = list(removed), list[str]()
        while untested:
            untested = untested[: len(untested) - self._idle(removed, untested, needed)]
            if untested:
                needed.insert(0, untested.pop())
            if len(needed) > MOST_DONORS:
                return None
        return _selected(removed, needed)

    def trimmed(self, removed: Removed) -> Removed:
        """Return the removed workers that are needed; the last donor is reduced first."""
        for uid in reversed(list(removed)):
            removed = removed | {uid: removed[uid] - self._spare(removed, uid)}
        return removed

    def _idle(self, removed: Removed, untested: Sequence[str], needed: Sequence[str]) -> int:
        """Return the number of donors at the end of `untested` that are not needed."""
        return _most(
            lambda count: self._enough(
                _selected(removed, [*untested[: len(untested) - count], *needed])
            ),
            len(untested),
        )

    def _spare(self, removed: Removed, uid: str) -> int:
        """Return the number of a donor's removed workers that are not needed."""
        count = removed[uid]
        return _most(lambda back: self._enough(removed | {uid: count - back}), count - 1)

    def _first(self, count: int) -> Removed:
        removed: Removed = {}
        for uid in self._order[:count]:
            removed[uid] = removed.get(uid, 0) + 1
        return removed

    def _enough(self, removed: Mapping[str, int]) -> bool:
        """Return whether the removed workers suffice; False after MOST_CALLS searches."""
        if self._calls >= MOST_CALLS:
            return False
        self._calls += 1
        return self._fits(self.sizes(removed))


def _selected(removed: Removed, uids: Sequence[str]) -> Removed:
    return {uid: removed[uid] for uid in uids}


def _most(holds: Callable[[int], bool], limit: int) -> int:
    """Return the largest number up to `limit` that holds, or 0; each result was tried.

    Small numbers are tried first, as they are usual.
    """
    good, stride = 0, 1
    while good < limit and holds(min(good + stride, limit)):
        good, stride = min(good + stride, limit), 2 * stride
    bad = min(good + stride, limit + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good
