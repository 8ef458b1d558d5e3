"""Each job of a seed with the policy beside the same job without it, and why it ended later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kfext.sim.cluster import WITHOUT, Cluster, Ended
from tests.unit.sim.causes import Cause, why_later, why_waited
from tests.unit.sim.rules import Change, Rules

LATE = 1.10
"""A job that took longer by more than this gets a cause."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One job with the policy and without it; `cause`: why the job ended much later, if it did."""

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
    """A seed with the policy and without it; `utilisation` and `makespan` with, then without.

    `only_with`, `only_without`: the jobs that end in time only with it, or only without it.
    """

    seed: int
    jobs: tuple[Compared, ...]
    only_with: tuple[str, ...]
    only_without: tuple[str, ...]
    changes: int
    broken: tuple[str, ...]
    utilisation: tuple[float, float]
    makespan: tuple[float, float]


def compare(seed: int) -> Pair:
    """Run a seed with the policy and without it."""
    cluster = Cluster(seed)
    rules = Rules(cluster)
    cluster.run()
    without = Cluster(seed, policy=WITHOUT).run()
    ended, before = cluster.ended(), without.ended()
    both = ended.keys() & before.keys()
    return Pair(
        seed=seed,
        jobs=tuple(
            _compared(cluster, ended[name], before[name], rules.changes) for name in sorted(both)
        ),
        only_with=tuple(sorted(ended.keys() - both)),
        only_without=tuple(sorted(before.keys() - both)),
        changes=rules.found,
        broken=tuple(rules.ended()),
        utilisation=(cluster.utilisation, without.utilisation),
        makespan=(cluster.clock.now, without.clock.now),
    )


def _compared(
    cluster: Cluster, ended: Ended, without: Ended, changes: Mapping[str, Sequence[Change]]
) -> Compared:
    cause = None
    if ended.elapsed > LATE * without.elapsed:
        specs = {spec.name: spec for spec in cluster.world.jobs}
        arrived = specs[ended.name].arrives
        waited = why_waited(
            ended.name,
            changes,
            asked={name: spec.workers for name, spec in specs.items()},
            due=arrived + without.began,
            until=arrived + ended.began,
        )
        cause = why_later(ended, without, changes.get(ended.name, ()), waited=waited)
    return Compared(cluster.seed, ended.name, ended.elapsed, without.elapsed, cause)
