"""The rules on jobs, their pods, their starts and their reported state.

Each rule is a function that returns the faults that exist now.
"""

from collections.abc import Iterable, Iterator, Mapping

from e2e.soak.capacity import Findings, free_capacity, has_own_terms
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

_DEADLINE = "longer than specified deadline"
MAX_STARTS = 8
"""The limit of starts of a gang in `_RECENT_SECONDS`. Back-offs of 15 s, 30 s, ... allow 4 starts;
the other 4 are for capacity that other pods took before the gang's pods existed, for people who
suspend and resume it, and for controllers that die."""
_RECENT_SECONDS = 120.0


def half_held(cluster: Cluster, memory: Memory) -> Findings:
    """No gang that was never whole has some pods on nodes while others wait.

    A job with required colocation, which is never released, counts as whole with the fewest workers
    that can train.
    """
    findings = {}
    for gang in running_gangs(cluster):
        bound = [pod for pod in members_of(gang) if pod.node or pod.over]
        if len(bound) == gang.size or gang.uid in memory.whole or gang.escaped:
            continue
        workers = sum(pod.replica[0] == "worker" for pod in bound)
        trains = gang.fewest and workers >= gang.fewest
        if trains and gang.annotations.get(COLOCATION) == "required":
            continue
        if memory.excused(gang, cluster):
            continue
        if holding := [pod for pod in members_of(gang) if pod.home]:
            findings[gang.uid] = (
                f"{gang}: {len(holding)} of {gang.size} pods have a node, {len(bound)} are bound; "
                f"{plan_status(gang)}"
            )
    return findings


def survivors_alone(cluster: Cluster, memory: Memory) -> Findings:
    """No gang that lost members runs without them while there is capacity for them."""
    short = []
    for gang in running_gangs(cluster):
        waiting = [pod for pod in members_of(gang) if not pod.home and not pod.over]
        whole = len(members_of(gang)) == gang.size
        has_other_cause = gang.foreign or gang.escaped or has_own_terms(gang)
        has_other_cause = has_other_cause or memory.excused(gang, cluster)
        if gang.uid in memory.whole and waiting and whole and not has_other_cause:
            short.append((gang, waiting))
    if not short:
        return {}
    free = free_capacity(cluster)
    findings = {}
    for gang, waiting in short:
        homes = {pod.home for pod in gang.live if pod.home}
        allowed_nodes = homes if gang.annotations.get(COLOCATION) == "required" else set(free)
        # Only capacity for all of them on one node counts: more than is needed, but certain.
        needed = total(pod.requested for pod in waiting)
        excluded = set(gang.state.get("excluded", {}))
        nodes = [
            name
            for name in free
            if name in allowed_nodes - excluded and not excess(needed, free[name])
        ]
        # kfext pins and ungates a pod in one write, so a gated pod with a pin is a person's.
        if nodes and not any(pod.selector or (pod.gates and pod.pins) for pod in waiting):
            findings[gang.uid] = (
                f"{gang}: {len(waiting)} pods wait; {nodes[0]} has capacity; {plan_status(gang)}"
            )
    return findings


def unbound(cluster: Cluster, memory: Memory) -> Findings:
    """No pod stays pinned to a node that does not accept it, nor to both kfext's and a person's.

    This holds also for pods of released jobs that kfext has pinned.
    """
    return {
        pod.uid: f"{gang}: {pod.name} is pinned to {sorted(pod.pins)} and not bound; "
        f"{plan_status(gang)}"
        for gang in cluster.gangs.values()
        if gang.managed and not (gang.over or gang.ending or memory.excused(gang, cluster))
        for pod in gang.live
        if pod.pins and not (pod.gates or pod.node or pod.over)
    }


def elsewhere(cluster: Cluster, _: Memory) -> Findings:
    """No pod of a job that kfext handles is bound to a different node than its pin."""
    return {
        pod.uid: f"{gang}: {pod.name} is on {pod.node}, pinned to {sorted(pod.pins)}"
        for gang in cluster.gangs.values()
        if gang.handled
        for pod in gang.live
        if pod.node and pod.pins and pod.pins != {pod.node}
    }


def two_plans(cluster: Cluster, _: Memory) -> Findings:
    """No pod that kfext pinned is bound to a different node than the job's plan says."""
    findings = {}
    for gang in running_gangs(cluster):
        plan = gang.plan
        for pod in members_of(gang):
            planned = plan.get(pod.replica, pod.node)
            if pod.node and pod.pins and pod.node != planned:
                findings[pod.uid] = f"{gang}: {pod.name} is on {pod.node}, the plan says {planned}"
    return findings


def torn_apart(cluster: Cluster, memory: Memory) -> Findings:
    """No gang with colocation always required is on two nodes, unless a person ungated a pod.

    Pods on a deleted node do not run any more, and Kubernetes deletes them within a minute.
    """
    findings = {}
    for gang in running_gangs(cluster):
        bound = [pod for pod in members_of(gang) if pod.node in cluster.nodes]
        nodes = {pod.node for pod in bound} - {pod.node for pod in bound if not pod.pins}
        if memory.colocation.get(gang.uid) == {"required"} and len(nodes) > 1:
            findings[gang.uid] = f"{gang}: colocation is required, its pods are on {sorted(nodes)}"
    return findings


def gated_in_silence(cluster: Cluster, memory: Memory) -> Findings:
    """No gated pod lacks a job, a phase and a reason; no pod of a released job is gated."""
    findings = {}
    for pod in cluster.pods:
        if not pod.gated or pod.ending:
            continue
        gang = cluster.gangs.get(pod.owner)
        if gang is None or pod not in gang.pods:
            findings[pod.uid] = f"{pod.namespace}/{pod.name} is gated, and its job is gone"
        elif memory.excused(gang, cluster):
            continue
        elif gang.released and not gang.over:
            findings[pod.uid] = f"{gang}: {pod.name} is gated, and the job is released"
        elif not (gang.view.get("phase") and gang.view.get("reason")):
            findings[pod.uid] = f"{gang}: {pod.name} is gated, {plan_status(gang)}"
    return findings


def failed(cluster: Cluster, memory: Memory) -> Findings:
    """No job failed except by its own deadline, or because one of its pods was disrupted."""
    return {
        gang.uid: f"{gang} failed: {gang.conditions['Failed']}"
        for gang in cluster.gangs.values()
        if "Failed" in gang.conditions
        if _DEADLINE not in gang.conditions["Failed"] and gang.uid not in memory.disrupted
    }


def suspended_by_nobody(cluster: Cluster, _: Memory) -> Findings:
    """A suspended job is held by kfext, or a person suspended it; then it stays suspended."""
    findings = {}
    for gang in cluster.gangs.values():
        person = gang.annotations.get(BY_PERSON) == SUSPENDED
        if FORGED in gang.annotations:
            continue  # a tenant may suspend its own job, and forge kfext's mark on it
        if gang.suspended and not gang.held and not person and not gang.over:
            findings[gang.uid] = f"{gang} is suspended without a reason"
        elif person and not gang.suspended:
            findings[gang.uid] = f"{gang} was suspended by a person and runs"
    return findings


def running_gangs(cluster: Cluster) -> Iterator[Gang]:
    return (gang for gang in cluster.gangs.values() if gang.handled and not gang.suspended)


def members_of(gang: Gang) -> list[Pod]:
    return [pod for pod in gang.live if pod.replica[1] < gang.sizes.get(pod.replica[0], 0)]


def plan_status(gang: Gang) -> str:
    view = gang.view
    return f"TrainingPlan: {view.get('phase')}, {view.get('reason')}, {view.get('message')!r}"


def restarted_endlessly(cluster: Cluster, memory: Memory) -> Findings:
    """No job is started and stopped again and again."""
    return too_often(cluster, memory.starts, most=MAX_STARTS, what="was started")


def too_often(
    cluster: Cluster, seen: Mapping[str, Iterable[float]], *, most: int, what: str
) -> Findings:
    """Return the jobs with more than `most` recent events; `seen`: the events' times by uid."""
    findings = {}
    for uid, gang in cluster.gangs.items():
        times = [at for at in seen.get(uid, ()) if cluster.at - at <= _RECENT_SECONDS]
        if len(times) > most:
            findings[uid] = (
                f"{gang} {what} {len(times)} times in {_RECENT_SECONDS:.0f} s; {plan_status(gang)}"
            )
    return findings


def never_created(cluster: Cluster, memory: Memory) -> Findings:
    """No gang holds capacity for pods that the operator does not create."""
    findings = {}
    for gang in running_gangs(cluster):
        existing = len(members_of(gang))
        quiet = memory.seconds_without_new_pod(gang, cluster)
        if gang.kueue or memory.excused(gang, cluster) or any(pod.node for pod in gang.live):
            continue
        if gang.plan and existing < gang.size and quiet > memory.create_timeout:
            findings[gang.uid] = (
                f"{gang}: {existing} of {gang.size} pods exist, none new for {quiet:.0f} s; "
                f"{plan_status(gang)}"
            )
    return findings


def placed_unasked(cluster: Cluster, _: Memory) -> Findings:
    """No pod is gated or pinned by kfext in a namespace that is not managed."""
    return {
        gang.uid: f"{gang} is in a namespace that is not managed: {pod.name} is "
        f"gated by {sorted(pod.gates)}, pinned to {sorted(pod.pins)}"
        for gang in cluster.gangs.values()
        if not gang.managed
        for pod in gang.live
        if pod.gated or pod.pins
    }


def held_unasked(cluster: Cluster, _: Memory) -> Findings:
    """No job stays held in a namespace that is not managed: kfext releases it."""
    return {
        gang.uid: f"{gang} is in a namespace that is not managed, and held"
        for gang in cluster.gangs.values()
        if gang.held and gang.suspended and gang.operated and not gang.kueue
        if not (gang.managed or gang.over or gang.ending)
    }


def queued_in_silence(cluster: Cluster, _: Memory) -> Findings:
    """Every job that kfext holds has a phase, a reason and a message."""
    return {gang.uid: message for gang, message in _held_in_silence(cluster)}


def misreported(cluster: Cluster, _: Memory) -> Findings:
    """Every TrainingPlan shows the true state of its job."""
    return {gang.uid: message for gang, message in _misreports(cluster)}


def _held_in_silence(cluster: Cluster) -> Iterator[tuple[Gang, str]]:
    for gang in cluster.gangs.values():
        complete = gang.view.get("phase") and gang.view.get("reason") and gang.view.get("message")
        if gang.handled and gang.held and gang.suspended and not complete:
            yield gang, f"{gang} is held, {plan_status(gang)}"


def _misreports(cluster: Cluster) -> Iterator[tuple[Gang, str]]:
    for gang in cluster.gangs.values():
        phase, nodes = gang.view.get("phase"), set(gang.view.get("nodes", ()))
        if gang.over or gang.ending:
            continue
        homes = [pod.node for pod in members_of(gang)]
        if phase == "Queued" and not (gang.suspended and gang.held):
            yield gang, f"{gang} is reported as Queued; suspended {gang.suspended}"
        elif phase == "Suspended" and not gang.suspended:
            yield gang, f"{gang} is reported as Suspended and is not"
        elif phase == "Placed" and gang.handled and nodes != set(filter(None, homes)):
            yield gang, f"{gang} is reported on {sorted(nodes)}, it is on {homes}"
        elif phase == "Placed" and not any(homes):
            yield gang, f"{gang} is reported as Placed, none of its pods is bound"
