"""The rules on the capacity of nodes, and on the final state, after a while without actions."""

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
"""The faults that exist now: messages by a key that stays the same while the fault lasts."""

_ONLY_WAIT = {"NoRoom", "TooBig", "NoEligibleNode", "WaitingForNodes", "NoNewNodes"}
_PREEMPTING = "Preempting"
_RESERVED = "reserv"
"""A word in the message of jobs that leave capacity to the head of the queue."""


def overcommitted(cluster: Cluster) -> Findings:
    """No node is overcommitted by the pods bound to it.

    A kubelet may refuse an in-place resize, so the granted size counts.
    """
    by_node = _by_node((pod.node, pod.granted) for pod in cluster.pods if not pod.over)
    return _with_pods(cluster, _beyond(cluster, by_node, "are bound"))


def overpromised(cluster: Cluster) -> Findings:
    """No node stays overcommitted by the pods that kfext has pinned to it."""
    by_node = _by_node((cluster.home(pod), pod.requested) for pod in cluster.pods if not pod.over)
    return _with_pods(cluster, _beyond(cluster, by_node, "are bound or pinned"))


def double_booked(cluster: Cluster) -> Findings:
    """No two plans of kfext claim the same capacity, whatever foreign pods there are.

    Not counted are: the plan of a gang that lost members, as it is renewed where there is capacity;
    a job that a person suspended and resumed, as its capacity may be in use; and a plan that kfext
    reports as refused by the API server.
    """
    claims: list[tuple[str, Amounts]] = []
    for gang in cluster.gangs.values():
        counts = gang.handled and not gang.suspended and BY_PERSON not in gang.annotations
        if counts and not gang.foreign and not gang.escaped:
            claims += [(pod.home, pod.requested) for pod in gang.pods if not pod.over]
            refused = gang.view.get("reason") == WRITE_REFUSED
            claims += [] if refused or any(pod.node for pod in gang.live) else planned(gang)
    return _beyond(cluster, _by_node(claims), "are promised")


def idle_room(cluster: Cluster, memory: Memory) -> Findings:
    """No job waits for capacity although all its pods fit one node.

    This rule checks only requests and node selectors, so it leaves out jobs in a namespace with a
    quota, and jobs with affinity terms of their own. It takes the requests that the job's pods had
    when they last existed: admission may have raised them above the template's.
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
        needed = total(
            times(larger(_template_request(gang, kind), memory.largest_request(gang, kind)), size)
            for kind, size in gang.sizes.items()
        )
        excluded = set(gang.state.get("excluded", {}))
        for name, free_amounts in free.items():
            selected = all(_selects(spec, cluster.nodes[name]) for spec in gang.templates.values())
            if name not in excluded and selected and not excess(needed, free_amounts):
                findings[gang.uid] = f"{gang} waits ({gang.view.get('message')}), but fits {name}"
                break
    return findings


def free_capacity(cluster: Cluster) -> dict[str, Amounts]:
    """Return the capacity of every open node that no bound pod, pin or plan claims.

    A new node belongs to the job that asked for nodes before the node came, until the job no longer
    asks. If others are stopped for a job, it holds the free capacity of the nodes where it will
    start; the API does not show which nodes, so its requests are subtracted on every node.
    """
    oldest_ask = min((gang.asked_since for gang in cluster.gangs.values()), default=math.inf)
    claims = [(cluster.home(pod), pod.requested) for pod in cluster.pods if not pod.over]
    for gang in cluster.gangs.values():
        if not gang.suspended and not (gang.over or gang.ending or gang.released):
            claims += planned(gang)
    by_node = _by_node(claims)
    held = total(
        times(_template_request(gang, kind), size)
        for gang in cluster.gangs.values()
        if gang.view.get("reason") == _PREEMPTING
        for kind, size in gang.sizes.items()
    )
    return {
        node.name: {
            name: number - by_node.get(node.name, {}).get(name, 0) - held.get(name, 0)
            for name, number in node.offers.items()
        }
        for node in cluster.nodes.values()
        if node.open and node.created <= oldest_ask - 1
    }


def planned(gang: Gang) -> list[tuple[str, Amounts]]:
    """Return the node and the request of each planned replica that has no bound pod.

    Replicas with an ungated pod, and jobs of Kueue, do not count, since their hold soon ends: such
    pods came while the webhook was down, and Kueue may stop the job before its pods are bound.
    """
    if gang.kueue:
        return []
    settled = {pod.replica for pod in gang.live if pod.home or pod.over or not pod.gated}
    return [
        (node, _template_request(gang, replica[0]))
        for replica, node in gang.plan.items()
        if replica not in settled and replica[1] < gang.sizes.get(replica[0], 0)
    ]


def _template_request(gang: Gang, kind: str) -> Amounts:
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
        and gang.state.get("retryAt", 0.0) <= time.time()  # it does not back off
        and not has_own_terms(gang)
    )


def has_own_terms(gang: Gang) -> bool:
    """Return whether a template of a job requires a node or pod affinity."""
    affinities = [
        affinity
        for spec in gang.templates.values()
        for affinity in spec.get("affinity", {}).values()
    ]
    return any("required" in key for affinity in affinities for key in affinity)


def _by_node(claims: Iterable[tuple[str, Amounts]]) -> dict[str, Amounts]:
    by_node: dict[str, list[Amounts]] = defaultdict(list)
    for node, claim in claims:
        if node:
            by_node[node].append(claim)
    return {node: total(claims_of_node) for node, claims_of_node in by_node.items()}


def _beyond(cluster: Cluster, by_node: Mapping[str, Amounts], how: str) -> Findings:
    findings = {}
    for name, needed in by_node.items():
        node = cluster.nodes.get(name)  # a removed node cannot be overcommitted
        for resource, missing in (excess(needed, node.offers) if node else {}).items():
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
            f"{pod.namespace}/{pod.name} {float(pod.requested.get(resource, 0)):g}"
            for pod in cluster.pods
            if not pod.over and cluster.home(pod) == node
        ]
        messages[key] = f"{message}: {', '.join(sorted(pods))}"
    return messages


@dataclass(frozen=True)
class Reserved:
    """What kfext's metrics report; -1 while kfext does not answer.

    `claims`: the claims on the ledger: of pods, plans, and the reservation of the head of the
    queue, which has at most one on each of its `nodes`.
    """

    claims: float = -1
    nodes: float = -1

    def __str__(self) -> str:
        return f"{self.claims:g} claims, nodes reserved: {self.nodes:g}"


def unsettled(cluster: Cluster) -> list[str]:
    """Return the jobs that are neither whole, nor waiting as a whole with a reason, nor ended.

    The rules of `gangs` limit the duration of an attempt.
    """
    messages = []
    for gang in cluster.gangs.values():
        waits = gang.suspended and not gang.pods and gang.view.get("reason")
        bound = sum(bool(pod.node) or pod.over for pod in gang.live)
        done = gang.over or gang.ending or not gang.handled
        if has_own_terms(gang):
            continue  # a job that kube-scheduler always refuses is retried without end
        expected = _waits_beside_survivors(gang) or _is_left_to_scheduler(gang)
        expected = expected or _awaits_job_controller(gang)
        if not (waits or done or expected or bound == gang.size):
            messages.append(
                f"{gang}: {bound} of {gang.size} pods bound; {gang.view.get('message')}"
            )
    return messages


def _waits_beside_survivors(gang: Gang) -> bool:
    """Return whether a gang that lost members waits for capacity for them, and reports it.

    A gated pod with a pin was pinned by a person, and may never fit that node.
    """
    waiting = [pod for pod in gang.live if not pod.node]
    never = {"TooBig", "NoEligibleNode"} if any(pod.pins for pod in waiting) else set()
    reasons = {"NoRoom", "WaitingForNodes", "NoNewNodes", *never}
    return all(pod.gated for pod in waiting) and gang.view.get("reason") in reasons


def _awaits_job_controller(gang: Gang) -> bool:
    """Return whether Kubernetes has yet to replace pods of a TrainJob; it may take 10 minutes."""
    return gang.kind == "TrainJob" and len(gang.live) < gang.size


def _is_left_to_scheduler(gang: Gang) -> bool:
    """Return whether a gang waits only for pods that were created while the webhook was down."""
    waiting = [pod for pod in gang.live if not (pod.node or pod.over)]
    complete = len(gang.live) == gang.size
    return complete and not any(pod.gated or pod.pins for pod in waiting)


def unbalanced(cluster: Cluster, reserved: Reserved) -> list[str]:
    """Return a message if kfext's claims differ from bound and pinned pods plus planned replicas.

    Placeholders may have claims in addition.
    """
    claims = sum(bool(cluster.home(pod)) and not pod.over for pod in cluster.pods)
    for gang in cluster.gangs.values():
        if not (gang.suspended or gang.over or gang.ending or gang.released):
            claims += len(planned(gang))
    held = sum(bool(pod.node and pod.placeholder_of) for pod in cluster.pods)
    fits = claims <= reserved.claims <= claims + reserved.nodes + held
    return [] if fits else [f"kfext has {reserved}, the cluster has {claims} pods and replicas"]
