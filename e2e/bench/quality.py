"""How good the chosen nodes are, next to how fast they are chosen. Pure, one core.

Small cases: random gangs on three to five partly taken nodes, against every division there is. The
fewest nodes are the yardstick for nodes and refusals; for the cost of the division (kfext's own
weights: one node, then balanced, then fewest) it is the cheapest of all. Regret is what a way takes
more than the best.

A cluster over time: 64 nodes of 8 GPUs in racks of 8; jobs of 1 to 24 pods with one GPU each come
and go at about three quarters load, the same for every way, each way on its own cluster. A pair is
two pods of a job on two nodes, so traffic that leaves a node. A free GPU is stranded if its node is
not empty: a job with 8 GPUs on one node cannot have it. A job that finds no place is turned away.

The ways to place a gang are what schedulers do pod by pod, and every way there is, all written anew
from their descriptions. A pod and a node's free room are (CPU cores, GPUs). An answer is the node
of each pod in rank order, or None for a gang with a pod that finds no place.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from e2e.bench.report import spread, table
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Member, limits_of
from kfext.core.placement.place import place
from kfext.core.placement.score import cost
from kfext.core.settings.table import Settings
from kfext.model.constraints import Constraints
from kfext.model.node import Node
from kfext.model.parameters import Placement
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict

Amounts = tuple[int, int]
Answer = list[int] | None
Packer = Callable[[Sequence[Amounts], Sequence[Amounts]], Answer]

RACK = 8
"""Nodes in a rack."""
_NAMES = ("cpu", "nvidia.com/gpu")
_NODE: Amounts = (32, 8)
_NODES = 64
_SIZES = {1: 30, 2: 20, 4: 15, 8: 15, 12: 10, 16: 7, 24: 3}
"""Pods of a job -> how often of a hundred."""
_LIVE = 70
"""Jobs at a time, in the mean: about three quarters of all GPUs."""


def kfext(
    pods: Sequence[Amounts], free: Sequence[Amounts], *, keys: tuple[str, ...] = ()
) -> Answer:
    """The solver of the product, without and with knowledge of racks."""
    on = Ledger(
        Node(f"{at:04}", dict(zip(_NAMES, room, strict=True)), {"rack": f"{at // RACK:03}"})
        for at, room in enumerate(free)
    )
    members = [
        Member(
            ReplicaKey("worker", at),
            dict(zip(_NAMES, pod, strict=True)),
            Constraints(),
            guaranteed=True,
            cpu_limit=pod[0],
        )
        for at, pod in enumerate(pods)
    ]
    settings = Settings(placement=Placement(topology_keys=keys))
    found = place(members, on, limits_of(settings, excluded=()))
    return None if isinstance(found, Verdict) else [int(where) for where in found.values()]


def kfext_in_racks(pods: Sequence[Amounts], free: Sequence[Amounts]) -> Answer:
    return kfext(pods, free, keys=("rack",))


def first_fit_decreasing(pods: Sequence[Amounts], free: Sequence[Amounts]) -> Answer:
    """The largest pod first, each on the first node by name that holds it."""
    return _one_by_one(pods, free, lambda left, at: (at,), decreasing=True)


def best_fit(pods: Sequence[Amounts], free: Sequence[Amounts]) -> Answer:
    """Greedy: each pod on the fullest node that holds it (kube-scheduler's MostAllocated)."""
    return _one_by_one(pods, free, lambda left, at: (left[at][1], left[at][0], at))


def spread_out(pods: Sequence[Amounts], free: Sequence[Amounts]) -> Answer:
    """Each pod on the emptiest node (kube-scheduler's default, LeastAllocated)."""
    return _one_by_one(pods, free, lambda left, at: (-left[at][1], -left[at][0], at))


PACKERS: dict[str, Packer] = {
    "kfext": kfext,
    "first-fit-decreasing": first_fit_decreasing,
    "greedy best fit": best_fit,
    "spread": spread_out,
}


def _one_by_one(
    pods: Sequence[Amounts],
    free: Sequence[Amounts],
    order: Callable[[list[Amounts], int], tuple[int, ...]],
    *,
    decreasing: bool = False,
) -> Answer:
    left = list(free)
    found = [0] * len(pods)
    turn = sorted(range(len(pods)), key=lambda pod: pods[pod][::-1], reverse=decreasing)
    for pod in turn if decreasing else range(len(pods)):
        able = [at for at in range(len(left)) if fits(pods[pod], left[at])]
        if not able:
            return None
        found[pod] = min(able, key=lambda at: order(left, at))
        left[found[pod]] = minus(left[found[pod]], pods[pod])
    return found


def fits(pod: Amounts, room: Amounts) -> bool:
    return pod[0] <= room[0] and pod[1] <= room[1]


def minus(room: Amounts, pod: Amounts) -> Amounts:
    return room[0] - pod[0], room[1] - pod[1]


def every_way(pods: Sequence[Amounts], free: Sequence[Amounts]) -> Iterator[tuple[int, ...]]:
    """Yield the shares of each division there is; equal pods are not told apart."""

    def ways(at: int, left: list[Amounts], least: int) -> Iterator[tuple[int, ...]]:
        if at == len(pods):
            yield ()
            return
        alike = at + 1 < len(pods) and pods[at + 1] == pods[at]
        for node in range(least, len(left)):
            if fits(pods[at], left[node]):
                rest = [*left[:node], minus(left[node], pods[at]), *left[node + 1 :]]
                for way in ways(at + 1, rest, node if alike else 0):
                    yield (node, *way)

    for way in ways(0, list(free), 0):
        yield tuple(way.count(node) for node in sorted(set(way)))


def measure(*, quick: bool) -> str:
    """Return the tables."""
    cases, repeats, jobs = (60, 2, 200) if quick else (400, 5, 600)
    small = [_against_all(kind, cases) for kind in ("alike", "unlike")]
    return "\n\n".join([*small, _over_time(repeats, jobs)])


# --- small cases ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Regret:
    """What one way took more than the best, case by case."""

    nodes: list[int] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    pairs: list[int] = field(default_factory=list)
    refused: int = 0


def _against_all(kind: str, cases: int) -> str:
    draw = random.Random(1)
    regrets = {name: _Regret() for name in PACKERS}
    done = several = 0
    while done < cases:
        pods, free = _case(kind, draw)
        ways = set(every_way(pods, free))
        if not ways:
            continue
        done += 1
        fewest = min(map(len, ways))
        several += fewest > 1
        allowed = [way for way in ways if len(way) <= 2 * fewest]
        for name, packer in PACKERS.items():
            _judge(regrets[name], packer(pods, free), fewest, min(map(cost, allowed)))
    return table(
        f"Small cases against all divisions: {done} gangs of pods that are {kind}, "
        f"{several} of them need several nodes",
        ("way", "nodes too many", "at most", "cost regret", "cross-node pairs", "refused"),
        [_regret_row(name, regret, done) for name, regret in regrets.items()],
    )


def _case(kind: str, draw: random.Random) -> tuple[list[Amounts], list[Amounts]]:
    """Return pods and the free room of nodes."""
    free = [(draw.randint(4, 32), draw.randint(0, 8)) for _ in range(draw.randint(3, 5))]
    if kind == "alike":
        return [(draw.choice((1, 2, 4)), 1)] * draw.randint(2, 12), free
    servers = [(draw.randint(2, 8), 0)] * draw.randint(1, 2)
    chief = [(draw.randint(1, 8), draw.randint(0, 2))]
    return [
        *chief,
        *servers,
        *[(draw.randint(1, 6), draw.randint(1, 3))] * draw.randint(1, 4),
    ], free


def _judge(regret: _Regret, answer: list[int] | None, fewest: int, cheapest: float) -> None:
    if answer is None:
        regret.refused += 1
        return
    shares = _shares(answer)
    regret.nodes.append(len(shares) - fewest)
    regret.costs.append(cost(shares) - cheapest)
    regret.pairs.append(_pairs(shares))


def _regret_row(name: str, regret: _Regret, cases: int) -> tuple[str, ...]:
    return (
        name,
        f"{fmean(regret.nodes):.2f}",
        str(max(regret.nodes)),
        f"{fmean(regret.costs):.2f}",
        f"{fmean(regret.pairs):.1f}",
        f"{regret.refused / cases:.1%}",
    )


def _shares(answer: Sequence[int]) -> list[int]:
    return [answer.count(node) for node in sorted(set(answer))]


def _pairs(shares: Sequence[int]) -> int:
    return (sum(shares) ** 2 - sum(share**2 for share in shares)) // 2


# --- a cluster over time ----------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """One repeat of one way; means over the jobs that need more than one pod."""

    nodes: list[int] = field(default_factory=list)
    pairs: list[int] = field(default_factory=list)
    racks: list[int] = field(default_factory=list)
    lopsided: list[float] = field(default_factory=list)
    stranded: list[float] = field(default_factory=list)
    away: int = 0


def _over_time(repeats: int, jobs: int) -> str:
    packers = {**PACKERS, "kfext, racks known": kfext_in_racks}
    runs = {name: [_run(packer, jobs, seed) for seed in range(repeats)]
            for name, packer in packers.items()}  # fmt: skip
    return table(
        f"{_NODES} nodes of 8 GPUs over time; {repeats} repeats of {jobs} jobs",
        ("way", "nodes per job", "cross-node pairs per job", "racks per job",
         "fullest node / even share", "stranded free GPUs %", "turned away %"),
        [_run_row(name, of, jobs) for name, of in runs.items()],
    )  # fmt: skip


def _run(packer: Packer, jobs: int, seed: int) -> _Run:
    draw, run = random.Random(seed), _Run()
    free = [_NODE] * _NODES
    ends: dict[int, list[tuple[list[Amounts], list[int]]]] = {}
    for now in range(jobs):
        for pods, answer in ends.pop(now, ()):
            for pod, node in zip(pods, answer, strict=True):
                free[node] = minus(free[node], (-pod[0], -pod[1]))
        (count,) = draw.choices(list(_SIZES), weights=list(_SIZES.values()))
        end = now + 1 + int(draw.expovariate(1 / _LIVE))
        pods = [(draw.choice((1, 2, 4)), 1)] * count
        found = packer(pods, free)
        if found is None:
            run.away += 1
        else:
            ends.setdefault(end, []).append((pods, found))
            for pod, node in zip(pods, found, strict=True):
                free[node] = minus(free[node], pod)
            if now >= _LIVE and count > 1:  # the cluster has filled
                _note(run, found)
        if now >= _LIVE:
            idle = [gpus for _, gpus in free]
            run.stranded.append(sum(g for g in idle if g < _NODE[1]) / max(sum(idle), 1))
    return run


def _note(run: _Run, answer: list[int]) -> None:
    shares = _shares(answer)
    run.nodes.append(len(shares))
    run.pairs.append(_pairs(shares))
    run.racks.append(len({node // RACK for node in answer}))
    run.lopsided.append(max(shares) / -(-len(answer) // len(shares)))


def _run_row(name: str, runs: Sequence[_Run], jobs: int) -> tuple[str, ...]:
    return (
        name,
        spread([fmean(run.nodes) for run in runs]),
        spread([fmean(run.pairs) for run in runs], digits=1),
        spread([fmean(run.racks) for run in runs]),
        spread([fmean(run.lopsided) for run in runs]),
        spread([fmean(run.stranded) * 100 for run in runs], digits=0),
        spread([run.away / jobs * 100 for run in runs], digits=1),
    )
