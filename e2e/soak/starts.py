"""What must hold of the starts of jobs, and of jobs that kfext must not start."""

from collections.abc import Iterable, Mapping

from e2e.soak.facts import Cluster
from e2e.soak.gangs import said, started, wanted
from e2e.soak.memory import Memory
from e2e.soak.rooms import Found

MOST_STARTS = 8
"""A gang that fails backs off for 15 s, then twice as long each time: 4 starts in the time below.
As many again are for room that others took from it before its pods were there, for people who
suspend and resume it, and for controllers that die."""
_SECONDS = 120.0


def restarted_endlessly(cluster: Cluster, memory: Memory) -> Found:
    """No job is started and stopped again and again."""
    return too_often(cluster, memory.starts, most=MOST_STARTS, what="was started")


def too_often(
    cluster: Cluster, seen: Mapping[str, Iterable[float]], *, most: int, what: str
) -> Found:
    """Return the jobs of which something was seen too often of late; `seen`: when, by uid."""
    found = {}
    for uid, gang in cluster.gangs.items():
        times = [at for at in seen.get(uid, ()) if cluster.at - at <= _SECONDS]
        if len(times) > most:
            found[uid] = f"{gang} {what} {len(times)} times in {_SECONDS:.0f} s; {said(gang)}"
    return found


def never_created(cluster: Cluster, memory: Memory) -> Found:
    """No gang holds room for pods that the operator does not create."""
    found = {}
    for gang in started(cluster):
        have, quiet = len(wanted(gang)), memory.quiet(gang, cluster)
        if gang.kueue or memory.excused(gang, cluster) or any(pod.node for pod in gang.live):
            continue
        if gang.plan and have < gang.size and quiet > memory.create_timeout:
            found[gang.uid] = (
                f"{gang}: {have} of {gang.size} pods exist, none new for {quiet:.0f} s; "
                f"{said(gang)}"
            )
    return found


def placed_unasked(cluster: Cluster, _: Memory) -> Found:
    """No pod is gated or pinned by kfext where nobody opted in."""
    return {
        gang.uid: f"{gang} is in a namespace that is not managed: {pod.name} is "
        f"gated by {sorted(pod.gates)}, pinned to {sorted(pod.pins)}"
        for gang in cluster.gangs.values()
        if not gang.managed
        for pod in gang.live
        if pod.gated or pod.pins
    }


def held_unasked(cluster: Cluster, _: Memory) -> Found:
    """No job stays held where nobody opted in: what bears kfext's marks there is let go."""
    return {
        gang.uid: f"{gang} is in a namespace that is not managed, and held"
        for gang in cluster.gangs.values()
        if gang.held and gang.suspended and gang.operated and not gang.kueue
        if not (gang.managed or gang.over or gang.ending)
    }
