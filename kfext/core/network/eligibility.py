"""Whether a job's pods may use the network of their node, and what follows from that.

A job that requests the host network and cannot have it runs on the pod network, and a message
gives the reason. Nothing here ever keeps a job from starting.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from kfext.core.settings.table import Settings
from kfext.core.settings.values import HOST
from kfext.model.job import TrainingJob, pod_labels
from kfext.model.job_state import JobState
from kfext.model.label_selector import LabelSelector
from kfext.model.network_policy import NetworkPolicy
from kfext.model.networking import Port
from kfext.model.plan import Assignment, Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.replica_group import ReplicaGroup
from kfext.model.tolerant import index_in
from kfext.names import REPLICA_INDEX

MOST_NETWORK_POLICIES = 100
"""Network policies of a namespace that are looked at: only a message depends on them, and whoever
may write them may write many."""
MOST_COMPARED = 1000
"""Comparisons of a policy with the labels of a pod, over all policies of a job."""
_ENFORCE = "pod-security.kubernetes.io/enforce"
_NO_HOST = frozenset({"baseline", "restricted"})


@dataclass(frozen=True, slots=True)
class HostNetworkRequest:
    """A job's request for the host network.

    `ports`: the first and the last port that jobs may use.
    `interfaces`: the network interfaces for training traffic.
    `obstacle`: what keeps the job from the host network, empty if nothing is known.
    `policies`: the NetworkPolicies of its namespace, of which some may apply to its pods.
    """

    ports: tuple[int, int]
    interfaces: tuple[str, ...] = ()
    obstacle: str = ""
    policies: tuple[NetworkPolicy, ...] = ()


def host_network_request(
    job: TrainingJob,
    settings: Settings,
    *,
    namespace_labels: Mapping[str, str],
    network_policies: Iterable[NetworkPolicy] = (),
) -> HostNetworkRequest | None:
    """Return a job's request for the host network, None if it has none."""
    if settings.network != HOST:
        return None
    return HostNetworkRequest(
        ports=settings.network_parameters.ports,
        interfaces=settings.network_parameters.interfaces,
        obstacle=obstacle(job, namespace_labels),
        policies=tuple(islice(network_policies, MOST_NETWORK_POLICIES)),
    )


def bypassed(job: TrainingJob, policies: Iterable[NetworkPolicy]) -> list[str]:
    """Return the policies that would apply to a pod of a job, but do not on the host network."""
    pairs = ((policy, labels) for policy in policies for labels in _labels(job, policy.pods))
    compared = islice(pairs, MOST_COMPARED)
    return sorted({policy.name for policy, labels in compared if policy.pods.matches(labels)})


def _labels(job: TrainingJob, selector: LabelSelector) -> Iterator[Mapping[str, str]]:
    """Yield the labels of pods of a job, one for all that a selector cannot tell apart.

    The pods of one template differ by their index alone, and the first one may be the master.
    """
    named = map(index_in, selector.values_of(REPLICA_INDEX))
    indices = {0, *(index for index in named if index is not None)}
    unnamed = next(index for index in range(len(indices) + 1) if index not in indices)
    for group in job.groups:
        for index in sorted({*indices, unnamed}):
            if index < group.replicas:
                key = ReplicaKey(group.type.lower(), index)
                yield {**group.networking.labels, **pod_labels(job, key)}


def obstacle(job: TrainingJob, namespace_labels: Mapping[str, str]) -> str:
    """Return what keeps a job's pods from the host network, empty if nothing is known."""
    if job.excess:
        return job.excess
    level = namespace_labels.get(_ENFORCE, "")
    if level in _NO_HOST:
        return f"Pod Security {level} of namespace {job.namespace} forbids the host network"
    if job.kueue_managed:
        return "Kueue decides where the job goes, and does not take ports into account"
    if job.rendezvous.obstacle:
        return job.rendezvous.obstacle
    return next(filter(None, map(_obstacle_in, job.groups)), "") or _shared_port(job)


def _shared_port(job: TrainingJob) -> str:
    """Return the sentence on a port that several pods declare themselves, empty if none."""
    declared: Counter[Port] = Counter()
    for group in job.groups:
        declared.update(dict.fromkeys(group.networking.ports, group.replicas))
    for (protocol, number), pods in sorted(declared.items()):
        if pods > 1:
            return (
                f"{pods} pods declare port {number}/{protocol}, which a node has only once; "
                f"remove it from the templates if nothing listens on it"
            )
    return ""


def _obstacle_in(group: ReplicaGroup) -> str:
    """Return what in one template keeps its pods from the host network, empty if nothing."""
    networking = group.networking
    if group.constraints.node_name:
        return f"the {group.type} template names its node, and the webhook leaves such pods alone"
    if networking.own_host:
        return f"the {group.type} template itself sets the host network or a host port"
    if networking.own_meeting:
        return f"the {group.type} template itself sets where its replicas meet"
    if networking.mesh:
        return f"the {group.type} template requests {networking.mesh}, which needs the pod network"
    return ""


def agents_alike(job: TrainingJob, places: Assignment) -> str:
    """Return why two pods of a job must not share the network of a node, empty if none would."""
    return job.rendezvous.alike if len(set(places.values())) < len(places) else ""


def why_network(
    asked: HostNetworkRequest | None,
    job: TrainingJob,
    plan: Plan | None,
    state: JobState,
    pods: Collection[Pod] = (),
) -> str:
    """Return why a job has its network; empty if the host network was not requested or it waits."""
    if asked is None:
        return ""
    if plan is not None and plan.port:
        if missed := sum(not pod.on_host for pod in pods):
            return (
                f"{missed} of {len(pods)} pods have their own network: they were created while "
                f"kfext's webhook did not answer"
            )
        return f"its pods use their node's network, with ports from {plan.port} on"
    why = asked.obstacle or state.no_host_network
    if plan is not None and not why:
        why = "it was started without ports on the host network"
    if job.released and not why:
        why = "kfext released it before it had ports on the host network"
    return f"its pods have their own network: {why}" if why else ""
