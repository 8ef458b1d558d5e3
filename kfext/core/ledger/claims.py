"""The claims that jobs and pods have on the ledger, derived from their objects in the cluster."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from kfext.core.ledger.cards import taken_by, taken_by_reservation
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ports import port_claims, with_host_ports
from kfext.model.constraints import Constraints
from kfext.model.cpu_state import CpuState
from kfext.model.gpu import GpuShare, Place, resource_of, without_card_counts
from kfext.model.job import TrainingJob
from kfext.model.plan import Plan, Slots
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.quantity import CPU, Resources
from kfext.model.replica_group import ReplicaGroup
from kfext.model.replicas import by_replica

_AS_WRITTEN = CpuState()


def pod_key(uid: str) -> Hashable:
    """Return the key of the claim of a pod on its node."""
    return ("pod", uid)


def pod_of(key: Hashable) -> str | None:
    """Return the uid of the pod with this claim key, or None for the keys of other claims."""
    return str(key[1]) if isinstance(key, tuple) and key[0] == "pod" else None


def plan_key(job_uid: str, replica: ReplicaKey) -> Hashable:
    """Return the key of the claim of a planned replica before its pod has a node."""
    return ("plan", job_uid, replica)


def card_key(job_uid: str, replica: ReplicaKey) -> Hashable:
    """Return the key of a replica's claim on a card (see `share_claim`)."""
    return ("card", job_uid, replica)


def pod_claim(pod: Pod, cpu: CpuState = _AS_WRITTEN) -> Claim | None:
    """Return the claim of a pod, or None before the pod is bound or pinned and after its end.

    `cpu`: the state of its job. A request that kfext changed counts as the user wrote it.
    """
    if pod.finished or not pod.home:
        return None
    requests = _as_requested(pod, cpu) if cpu.requested else pod.requests
    if pod.reserves is not None:
        requests = {**requests, **taken_by_reservation(pod.reserves)}
    return Claim(
        node=pod.home,
        requests=requests,
        host_ports=pod.host_ports,
        job=pod.owner_uid,
        priority=pod.priority,
        gang_terms=pod.gang_terms if pod.owner_uid else (),
        reserves=pod.reserves,
    )


def _as_requested(pod: Pod, state: CpuState) -> Resources:
    """Return the requests of a pod with the CPU that its user wrote for the training container."""
    requested = pod.replica and state.requested_of(pod.replica.type, pod.replica.index)
    trainer = pod.trainer
    if not requested or trainer is None or pod.replica is None:
        return pod.requests
    from_kfext = {requested, *state.written_of(pod.replica.type, pod.replica.index)}
    if (trainer.request, trainer.limit) not in from_kfext:
        return pod.requests
    cpu = max(trainer.beside, pod.requests.get(CPU, 0) - trainer.counted + requested.request)
    return {**pod.requests, CPU: cpu}


def reserved_gpu(place: Place) -> Claim:
    """Return the claim on the GPU that a reservation pod will reserve for a slot."""
    node, slot = place
    return Claim(node, taken_by_reservation(slot), reserves=slot)


def plan_claims(
    job: TrainingJob,
    plan: Plan | None,
    pods: Iterable[Pod],
    *,
    priority: int | None = None,
    lapsed: bool = False,
) -> Mapping[Hashable, Claim]:
    """Return the claims of a plan, except for replicas with pods that have their own claims.

    `priority`: the priority that the pods will have, or None, see `Claim`.
    `lapsed`: whether the claims of pods that kfext's gate does not hold have lapsed
        (core.lifecycle.patience).

    A plan claims capacity only while the job runs under it: not after the end of the job, nor while
    the job is suspended. The claim of a failed pod stays for the pod that replaces it. A plan keeps
    its ports and GPU shares until its last pod ends, so that late connections never reach another
    job. A suspended job keeps its GPU shares until its plan is deleted, because any client may
    resume the job.
    """
    if plan is None:
        return {}
    pods = tuple(pods)
    job = with_host_ports(job) if plan.port else job
    ended = job.finished or job.deleting or job.released
    runs = not (job.suspend or ended)
    if not runs and all(pod.finished for pod in pods):
        return {} if ended or not plan.slots else card_claims(job, plan)
    lasting = dict(port_claims(job, plan)) if plan.port else {}
    if plan.slots:
        lasting |= card_claims(job, plan)
    if not runs or (lapsed and job.started_by):
        return lasting
    return {**lasting, **_replica_claims(job, plan, pods, priority=priority, lapsed=lapsed)}


def card_claims(job: TrainingJob, plan: Plan) -> Mapping[Hashable, Claim]:
    """Return the claims of a plan on cards, without the cards' time, which its pods request."""
    busy = {group.type.lower(): group.share.busy for group in job.groups if group.share}
    claims: dict[Hashable, Claim] = {}
    for key, slot in slots_of(job, plan).items():
        share = replace(plan.shares[key.type], busy=busy.get(key.type))
        claims[card_key(job.uid, key)] = share_claim(share, slot, plan.assignment[key], job=job.uid)
    return claims


def slots_of(job: TrainingJob, plan: Plan) -> Slots:
    """Return the slots of the replicas of a plan, without replicas beyond the size of the job."""
    return {key: plan.slots[key] for key in job.within(plan.slots)}


def share_claim(share: GpuShare, slot: int, node: str, *, job: str) -> Claim:
    """Return the claim of a replica on a card, without the card's time, which its pod requests."""
    used = dict(taken_by(share.need, slot, busy=share.uses))
    del used[resource_of(slot)]
    return Claim(node, used, job=job)


def replica_claim(
    source: Constraints | Pod,
    requests: Resources,
    node: str,
    *,
    job: str = "",
    priority: int | None = None,
) -> Claim:
    """Return the claim of a replica on a node, with the ports and terms of `source`."""
    return Claim(
        node=node,
        requests=requests,
        host_ports=source.host_ports,
        job=job,
        priority=priority,
        gang_terms=source.gang_terms,
    )


def _replica_claims(
    job: TrainingJob, plan: Plan, pods: Iterable[Pod], *, priority: int | None, lapsed: bool
) -> dict[Hashable, Claim]:
    present = by_replica(pods)
    groups = {group.type.lower(): group for group in job.groups}
    claims: dict[Hashable, Claim] = {}
    # The claims of replicas without a pod, by type, node and slot.
    shared: dict[tuple[str, str, int | None], Claim] = {}
    # Iterate over the plan, which has a bounded size: the job may have any number of replicas.
    for key, node in plan.assignment.items():
        pod, group = present.get(key) if present else None, groups.get(key.type)
        if group is None or key.index >= group.replicas:
            continue  # scaled down
        if pod is not None and pod.loose and lapsed:
            continue
        replaced = pod is not None and pod.phase == "Failed" and group.restarts
        if pod is not None and (pod.home or pod.finished) and not replaced:
            continue  # the pod has a claim of its own, or needs no more capacity
        slot = plan.slots.get(key)
        claim = None if pod else shared.get((key.type, node, slot))
        if claim is None:
            requests = pod.requests if pod else _requests(group, slot)
            source = pod or group.constraints
            claim = replica_claim(source, requests, node, job=job.uid, priority=priority)
            if pod is None:
                shared[key.type, node, slot] = claim
        claims[plan_key(job.uid, key)] = claim
    return claims


def _requests(group: ReplicaGroup, slot: int | None) -> Resources:
    """Return the requests of the future pod of a replica, with its slot if it shares a GPU."""
    if group.share is None or slot is None:
        return group.requests
    return {**without_card_counts(group.requests), resource_of(slot): group.share.units}
