"""The starvation guard: which running jobs give workers, so that a waiting job has a place.

Jobs give workers beyond their requested size, and more only to a job that is expected to end long
before them. No job gives unless the waiting job then fits. A job that did not save in time when it
last had to give comes last: any number of such jobs delay the others by one attempt each. Jobs that
have shown no save yet come before it, and after all others: they may never answer.
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
"""A job is scaled below its requested size only for a job with at most this part of its remaining
time."""
MOST_DONORS = 16
"""Jobs that give workers for one waiting job."""
MOST_CONSIDERED = 128
"""The first jobs that are considered: a search makes room for all that they have."""
MOST_CALLS = 64
"""Searches for a place in one decision."""

Fits: TypeAlias = Callable[[Mapping[str, int]], bool]
"""Whether the waiting job has a place if jobs, by uid, have this many workers."""

_Rank: TypeAlias = tuple[tuple[int, bool], bool, float, int, str]

Taken: TypeAlias = dict[str, int]
"""By uid the number of workers taken, in the order in which the jobs begin to give."""


@dataclass(frozen=True, slots=True)
class Donor:
    """A running job that may be scaled down.

    `priority`: of its pods. `keeps`: the fewest workers that it keeps. `requested`: its requested
    size. `left`: its remaining time, in seconds. `doubts`: how many times in a row it missed a
    checkpoint in time, and whether it needs one but has never shown one.
    """

    uid: str
    priority: int
    now: int
    keeps: int
    requested: int
    left: float
    doubts: tuple[int, bool] = (0, False)


def kept(sizes: Sizes, *, left: float, length: float, most: float, rested: bool) -> int:
    """Return the fewest workers that a job keeps for a waiting job of so many seconds.

    Workers beyond its requested size are for any job. It is scaled below that size only for a job
    with at most MUCH_SHORTER of its remaining time, and only if it has `rested`. `most`: the
    seconds that the waiting job takes at most. If it may run on until the end of this job, this job
    keeps half of its workers: then it loses no more time than the other gains.
    """
    requested = min(sizes.now, sizes.requested)
    if not rested or length > MUCH_SHORTER * left:
        return requested
    if most <= MUCH_SHORTER * left:
        return sizes.least
    return max(sizes.least, min(requested, (sizes.now + 1) // 2))


def donors_for(donors: Sequence[Donor], fits: Fits, *, priority: int) -> Mapping[str, int] | None:
    """Return by uid the number of workers that each donor keeps so that the waiting job fits.

    Return None without such a choice: all or nothing. Only jobs with at most the `priority` of the
    waiting job give. At most MOST_DONORS of the first MOST_CONSIDERED jobs give.

    `fits`: called at most MOST_CALLS times. It must cover the waiting job as a whole, parameter
    servers and masters included, and stay true if a job is shrunk further.
    """
    able = [donor for donor in donors if donor.priority <= priority and donor.now > donor.keeps]
    able.sort(key=lambda donor: _rank(donor, donor.now))
    search = _Search(able[:MOST_CONSIDERED], fits)
    taken = search.fewest()
    if taken is not None:
        taken = search.without_idle_donors(taken)
    return None if taken is None else search.sizes(search.trimmed(taken))


def _steps(donor: Donor) -> Iterator[_Rank]:
    """Yield the rank of a job at each size that can give a worker, the next first."""
    for workers in range(donor.now, donor.keeps, -1):
        yield _rank(donor, workers)


def _rank(donor: Donor, workers: int) -> _Rank:
    """Return the sort key of a donor with a number of workers: the next to give comes first.

    Workers beyond a requested size come first, then the job with the most remaining time.
    """
    return (donor.doubts, workers <= donor.requested, -donor.left, -workers, donor.uid)


class _Search:
    """Looks for the workers to take; every result was tried and fits."""

    def __init__(self, donors: Sequence[Donor], fits: Fits) -> None:
        self._now = {donor.uid: donor.now for donor in donors}
        steps = merge(*map(_steps, donors))
        self._order = [uid for *_, uid in islice(steps, MOST_PODS)]
        self._fits = fits
        self._calls = 0

    def sizes(self, taken: Mapping[str, int]) -> dict[str, int]:
        """Return by uid how many workers each donor keeps."""
        return {uid: self._now[uid] - count for uid, count in taken.items()}

    def fewest(self) -> Taken | None:
        """Return the shortest beginning of the order that suffices, or None."""
        every = len(self._order)
        if not self._enough(self._first(every)):
            return None
        return self._first(
            bisect_left(range(every), True, key=lambda count: self._enough(self._first(count)))
        )

    def without_idle_donors(self, taken: Taken) -> Taken | None:
        """Return what is taken without the jobs that are not needed, or None with too many donors.

        The last jobs to begin are dropped first, as many at once as are not needed.
        """
        rest, needed = list(taken), list[str]()
        while rest:
            rest = rest[: len(rest) - self._idle(taken, rest, needed)]
            if rest:
                needed.insert(0, rest.pop())
            if len(needed) > MOST_DONORS:
                return None
        return _of(taken, needed)

    def trimmed(self, taken: Taken) -> Taken:
        """Return what is taken without the workers that are not needed, the last job's first."""
        for uid in reversed(list(taken)):
            taken = taken | {uid: taken[uid] - self._spare(taken, uid)}
        return taken

    def _idle(self, taken: Taken, rest: Sequence[str], needed: Sequence[str]) -> int:
        """Return how many of the last jobs in `rest` are not needed."""
        return _most(
            lambda count: self._enough(_of(taken, [*rest[: len(rest) - count], *needed])), len(rest)
        )

    def _spare(self, taken: Taken, uid: str) -> int:
        """Return how many workers of a job are not needed."""
        count = taken[uid]
        return _most(lambda back: self._enough(taken | {uid: count - back}), count - 1)

    def _first(self, count: int) -> Taken:
        taken: Taken = {}
        for uid in self._order[:count]:
            taken[uid] = taken.get(uid, 0) + 1
        return taken

    def _enough(self, taken: Mapping[str, int]) -> bool:
        """Return whether the taken workers suffice; False once all calls are spent."""
        if self._calls >= MOST_CALLS:
            return False
        self._calls += 1
        return self._fits(self.sizes(taken))


def _of(taken: Taken, uids: Sequence[str]) -> Taken:
    return {uid: taken[uid] for uid in uids}


def _most(holds: Callable[[int], bool], limit: int) -> int:
    """Return the largest number up to `limit` that holds, or 0; each result was tried.

    Small numbers are tried first, since they are the usual answer.
    """
    good, stride = 0, 1
    while good < limit and holds(min(good + stride, limit)):
        good, stride = min(good + stride, limit), 2 * stride
    bad = min(good + stride, limit + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good
