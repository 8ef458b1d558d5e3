"""The rules on the capacity of nodes, and on the state once nothing has happened for a while."""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from e2e.soak.facts import (
    BY_PERSON,
    WRITE_REFUSED,
    Amounts,
    Cluster,
    Gang,
    Node,
    excess,
    larger,
    requests,
    times,
    total,
)
from e2e.soak.memory import Memory

Findings = dict[str, str]
"""Faults that exist now: a key that stays the same while the fault lasts, and a message."""

_ONLY_WAIT = {"NoRoom", "TooBig", "NoEligibleNode", "WaitingForNodes", "NoNewNodes"}
_PREEMPTING = "Preempting"
_RESERVED = "reserv"
"""The message of a job that has to leave capacity to the head of the queue has this word."""


def overcommitted(cluster: Cluster) -> Findings:
    """No node is overcommitted by the pods bound to it.

    The kubelet may refuse a resize in place; the granted size counts.
    """
    on = _by_node((pod.node, pod.has) for pod in cluster.pods if not pod.over)
    return _with_pods(cluster, _beyond(cluster, on, "are bound"))


def overpromised(cluster: Cluster) -> Findings:
    """No node stays overcommitted by the pods that kfext has pinned to it."""
    on = _by_node((cluster.home(pod), pod.asks) for pod in cluster.pods if not pod.over)
    return _with_pods(cluster, _beyond(cluster, on, "are bound or pinned"))


def double_booked(cluster: Cluster) -> Findings:
    """No two plans of kfext claim the same capacity, even without regard to foreign pods.

    The plan of a gang that lost members does not count: it is renewed where there is capacity. Nor
    does a job count that a person suspended and resumed, as its capacity may be in use, nor a plan
    that kfext reports as refused by the API server.
    """
    claims: list[tuple[str, Amounts]] = []
    for gang in cluster.gangs.values():
        counts = gang.handled and not gang.suspended and BY_PERSON not in gang.annotations
        if counts and not gang.foreign and not gang.escaped:
            claims += [(pod.home, pod.asks) for pod in gang.pods if not pod.over]
            refused = gang.view.get("reason") == WRITE_REFUSED
            claims += [] if refused or any(pod.node for pod in gang.live) else planned(gang)
    return _beyond(cluster, _by_node(claims), "are promised")


def idle_room(cluster: Cluster, memory: Memory) -> Findings:
    """No job waits for capacity although one node could take all its pods.

    Jobs in a namespace with a quota, and jobs with their own affinity terms, do not count: this
    rule sees only requests and node selectors. A job waits for the requests that its pods had when
    they last existed: admission may have raised them above the template.
    """
    waiting = [
        gang
        for gang in cluster.gangs.values()
        if _waits_for_room_only(cluster, gang) and not memory.excused(gang, cluster)
    ]
    if not waiting:
        return {}
    free = free_capacity(cluster)
    findings = {}
    for gang in waiting:
        wanted = total(
            times(larger(_asked(gang, kind), memory.asked(gang, kind)), size)
            for kind, size in gang.sizes.items()
        )
        shut = set(gang.state.get("excluded", {}))
        for name, room in free.items():
            selected = all(_selects(spec, cluster.nodes[name]) for spec in gang.templates.values())
            if name not in shut and selected and not excess(wanted, room):
                findings[gang.uid] = f"{gang} waits ({gang.view.get('message')}), but fits {name}"
                break
    return findings


def free_capacity(cluster: Cluster) -> dict[str, Amounts]:
    """Return the free capacity of every open node, beside bound pods, pins and plans.

    New nodes belong to the job that asked for nodes before they came, until it asks no longer. A
    job that others stop for already has a hold on the free capacity where it will start; the API
    does not show on which nodes, so it counts on every node.
    """
    oldest_ask = min((gang.asked_since for gang in cluster.gangs.values()), default=math.inf)
    claims = [(cluster.home(pod), pod.asks) for pod in cluster.pods if not pod.over]
    for gang in cluster.gangs.values():
        if not gang.suspended and not (gang.over or gang.ending or gang.released):
            claims += planned(gang)
    on = _by_node(claims)
    held = total(
        times(_asked(gang, kind), size)
        for gang in cluster.gangs.values()
        if gang.view.get("reason") == _PREEMPTING
        for kind, size in gang.sizes.items()
    )
    return {
        node.name: {
            name: number - on.get(node.name, {}).get(name, 0) - held.get(name, 0)
            for name, number in node.offers.items()
        }
        for node in cluster.nodes.values()
        if node.open and node.created <= oldest_ask - 1
    }


def planned(gang: Gang) -> list[tuple[str, Amounts]]:
    """Return the node and request of each planned replica without a bound pod.

    Replicas with an ungated pod, and jobs of Kueue, have no hold for long: these pods came while
    the webhook was down, or Kueue starts and stops the job, so they may never be bound.
    """
    if gang.kueue:
        return []
    settled = {pod.replica for pod in gang.live if pod.home or pod.over or not pod.gated}
    return [
        (node, _asked(gang, replica[0]))
        for replica, node in gang.plan.items()
        if replica not in settled and replica[1] < gang.sizes.get(replica[0], 0)
    ]


def _asked(gang: Gang, kind: str) -> Amounts:
    return requests(gang.templates[kind])


def _selects(spec: Mapping[str, Mapping[str, str]], node: Node) -> bool:
    return all(node.labels.get(k) == v for k, v in spec.get("nodeSelector", {}).items())


def _waits_for_room_only(cluster: Cluster, gang: Gang) -> bool:
    message = str(gang.view.get("message", ""))
    return (
        gang.held
        and gang.suspended
        and not (gang.over or gang.ending or gang.released or gang.pods)
        and gang.namespace not in cluster.limited
        and gang.view.get("reason") in _ONLY_WAIT
        and _RESERVED not in message
        and gang.state.get("retryAt", 0.0) <= time.time()  # else it backs off after failures
        and not has_own_terms(gang)
    )


def has_own_terms(gang: Gang) -> bool:
    """Say whether a template of a job requires a node or pod affinity."""
    parts = [part for spec in gang.templates.values() for part in spec.get("affinity", {}).values()]
    return any("required" in key for part in parts for key in part)


def _by_node(claims: Iterable[tuple[str, Amounts]]) -> dict[str, Amounts]:
    on: dict[str, list[Amounts]] = defaultdict(list)
    for node, claim in claims:
        if node:
            on[node].append(claim)
    return {node: total(each) for node, each in on.items()}


def _beyond(cluster: Cluster, on: Mapping[str, Amounts], how: str) -> Findings:
    findings = {}
    for name, wanted in on.items():
        node = cluster.nodes.get(name)  # a node that is gone can no longer be too full
        for resource, missing in (excess(wanted, node.offers) if node else {}).items():
            offered = float(node.offers.get(resource, 0)) if node else 0.0
            findings[f"{name} {resource}"] = (
                f"{offered + float(missing):g} {resource} {how} on {name}, which offers {offered:g}"
            )
    return findings


def _with_pods(cluster: Cluster, findings: Findings) -> Findings:
    """Add the pods of each node to the messages, with the request of each."""
    messages = {}
    for key, message in findings.items():
        node, _, resource = key.partition(" ")
        pods = [
            f"{pod.namespace}/{pod.name} {float(pod.asks.get(resource, 0)):g}"
            for pod in cluster.pods
            if not pod.over and cluster.home(pod) == node
        ]
        messages[key] = f"{message}: {', '.join(sorted(pods))}"
    return messages


@dataclass(frozen=True)
class Reserved:
    """The capacity that kfext reports as reserved; -1 while it does not answer.

    `claims` count pods, plans, and the reservation for the head of the queue, which has at most one
    on each of its `nodes`.
    """

    claims: float = -1
    nodes: float = -1

    def __str__(self) -> str:
        return f"{self.claims:g} claims, nodes reserved: {self.nodes:g}"


def unsettled(cluster: Cluster) -> list[str]:
    """Return the jobs that are neither whole, nor waiting as a whole with a reason, nor over.

    The rules of `gangs` limit the duration of one attempt.
    """
    odd = []
    for gang in cluster.gangs.values():
        waits = gang.suspended and not gang.pods and gang.view.get("reason")
        bound = sum(bool(pod.node) or pod.over for pod in gang.live)
        done = gang.over or gang.ending or not gang.handled
        if has_own_terms(gang):
            continue  # a job that kube-scheduler always refuses is retried without end
        expected = _waits_beside_survivors(gang) or _is_left_to_scheduler(gang)
        expected = expected or _awaits_job_controller(gang)
        if not (waits or done or expected or bound == gang.size):
            odd.append(f"{gang}: {bound} of {gang.size} pods bound; {gang.view.get('message')}")
    return odd


def _waits_beside_survivors(gang: Gang) -> bool:
    """Say whether a gang that lost members waits for capacity for them, and reports it.

    A gated pod with a pin is a person's: it may never fit there, whatever capacity becomes free.
    """
    waiting = [pod for pod in gang.live if not pod.node]
    never = {"TooBig", "NoEligibleNode"} if any(pod.pins for pod in waiting) else set()
    reasons = {"NoRoom", "WaitingForNodes", "NoNewNodes", *never}
    return all(pod.gated for pod in waiting) and gang.view.get("reason") in reasons


def _awaits_job_controller(gang: Gang) -> bool:
    """Say whether Kubernetes has yet to replace pods of a TrainJob; that may take ten minutes."""
    return gang.kind == "TrainJob" and len(gang.live) < gang.size


def _is_left_to_scheduler(gang: Gang) -> bool:
    """Say whether a gang waits only for pods that came while kfext's webhook was down."""
    waiting = [pod for pod in gang.live if not (pod.node or pod.over)]
    whole = len(gang.live) == gang.size
    return whole and not any(pod.gated or pod.pins for pod in waiting)


def unbalanced(cluster: Cluster, reserved: Reserved) -> list[str]:
    """Compare kfext's claims with the checker's: bound and pinned pods, and planned replicas.

    Placeholders may have claims beside them.
    """
    claims = sum(bool(cluster.home(pod)) and not pod.over for pod in cluster.pods)
    for gang in cluster.gangs.values():
        if not (gang.suspended or gang.over or gang.ending or gang.released):
            claims += len(planned(gang))
    held = sum(bool(pod.node and pod.placeholder_of) for pod in cluster.pods)
    fits = claims <= reserved.claims <= claims + reserved.nodes + held
    return [] if fits else [f"kfext has {reserved}, the cluster has {claims} pods and replicas"]
