"""What must hold once nothing has happened for a while."""

from dataclasses import dataclass

from e2e.soak import rooms
from e2e.soak.facts import Cluster, Gang


@dataclass(frozen=True)
class Reserved:
    """What kfext says that it keeps; -1: it does not say.

    `claims` are of pods, of plans, and of the reservation for the head of the queue, which has at
    most one on each of its `nodes`.
    """

    claims: float = -1
    nodes: float = -1

    def __str__(self) -> str:
        return f"{self.claims:g} claims, nodes reserved: {self.nodes:g}"


def unsettled(cluster: Cluster) -> list[str]:
    """Return the jobs that are neither whole, nor waiting as a whole with a reason, nor over.

    How long one attempt may take is for the rules of `gangs` to say.
    """
    odd = []
    for gang in cluster.gangs.values():
        waits = gang.suspended and not gang.pods and gang.view.get("reason")
        bound = sum(bool(pod.node) or pod.over for pod in gang.live)
        done = gang.over or gang.ending or not gang.handled
        if rooms.has_own_terms(gang):
            continue  # one that kube-scheduler refuses for ever is tried again for ever
        left = _waits_beside_survivors(gang) or _is_left_to_scheduler(gang)
        if not (waits or done or left or bound == gang.size):
            odd.append(f"{gang}: {bound} of {gang.size} pods bound; {gang.view.get('message')}")
    return odd


def _waits_beside_survivors(gang: Gang) -> bool:
    """Say whether a gang that lost members waits for room for them, and says so."""
    waiting = [pod for pod in gang.live if not pod.node]
    return all(pod.gated for pod in waiting) and gang.view.get("reason") == "NoRoom"


def _is_left_to_scheduler(gang: Gang) -> bool:
    """Say whether all that a gang waits for are pods that came while kfext's webhook was down."""
    waiting = [pod for pod in gang.live if not (pod.node or pod.over)]
    whole = len(gang.live) == gang.size
    return whole and not any(pod.gated or pod.pins for pod in waiting)


def unbalanced(cluster: Cluster, reserved: Reserved) -> list[str]:
    """Return how kfext's claims differ from ours: the homes of pods, and what plans hold."""
    own = sum(bool(cluster.home(pod)) and not pod.over for pod in cluster.pods)
    for gang in cluster.gangs.values():
        if not (gang.suspended or gang.over or gang.ending or gang.released):
            own += len(rooms.planned(gang))
    fits = own <= reserved.claims <= own + reserved.nodes
    return [] if fits else [f"kfext has {reserved}, the cluster has {own} pods and replicas"]
