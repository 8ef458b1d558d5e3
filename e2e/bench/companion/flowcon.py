"""FlowCon as its authors published it, faults included.

Source: Zheng et al., FlowCon, ICPP 2019, and its code of March 2019 (yingmao/FlowCon2018).

A container's loss is divided by the largest that it ever printed. Its progress P is the change of
the mean of the last `interval` seconds against the interval before, in either direction, a second;
its growth efficiency G is P / R, with R the share of the machine's CPU that it used meanwhile.
Growing containers get G / sum of all G of the machine, and containers that have not
grown for two intervals get that too, but at least 1/(n+1).

Its faults are kept, since they are what is compared: `alpha` is a bound on a change a second, so
that another interval is another bound; a loss that rises counts as growth; one early peak makes all
later progress small; R has no floor, so that a starved container seems to grow; that everything has
converged is noticed a round late; and after a back-off the interval stays long until a container
comes or goes. One thing differs: the published setter cuts limits down to whole cores. On the
machines of its authors that is a few percent; on a node of 1.4 cores every limit would become 0,
which Docker takes for "no change", and nothing would be compared.

Times are in seconds of any clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

ALPHA = 0.03
LISTEN_SECONDS = 10.0


def progress(losses: Sequence[tuple[float, float]], *, now: float, interval: float) -> float:
    """Return P of a container that printed these losses, each with its time; 0 if it is silent."""
    largest = max((loss for _, loss in losses), default=0.0)
    if not largest:
        return 0.0
    last = [loss / largest for at, loss in losses if at >= now - interval]
    before = [loss / largest for at, loss in losses if now - 2 * interval <= at <= now - interval]
    if not last or not before:
        return 0.0
    return abs(fmean(last) - fmean(before)) / interval


def growth(change: float, use: float | None) -> float:
    """Return G for a progress P and a share R of the machine; 0 if R was not measured."""
    return change / use if use else 0.0


@dataclass(slots=True)
class _Container:
    """The list that a container is on; a new one is on neither."""

    watching: bool = False
    completing: bool = False

    def judge(self, grows: bool) -> None:
        if grows:
            self.watching = self.completing = False
        elif not self.completing:
            self.watching, self.completing = not self.watching, self.watching


class Algorithm:
    """The lists, and the limits that follow from them in each round."""

    def __init__(self, alpha: float = ALPHA) -> None:
        self._alpha = alpha
        self._containers: dict[str, _Container] = {}

    def run(self, found: Mapping[str, float]) -> dict[str, float]:
        """Register G of each container; return the limits to set, as shares of the machine.

        A container that is not named keeps its limit. The sum may exceed 1: nothing is reserved.
        """
        self._containers = {name: self._containers.get(name, _Container()) for name in found}
        released = self.all_completing  # by the lists of the round before
        for name, container in self._containers.items():
            container.judge(found[name] >= self._alpha)
        if released:
            return dict.fromkeys(found, 1.0)
        total = sum(found.values())
        if not total:
            return {}
        floor = 1 / (len(found) + 1)  # 1 / (beta n) with beta = 1 + 1/n
        return {
            name: max(found[name] / total, floor) if container.completing else found[name] / total
            for name, container in self._containers.items()
            if not container.watching
        }

    @property
    def all_completing(self) -> bool:
        """Whether there are containers and none of them grows any more."""
        containers = self._containers.values()
        return bool(containers) and all(container.completing for container in containers)


class Timer:
    """When the next round is due: each interval, twice as long after each in which none grew.

    While it is backed off, it looks every ten seconds whether a container came or went; then a
    round is due at once, and the interval is the first one again.
    """

    def __init__(self, interval: float, *, now: float) -> None:
        self._base = self._interval = interval
        self._next = now + interval
        self._listen: float | None = None
        self._known: frozenset[str] = frozenset()
        self._woken = False

    def due(self, running: frozenset[str], *, now: float) -> bool:
        """Return whether a round is due for these containers."""
        if self._listen is not None and now >= self._listen:
            self._listen = now + LISTEN_SECONDS
            self._woken = running != self._known
        return self._woken or now >= self._next

    def ran(self, running: frozenset[str], *, now: float, all_completing: bool) -> None:
        """Note that a round was run."""
        if self._woken:
            self._woken, self._listen, self._interval = False, None, self._base
        elif all_completing:
            self._interval *= 2
        self._next = now + self._interval
        if all_completing and self._listen is None:
            self._listen, self._known = now + LISTEN_SECONDS, running
