"""Each job of a seed with the policy beside the same job without it, and why it ended later."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.unit.fluid.cluster import Cluster, Ended
from tests.unit.fluid.rules import Change, Rules

LATE = 1.10
"""A job that took longer by more than this is looked at one by one."""


class Cause(StrEnum):
    """Why a job ended later than without the policy: where most of the added time went."""

    WAITED = "it waited longer for its first step"
    PAUSED = "its changes of size stopped it for longer than they gained"
    REDONE = "it did steps again that were not saved"
    GAVE = "it gave workers to a job that waited"
    TRIED = "it grew, which did not make it faster"
    CROWDED = "its neighbours used cores that it used beyond its request"


@dataclass(frozen=True, slots=True)
class Compared:
    """One job with the policy and without it; `cause` only of one that ended much later."""

    seed: int
    name: str
    elapsed: float
    without: float
    cause: Cause | None = None

    @property
    def ratio(self) -> float:
        return self.elapsed / self.without


@dataclass(frozen=True, slots=True)
class Pair:
    """A seed with the policy and without it; `utilisation` and `makespan` with, then without."""

    seed: int
    jobs: tuple[Compared, ...]
    changes: int
    broken: tuple[str, ...]
    utilisation: tuple[float, float]
    makespan: tuple[float, float]


def compare(seed: int) -> Pair:
    """Run a seed with the policy and without it."""
    cluster = Cluster(seed)
    rules = Rules(cluster)
    cluster.run()
    without = Cluster(seed, policy=False).run()
    ended, before = cluster.ended(), without.ended()
    both = ended.keys() & before.keys()
    return Pair(
        seed=seed,
        jobs=tuple(
            _compared(seed, ended[name], before[name], rules.changes.get(name, []))
            for name in sorted(both)
        ),
        changes=rules.found,
        broken=tuple(rules.ended()),
        utilisation=(cluster.utilisation, without.utilisation),
        makespan=(cluster.clock.now, without.clock.now),
    )


def _compared(seed: int, ended: Ended, without: Ended, changes: Sequence[Change]) -> Compared:
    late = ended.elapsed > LATE * without.elapsed
    cause = why_later(ended, without, changes) if late else None
    return Compared(seed, ended.name, ended.elapsed, without.elapsed, cause)


def why_later(ended: Ended, without: Ended, changes: Sequence[Change]) -> Cause:
    """Return where most of the time went by which a job ended later."""
    gave = any(one.gives for one in changes)
    slower = Cause.GAVE if gave else Cause.TRIED if changes else Cause.CROWDED
    redone = ended.redone - without.redone
    more = {
        Cause.WAITED: ended.began - without.began,
        Cause.PAUSED: ended.paused - without.paused,
        Cause.REDONE: redone,
        slower: ended.trained - without.trained - redone,
    }
    return max(more, key=lambda cause: more[cause])
