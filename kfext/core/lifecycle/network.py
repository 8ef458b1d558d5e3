"""The network of a job: whether its pods use the network of their nodes, on which ports, and why.

A job that cannot have the host network for all its pods runs on the pod network, with a message
about the reason. The network never prevents the start of a job.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from kfext.core.eligibility import why_no_host_network
from kfext.core.ledger.ledger import Ledger
from kfext.core.ledger.ports import block, free_base, with_host_ports
from kfext.core.lifecycle.capacity import find_place
from kfext.core.lifecycle.patience import suspend
from kfext.core.lifecycle.situation import HostNetworkRequest, Situation
from kfext.core.lifecycle.steps import Release, Step
from kfext.core.queue.no_fit import NoFit, NoFitCache
from kfext.core.settings.table import Settings
from kfext.core.words import listed
from kfext.model.job import TrainingJob, pod_labels
from kfext.model.job_state import JobState
from kfext.model.label_selector import LabelSelector
from kfext.model.network_policy import NetworkPolicy
from kfext.model.plan import Assignment, Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.tolerant import index_in
from kfext.model.verdict import Verdict
from kfext.names import REASON_HOST_NETWORK, REASON_NETWORK_POLICIES_BYPASSED, REASON_POD_NETWORK

MAX_NETWORK_POLICIES = 100
"""The most network policies of a namespace that are read. Users may write many, and only a
message depends on them."""
MAX_COMPARED = 1000
"""The most comparisons of a policy with the labels of a pod, for one job."""


def host_network_request(
    job: TrainingJob,
    settings: Settings,
    *,
    namespace_labels: Mapping[str, str],
    network_policies: Iterable[NetworkPolicy] = (),
) -> HostNetworkRequest:
    """Return the request of a job for the host network."""
    return HostNetworkRequest(
        ports=settings.network_parameters.port_range,
        interfaces=settings.network_parameters.interfaces,
        obstacle=why_no_host_network(job, namespace_labels),
        policies=tuple(islice(network_policies, MAX_NETWORK_POLICIES)),
    )


def bypassed(job: TrainingJob, policies: Iterable[NetworkPolicy]) -> list[str]:
    """Return the policies that select pods of a job, but do not apply on the host network."""
    pairs = ((policy, labels) for policy in policies for labels in _labels(job, policy.pods))
    compared = islice(pairs, MAX_COMPARED)
    return sorted({policy.name for policy, labels in compared if policy.pods.matches(labels)})


def _labels(job: TrainingJob, selector: LabelSelector) -> Iterator[Mapping[str, str]]:
    """Yield the labels of a job's pods, once for pods that a selector cannot tell apart.

    The pods of one template differ only by index, and the first pod may be the master.
    """
    indices_in_selector = map(index_in, selector.values_of(job.kind.index_label))
    indices = {0, *(index for index in indices_in_selector if index is not None)}
    unselected = next(index for index in range(len(indices) + 1) if index not in indices)
    for group in job.groups:
        for index in sorted({*indices, unselected}):
            if index < group.replicas:
                key = ReplicaKey(group.type.lower(), index)
                yield {**group.networking.labels, **pod_labels(job, key)}


def place_on_network(
    situation: Situation, requested: HostNetworkRequest, ledger: Ledger, no_fits: NoFitCache
) -> tuple[Assignment | NoFit, int, Verdict | None]:
    """Return the nodes, the first port and a verdict for a job that requests the host network.

    The port is 0 on the pod network. The verdict names the network and the reason for it.
    """
    job = situation.job
    why = requested.obstacle or situation.state.no_host_network
    if not why:
        answer = find_place(replace(situation, job=with_host_ports(job)), ledger, no_fits)
        if isinstance(answer, NoFit):
            why = f"no place with its ports: {answer.verdict.message}"
        elif obstacle := agents_indistinguishable(job, answer):
            why = obstacle
        elif base := free_base(job, answer, ledger, ports=requested.ports):
            return answer, base, _host_network_verdict(job, requested, answer, base)
        else:
            low, high = requested.ports
            number = len(block(job, low))
            why = f"its nodes have no free block of ports in {low}-{high} ({number} needed)"
    return find_place(situation, ledger, no_fits), 0, Verdict(REASON_POD_NETWORK, why)


def _host_network_verdict(
    job: TrainingJob, requested: HostNetworkRequest, places: Assignment, base: int
) -> Verdict:
    """Return the verdict that a job uses the host network, with its ports and caveats."""
    numbers = [str(number) for _, number in block(job, base)]
    several = f"ports {listed(numbers, noun='ports')} are"
    ports = f"port {numbers[0]} is" if len(numbers) == 1 else several
    words = "its pods use the network of their nodes"
    words += f", where {ports} reserved for them" if numbers else ""
    needs = job.kind.across_nodes
    if needs and len(set(places.values())) > 1 and not requested.interfaces:
        words += f"; between nodes, {needs}"
    ineffective = bypassed(job, requested.policies)
    if not ineffective:
        return Verdict(REASON_HOST_NETWORK, words)
    policies = listed(ineffective, noun="policies")
    message = f"{words}; NetworkPolicy {policies} does not apply there"
    return Verdict(REASON_NETWORK_POLICIES_BYPASSED, message)


def agents_indistinguishable(job: TrainingJob, places: Assignment) -> str:
    """Return the obstacle to a shared network of pods on one node, or an empty string."""
    return job.rendezvous.alike if len(set(places.values())) < len(places) else ""


def why_network(
    requested: HostNetworkRequest | None,
    job: TrainingJob,
    plan: Plan | None,
    state: JobState,
    pods: Collection[Pod] = (),
) -> str:
    """Return a sentence about the network of a started job that requested the host network."""
    if requested is None:
        return ""
    if plan is not None and plan.port:
        if separate := sum(not pod.on_host for pod in pods):
            return (
                f"{separate} of {len(pods)} pods have their own network: they were created while "
                f"kfext's webhook did not answer"
            )
        return f"its pods use their node's network, with ports from {plan.port} on"
    why = requested.obstacle or state.no_host_network
    if plan is not None and not why:
        why = "it was started without ports on the host network"
    if job.released and not why:
        why = "kfext released it before it had ports on the host network"
    return f"its pods have their own network: {why}" if why else ""


def never_created(situation: Situation, late: Verdict) -> Step:
    """Suspend a job without pods on the host network.

    kfext does not see why the API server refused them. The next attempt uses the pod network,
    unless the operator reported no failure.
    """
    state = situation.after_strike(late.reason, late.message)
    return suspend(situation, replace(state, no_host_network=late.message))


def on_two_networks(situation: Situation, live: Mapping[ReplicaKey, Pod]) -> Step | None:
    """Suspend a job that needs one network for all pods, if the webhook missed some of them.

    The job starts again at once, on the pod network.
    """
    if not situation.job.kind.one_network:
        return None
    if len({pod.on_host for pod in live.values() if not pod.finished}) < 2:
        return None
    message = "some of its pods were created while kfext's webhook did not answer"
    state = replace(
        situation.state,
        retry_at=0.0,
        reason=REASON_POD_NETWORK,
        message=message,
        no_host_network=message,
    )
    return suspend(situation, state)


def started_without(situation: Situation, plan: Plan) -> Verdict | None:
    """Return why a job that kfext did not start is on the pod network, or None."""
    if situation.plan is not None:
        return None
    why = why_network(situation.host_network, situation.job, plan, situation.state)
    return Verdict(REASON_POD_NETWORK, why) if why else None


def release_queued(situation: Situation, verdict: Verdict) -> Release:
    """Release a waiting job, with a message if it loses the host network."""
    requested = situation.host_network
    if requested and not requested.obstacle:
        verdict = replace(verdict, message=f"{verdict.message}; so its pods have their own network")
    return Release((), verdict)
