"""What must hold of jobs, their pods, their starts and what is said of them.

A rule tells what is wrong now.
"""

from collections.abc import Iterable, Iterator, Mapping

from e2e.soak.facts import (
    BY_PERSON,
    COLOCATION,
    FORGED,
    SUSPENDED,
    Cluster,
    Gang,
    Pod,
    excess,
    total,
)
from e2e.soak.memory import Memory
from e2e.soak.rooms import Found, has_own_terms, what_is_free

_DEADLINE = "longer than specified deadline"
MOST_STARTS = 8
"""A gang that fails backs off for 15 s, then twice as long each time: 4 starts in the time below.
As many again are for room that others took from it before its pods were there, for people who
suspend and resume it, and for controllers that die."""
_SECONDS = 120.0


def half_held(cluster: Cluster, memory: Memory) -> Found:
    """No gang that never ran as a whole keeps some of its pods on nodes and others waiting.

    A job that is never released is whole with the fewest workers that it can train with.
    """
    found = {}
    for gang in started(cluster):
        have = [pod for pod in wanted(gang) if pod.node or pod.over]
        if len(have) == gang.size or gang.uid in memory.whole or gang.escaped:
            continue
        workers = sum(pod.replica[0] == "worker" for pod in have)
        trains = gang.fewest and workers >= gang.fewest
        if trains and gang.annotations.get(COLOCATION) == "required":
            continue
        if memory.excused(gang, cluster):
            continue
        if holding := [pod for pod in wanted(gang) if pod.home]:
            found[gang.uid] = (
                f"{gang}: {len(holding)} of {gang.size} pods have a node, {len(have)} are bound; "
                f"{said(gang)}"
            )
    return found


def survivors_alone(cluster: Cluster, memory: Memory) -> Found:
    """No gang that lost members goes on without them while there is room for them."""
    short = []
    for gang in started(cluster):
        waiting = [pod for pod in wanted(gang) if not pod.home and not pod.over]
        whole = len(wanted(gang)) == gang.size
        others = gang.foreign or gang.escaped or has_own_terms(gang)
        others = others or memory.excused(gang, cluster)
        if gang.uid in memory.whole and waiting and whole and not others:
            short.append((gang, waiting))
    if not short:
        return {}
    free = what_is_free(cluster)
    found = {}
    for gang, waiting in short:
        homes = {pod.home for pod in gang.live if pod.home}
        only = homes if gang.annotations.get(COLOCATION) == "required" else set(free)
        # Room for all of them at once is more than is needed, but leaves no doubt.
        needed = total(pod.asks for pod in waiting)
        shut = set(gang.state.get("excluded", {}))
        nodes = [name for name in free if name in only - shut and not excess(needed, free[name])]
        # kfext pins a pod and opens its gate at once, so a gated pod with a pin is a person's.
        if nodes and not any(pod.selector or (pod.gates and pod.pins) for pod in waiting):
            found[gang.uid] = f"{gang}: {len(waiting)} pods wait; {nodes[0]} has room; {said(gang)}"
    return found


def unbound(cluster: Cluster, memory: Memory) -> Found:
    """No pod stays pinned to a node that does not take it, nor to two if a person named one.

    Neither does one of a released job, where kfext has pinned it.
    """
    return {
        pod.uid: f"{gang}: {pod.name} is pinned to {sorted(pod.pins)} and not bound; {said(gang)}"
        for gang in cluster.gangs.values()
        if gang.managed and not (gang.over or gang.ending or memory.excused(gang, cluster))
        for pod in gang.live
        if pod.pins and not (pod.gates or pod.node or pod.over)
    }


def elsewhere(cluster: Cluster, _: Memory) -> Found:
    """No pod of kfext is bound elsewhere than where it is pinned."""
    return {
        pod.uid: f"{gang}: {pod.name} is on {pod.node}, pinned to {sorted(pod.pins)}"
        for gang in cluster.gangs.values()
        if gang.handled
        for pod in gang.live
        if pod.node and pod.pins and pod.pins != {pod.node}
    }


def two_plans(cluster: Cluster, _: Memory) -> Found:
    """No pod that kfext pinned is bound elsewhere than the plan on its job says."""
    found = {}
    for gang in started(cluster):
        plan = gang.plan
        for pod in wanted(gang):
            said = plan.get(pod.replica, pod.node)
            if pod.node and pod.pins and pod.node != said:
                found[pod.uid] = f"{gang}: {pod.name} is on {pod.node}, the plan says {said}"
    return found


def torn_apart(cluster: Cluster, memory: Memory) -> Found:
    """No gang that was always to be on one node is on two, but where a person let a pod go.

    Pods on a node that is gone run no more, and Kubernetes deletes them within a minute.
    """
    found = {}
    for gang in started(cluster):
        bound = [pod for pod in wanted(gang) if pod.node in cluster.nodes]
        nodes = {pod.node for pod in bound} - {pod.node for pod in bound if not pod.pins}
        if memory.colocation.get(gang.uid) == {"required"} and len(nodes) > 1:
            found[gang.uid] = f"{gang}: colocation is required, its pods are on {sorted(nodes)}"
    return found


def gated_in_silence(cluster: Cluster, memory: Memory) -> Found:
    """No pod is gated without a job, a phase and a reason; none of a released job is gated."""
    found = {}
    for pod in cluster.pods:
        if not pod.gated or pod.ending:
            continue
        gang = cluster.gangs.get(pod.owner)
        if gang is None or pod not in gang.pods:
            found[pod.uid] = f"{pod.namespace}/{pod.name} is gated, and its job is gone"
        elif memory.excused(gang, cluster):
            continue
        elif gang.released and not gang.over:
            found[pod.uid] = f"{gang}: {pod.name} is gated, and the job is released"
        elif not (gang.view.get("phase") and gang.view.get("reason")):
            found[pod.uid] = f"{gang}: {pod.name} is gated, {said(gang)}"
    return found


def failed(cluster: Cluster, memory: Memory) -> Found:
    """No job failed but by its own deadline or by a pod that others took from it."""
    return {
        gang.uid: f"{gang} failed: {gang.conditions['Failed']}"
        for gang in cluster.gangs.values()
        if "Failed" in gang.conditions
        if _DEADLINE not in gang.conditions["Failed"] and gang.uid not in memory.disrupted
    }


def suspended_by_nobody(cluster: Cluster, _: Memory) -> Found:
    """A job is suspended because kfext holds it or a person said so, and then it stays so."""
    found = {}
    for gang in cluster.gangs.values():
        person = gang.annotations.get(BY_PERSON) == SUSPENDED
        if FORGED in gang.annotations:
            continue  # a tenant may suspend an own job, and write that kfext held it
        if gang.suspended and not gang.held and not person and not gang.over:
            found[gang.uid] = f"{gang} is suspended without a reason"
        elif person and not gang.suspended:
            found[gang.uid] = f"{gang} was suspended by a person and runs"
    return found


def started(cluster: Cluster) -> Iterator[Gang]:
    """Yield the jobs that run in kfext's hands."""
    return (gang for gang in cluster.gangs.values() if gang.handled and not gang.suspended)


def wanted(gang: Gang) -> list[Pod]:
    """Return the pods that belong to it, without those beyond its size."""
    return [pod for pod in gang.live if pod.replica[1] < gang.sizes.get(pod.replica[0], 0)]


def said(gang: Gang) -> str:
    """Return what is said of a job."""
    view = gang.view
    return f"TrainingPlan: {view.get('phase')}, {view.get('reason')}, {view.get('message')!r}"


def restarted_endlessly(cluster: Cluster, memory: Memory) -> Found:
    """No job is started and stopped again and again."""
    return too_often(cluster, memory.starts, most=MOST_STARTS, what="was started")


def too_often(
    cluster: Cluster, seen: Mapping[str, Iterable[float]], *, most: int, what: str
) -> Found:
    """Return the jobs with something that was seen too often of late; `seen`: when, by uid."""
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
    """No pod is gated or pinned by kfext where no user opted in."""
    return {
        gang.uid: f"{gang} is in a namespace that is not managed: {pod.name} is "
        f"gated by {sorted(pod.gates)}, pinned to {sorted(pod.pins)}"
        for gang in cluster.gangs.values()
        if not gang.managed
        for pod in gang.live
        if pod.gated or pod.pins
    }


def held_unasked(cluster: Cluster, _: Memory) -> Found:
    """No job stays held where no user opted in: what bears kfext's marks there is let go."""
    return {
        gang.uid: f"{gang} is in a namespace that is not managed, and held"
        for gang in cluster.gangs.values()
        if gang.held and gang.suspended and gang.operated and not gang.kueue
        if not (gang.managed or gang.over or gang.ending)
    }


def queued_in_silence(cluster: Cluster, _: Memory) -> Found:
    """Every job that kfext holds has a phase, a reason and a sentence."""
    return {gang.uid: told for gang, told in _silent(cluster)}


def misreported(cluster: Cluster, _: Memory) -> Found:
    """What a TrainingPlan says is the case."""
    return {gang.uid: told for gang, told in _wrong(cluster)}


def _silent(cluster: Cluster) -> Iterator[tuple[Gang, str]]:
    for gang in cluster.gangs.values():
        told = gang.view.get("phase") and gang.view.get("reason") and gang.view.get("message")
        if gang.handled and gang.held and gang.suspended and not told:
            yield gang, f"{gang} is held, {said(gang)}"


def _wrong(cluster: Cluster) -> Iterator[tuple[Gang, str]]:
    for gang in cluster.gangs.values():
        phase, nodes = gang.view.get("phase"), set(gang.view.get("nodes", ()))
        if gang.over or gang.ending:
            continue
        homes = [pod.node for pod in wanted(gang)]
        if phase == "Queued" and not (gang.suspended and gang.held):
            yield gang, f"{gang} is said to be queued; suspended {gang.suspended}"
        elif phase == "Suspended" and not gang.suspended:
            yield gang, f"{gang} is said to be suspended and is not"
        elif phase == "Placed" and gang.handled and nodes != set(filter(None, homes)):
            yield gang, f"{gang} is said to be on {sorted(nodes)}, it is on {homes}"
        elif phase == "Placed" and not any(homes):
            yield gang, f"{gang} is said to be placed, none of its pods is bound"
