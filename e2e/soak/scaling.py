"""What must hold of jobs whose number of workers kfext may change."""

from e2e.soak.facts import Cluster
from e2e.soak.gangs import said
from e2e.soak.memory import Memory
from e2e.soak.rooms import Found
from e2e.soak.sizes import allowed, workers_of
from e2e.soak.starts import too_often

REST_SECONDS = 10
"""Between two changes of one job, by the policy in force."""
MOST_CHANGES = 16
"""Of the size of a job in two minutes: one after each rest, and a third as many again for people
who opt out and in."""


def out_of_range(cluster: Cluster, memory: Memory) -> Found:
    """No job has fewer or more workers than it allows, but by a person's hand."""
    found = {}
    for gang in cluster.gangs.values():
        bounds, wished = allowed(gang), memory.sizes.wished.get(gang.uid, set())
        if bounds is None or not gang.handled:
            continue
        least, most = min(bounds[0], *wished), max(bounds[1], *wished)
        if not least <= workers_of(gang) <= most:
            found[gang.uid] = (
                f"{gang} has {workers_of(gang)} workers, it allows {bounds[0]} to {bounds[1]}, and "
                f"people wrote {sorted(wished)}; {said(gang)}"
            )
    return found


def resized_endlessly(cluster: Cluster, memory: Memory) -> Found:
    """No job gets another size again and again."""
    return too_often(cluster, memory.sizes.changes, most=MOST_CHANGES, what="was resized")


def replaced(cluster: Cluster, memory: Memory) -> Found:
    """No pod that a change of size leaves alone is replaced, unless its node's end took it."""
    found = {}
    for uid, staying in memory.sizes.staying.items():
        gang = cluster.gangs.get(uid)
        if gang is None or not gang.handled or uid in memory.disrupted:
            continue
        if gone := staying.keys() - {pod.uid for pod in gang.live}:
            found[uid] = f"{gang}: {len(gone)} of {len(staying)} pods that were to stay are gone"
    return found
