"""Ways to place a gang, to compare kfext with: what schedulers do pod by pod, and every way.

A pod and a node's free room are (CPU cores, GPUs); an answer is the node of each pod in rank order,
or None if the way finds no place for all of them. All are written anew from their descriptions.
"""

from collections.abc import Callable, Iterator, Sequence

from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Member, limits_of
from kfext.core.placement.place import place
from kfext.core.settings.table import Settings
from kfext.model.constraints import Constraints
from kfext.model.node import Node
from kfext.model.pod import ReplicaKey
from kfext.model.policy import Placement
from kfext.model.verdict import Verdict

Amounts = tuple[int, int]
Answer = list[int] | None
Packer = Callable[[Sequence[Amounts], Sequence[Amounts]], Answer]

RACK = 8
"""Nodes in a rack."""
_NAMES = ("cpu", "nvidia.com/gpu")


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


def spread(pods: Sequence[Amounts], free: Sequence[Amounts]) -> Answer:
    """Each pod on the emptiest node (kube-scheduler's default, LeastAllocated)."""
    return _one_by_one(pods, free, lambda left, at: (-left[at][1], -left[at][0], at))


PACKERS: dict[str, Packer] = {
    "kfext": kfext,
    "first-fit-decreasing": first_fit_decreasing,
    "greedy best fit": best_fit,
    "spread": spread,
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
