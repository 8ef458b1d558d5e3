"""The starvation guard: the choice of the donors that scale down for a waiting job.

Donors release workers beyond their requested size. They are scaled below it only for a job that is
expected to end long before them. They scale down only if the waiting job then fits. Jobs that have
shown no checkpoint are chosen late, as they may never answer. Jobs that missed their last request
are chosen last, so that each of them delays a rescue only once.
Source of all or nothing: the second published code of DRAGON (Lin et al., CLOSER 2019).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import TypeAlias

from kfext.model.bounds import MAX_PODS
from kfext.state.running.size.scale import Sizes

MUCH_SHORTER = 0.5
"""A job is scaled below its requested size only for a job with at most this fraction of its
remaining time."""
MAX_DONORS = 16
"""The most donors for a waiting job."""
MAX_CONSIDERED = 128
"""The most jobs that are considered as donors of a waiting job."""
MAX_CALLS = 64
"""The most placement searches for a waiting job."""

Fits: TypeAlias = Callable[[Mapping[str, int]], bool]
"""Returns whether the waiting job fits if jobs, by uid, keep these numbers of workers."""

_Rank: TypeAlias = tuple[tuple[int, bool], bool, float, int, str]

Removed: TypeAlias = dict[str, int]
"""The number of removed workers by uid, in the order in which jobs become donors."""


@dataclass(frozen=True, slots=True)
class Donor:
    """A running job that may be scaled down.

    `priority`: the priority of its pods. `now`: its present number of workers.
    `lowest`: the number of workers that it must keep. `requested`: its requested size.
    `remaining`: the seconds to its end. `doubts`: the number of its consecutive failed changes, and
    whether it needs a checkpoint for a change but has never shown one.
    """

    uid: str
    priority: int
    now: int
    lowest: int
    requested: int
    remaining: float
    doubts: tuple[int, bool] = (0, False)


def lowest_size(sizes: Sizes, *, remaining: float, length: float, most: float, rested: bool) -> int:
    """Return the lowest size of a donor for a waiting job with `length`, its expected duration.

    Workers beyond the requested size are available to any job. The donor is scaled below that size
    only if `length` is at most MUCH_SHORTER of its own `remaining` time, and if it has `rested`.
    `most`: the longest possible duration of the waiting job. If that is longer, half of the donor's
    workers stay, so that it loses no more time than the waiting job gains. Times are in seconds.
    """
    requested = min(sizes.now, sizes.requested)
    if not rested or length > MUCH_SHORTER * remaining:
        return requested
    if most <= MUCH_SHORTER * remaining:
        return sizes.least
    return max(sizes.least, min(requested, (sizes.now + 1) // 2))


def donors_for(donors: Sequence[Donor], fits: Fits, *, priority: int) -> Mapping[str, int] | None:
    """Return the workers that donors keep, by uid, so that the waiting job fits, or None.

    Donors have at most the `priority` of the waiting job. Of the first MAX_CONSIDERED jobs at most
    MAX_DONORS are chosen.

    `fits` is called at most MAX_CALLS times. It must try the waiting job as a whole, with
    parameter servers and masters, and stay true if a job is scaled down further.
    """
    able = [donor for donor in donors if donor.priority <= priority and donor.now > donor.lowest]
    able.sort(key=lambda donor: _rank(donor, donor.now))
    search = _Search(able[:MAX_CONSIDERED], fits)
    removed = search.fewest()
    if removed is not None:
        removed = search.without_idle_donors(removed)
    return None if removed is None else search.sizes(search.trimmed(removed))


def _steps(donor: Donor) -> Iterator[_Rank]:
    """Yield the rank of a donor at each size from its present size down to above its lowest."""
    for workers in range(donor.now, donor.lowest, -1):
        yield _rank(donor, workers)


def _rank(donor: Donor, workers: int) -> _Rank:
    """Return the sort key of a donor with a number of workers; the lowest key is the next donor.

    Workers beyond a requested size come first, then the job with the most remaining time.
    """
    return (donor.doubts, workers <= donor.requested, -donor.remaining, -workers, donor.uid)


class _Search:
    """Searches the workers to remove; with every result, the waiting job was found to fit."""

    def __init__(self, donors: Sequence[Donor], fits: Fits) -> None:
        self._now = {donor.uid: donor.now for donor in donors}
        steps = merge(*map(_steps, donors))
        self._order = [uid for *_, uid in islice(steps, MAX_PODS)]
        self._fits = fits
        self._calls = 0

    def sizes(self, removed: Mapping[str, int]) -> dict[str, int]:
        """Return the number of workers that each donor keeps, by uid."""
        return {uid: self._now[uid] - count for uid, count in removed.items()}

    def fewest(self) -> Removed | None:
        """Return the fewest first workers of the order that suffice, or None."""
        total = len(self._order)
        if not self._enough(self._first(total)):
            return None
        return self._first(
            bisect_left(range(total), True, key=lambda count: self._enough(self._first(count)))
        )

    def without_idle_donors(self, removed: Removed) -> Removed | None:
        """Return the removed workers of the donors that are needed, or None with too many donors.

        The last donors are dropped first, as many at a time as possible.
        """
        untested, needed = list(removed), list[str]()
        while untested:
            untested = untested[: len(untested) - self._idle(removed, untested, needed)]
            if untested:
                needed.insert(0, untested.pop())
            if len(needed) > MAX_DONORS:
                return None
        return _selected(removed, needed)

    def trimmed(self, removed: Removed) -> Removed:
        """Return only the removed workers that are needed; the last donor regains workers first."""
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
        """Return whether the removed workers suffice; False after MAX_CALLS searches."""
        if self._calls >= MAX_CALLS:
            return False
        self._calls += 1
        return self._fits(self.sizes(removed))


def _selected(removed: Removed, uids: Sequence[str]) -> Removed:
    return {uid: removed[uid] for uid in uids}


def _most(holds: Callable[[int], bool], limit: int) -> int:
    """Return the largest number up to `limit` that makes `holds` true, or 0.

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
