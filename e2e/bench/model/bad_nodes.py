"""Benchmark: starts that a bad node fails, in kfext 0.3 and now, and good nodes wrongly suspected.

There are 64 nodes, one of them bad, and 4,000 jobs, one a minute on average. The emptiest node is
used first, so a node that fails pods attracts all jobs. 4 % of the jobs are poison: they fail on
any node, about the same time after each start. 0.5 % of all other starts fail for a passing reason.
A job starts at most four times. `0.3` restarts a job on the emptiest nodes. `kfext` avoids the
nodes on which the job failed, and the suspect nodes of `state.reports.failed_starts`, unless it
fits nowhere else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

import numpy as np

from e2e.bench.model.seeds import SEEDS, over_seeds
from e2e.bench.report import table
from kfext.model.snapshot import FailedStart
from kfext.state.mirror.cluster import Cluster
from kfext.state.reports.failed_starts import CURED_SECONDS, START_SECONDS, FailedStarts, suspicions

_NODES, _JOBS, _STARTS, _BAD = 64, 4_000, 4, 0
_BETWEEN, _FAILS_AFTER, _BACK_AFTER = 60.0, 20.0, 10.0
"""Seconds between two jobs, from a start to its failure, and from then to the next start."""
_POISON, _BACKGROUND = 0.04, 0.005
_SERIES = 60
ARMS = ("0.3", "kfext")


@dataclass(frozen=True, slots=True)
class World:
    """A set-up. `fails`: the fraction of its starts that the bad node fails.

    `sizes`: a job's number of nodes is drawn from these. Pods on the other nodes of a gang
    fail too; in half of the cases kfext cannot tell which failed first.
    """

    fails: float = 1.0
    sizes: tuple[int, ...] = (1,)
    namespaces: int = 6


WORLDS = {
    "fails each start": World(),
    "fails half of them": World(fails=0.5),
    "fails each; gangs of 1, 2 and 4 nodes": World(sizes=(1, 1, 2, 4)),
    "fails each; jobs of one namespace": World(namespaces=1),
    "no bad node": World(fails=_BACKGROUND),
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    `wasted`: starts that the bad node failed. `accused`: good nodes that were ever suspect.
    `poisoned`: failures of poison jobs that counted against a node. `suspected`: the fraction of
    jobs that arrived while the bad node was suspect.
    """

    wasted: int
    accused: int
    poisoned: int
    suspected: float


class _Cluster:
    """Nodes on which jobs start, one after the other."""

    def __init__(self, world: World, *, seed: int, wary: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.world = world
        self.wary = wary
        self.free_at = np.zeros(_NODES)
        self.starts = FailedStarts(Cluster())
        self.upcoming: list[FailedStart] = []
        self.wasted = self.poisoned = self.suspected = 0
        self.accused: set[str] = set()

    def submit(self, number: int, now: float) -> None:
        """Start a job until it keeps running, or has failed four times."""
        draw = self.random
        series = int(draw.integers(0, _SERIES))
        namespace = f"team-{series % self.world.namespaces}"
        poison = draw.random() < _POISON
        crashes_after = float(np.exp(draw.normal(np.log(30.0), 1.0)))
        size = int(draw.choice(self.world.sizes))
        failed: dict[int, bool] = {}
        for attempt in range(_STARTS):
            suspects = self._suspects(namespace, now) if self.wary else {}
            self.suspected += attempt == 0 and f"n{_BAD}" in suspects
            nodes = self._place(size, {*failed, *(int(name[1:]) for name in suspects)})
            failing = [node for node in nodes if draw.random() < self._fails(node)]
            runs_for = (
                crashes_after * float(np.exp(draw.normal(0.0, 0.3))) if poison else _FAILS_AFTER
            )
            if not (failing or poison):
                self.free_at[nodes] = now + draw.lognormal(8, 1)
                self._record_cured(failed, nodes, f"{number}", (namespace, f"{series}"), now)
                return
            self.wasted += _BAD in failing and not poison
            if poison and runs_for >= CURED_SECONDS:
                self.poisoned += len(failed)
                self._record_cured(failed, nodes, f"{number}", (namespace, f"{series}"), now)
                failed = {}
            if runs_for < START_SECONDS:
                first, alone = self._first(nodes, failing)
                failed.setdefault(first, alone)
            self.free_at[nodes] = now + runs_for
            now += runs_for + _BACK_AFTER

    def _fails(self, node: int) -> float:
        return self.world.fails if node == _BAD else _BACKGROUND

    def _place(self, size: int, avoided: set[int]) -> list[int]:
        order = self.free_at + self.random.uniform(0.0, 1.0, _NODES)
        if self.wary:
            order[list(avoided)] += 1e12
        return [int(node) for node in np.argsort(order)[:size]]

    def _first(self, nodes: Sequence[int], failing: Sequence[int]) -> tuple[int, bool]:
        """Return the node that seems to have failed first, and whether kfext can tell."""
        likely = list(failing or nodes)
        if len(nodes) > 1 and self.random.random() < 0.5:
            return int(self.random.choice([*likely, *nodes])), False
        return likely[0], True

    def _record_cured(
        self,
        failed: dict[int, bool],
        nodes: Sequence[int],
        job: str,
        series: tuple[str, str],
        now: float,
    ) -> None:
        """Record the nodes that failed a job, and the nodes on which it runs."""
        ran = {node: False for node, alone in failed.items() if alone}
        ran |= dict.fromkeys(nodes, True)
        self.upcoming += [
            FailedStart(f"n{node}", job, *series, now + CURED_SECONDS, cured=True, ran=ran[node])
            for node in ran
        ]

    def _suspects(self, namespace: str, now: float) -> dict[str, str]:
        due = [start for start in self.upcoming if start.at <= now]
        self.upcoming = [start for start in self.upcoming if start.at > now]
        for start in sorted(due, key=lambda start: start.at):
            if not start.ran or any(cured.node == start.node for cured in self.starts.cured):
                self.starts.restore([start])
        suspects = suspicions(self.starts.cured, namespace=namespace, now=now)
        self.accused |= suspects.keys() - {f"n{_BAD}"}
        return suspects


def run(world: World, arm: str, seed: int) -> Result:
    cluster, arrivals, now = (_Cluster(world, seed=seed, wary=arm == "kfext"), Random(seed), 0.0)
    for number in range(_JOBS):
        now += arrivals.expovariate(1 / _BETWEEN)
        cluster.submit(number, now)
    return Result(cluster.wasted, len(cluster.accused), cluster.poisoned, cluster.suspected / _JOBS)


_Pair = tuple[Result, Result]
"""The results of kfext and of 0.3 for the same seed."""


def measure(*, quick: bool) -> str:
    seeds = SEEDS[:1] if quick else SEEDS
    head = ("the bad node", *(f"wasted starts, {arm}" for arm in ARMS))
    head = (*head, "of 0.3", "good nodes suspect", "failures of poison", "jobs that knew")
    return table(f"Bad nodes, {len(seeds)} seeds from {seeds[0]}", head, _rows(seeds))


def _rows(seeds: Sequence[int]) -> Iterator[tuple[str, ...]]:
    for name, world in WORLDS.items():
        pairs = [(run(world, "kfext", seed), run(world, "0.3", seed)) for seed in seeds]
        yield (
            name,
            over_seeds(
                pairs, lambda pairs: fmean(reference.wasted for _, reference in pairs), "{:.0f}"
            ),
            over_seeds(pairs, lambda pairs: fmean(kfext.wasted for kfext, _ in pairs), "{:.1f}"),
            over_seeds(pairs, _wasted_ratio, "{:.2%}") if world.fails > _BACKGROUND else "-",
            over_seeds(pairs, lambda pairs: fmean(kfext.accused for kfext, _ in pairs), "{:.2f}"),
            f"{sum(kfext.poisoned for kfext, _ in pairs)}",
            f"{fmean(kfext.suspected for kfext, _ in pairs):.0%}",
        )


def _wasted_ratio(pairs: Sequence[_Pair]) -> float:
    return sum(kfext.wasted for kfext, _ in pairs) / sum(reference.wasted for _, reference in pairs)
