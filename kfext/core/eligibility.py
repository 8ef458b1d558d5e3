"""Whether kfext may choose the nodes of a job, and whether its pods may use their nodes' network.

Admission, the queue, the gate and `plan -f` use these checks for jobs of all kinds. A job that
kfext must not place runs as on plain Kubernetes; with `colocation: required` it waits, unless
another scheduler places it. A job that cannot have the host network starts on the pod network.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kfext.core.settings.table import Settings
from kfext.core.settings.values import ALWAYS, NEVER, OFF
from kfext.core.words import listed
from kfext.model.constraints import Constraints
from kfext.model.gang_terms import AFFINITY, ANTI_AFFINITY, GangTerm
from kfext.model.gpu import SLOT, slot_of
from kfext.model.job import TrainingJob
from kfext.model.networking import Port
from kfext.model.pod import Pod
from kfext.model.replica_group import ReplicaGroup
from kfext.model.verdict import Verdict
from kfext.names import (
    DEFAULT_SCHEDULER,
    METRICS,
    MIGRATE,
    PREEMPT,
    REASON_HANDS_OFF,
    REASON_NO_SHARED_VOLUME,
    REASON_ON_DRAINED_NODE,
    REASON_STANDS_DOWN,
    REASON_UNMODELLED,
    REASON_WAITING_FOR_VOLUME,
)

_NO_TERMS = Constraints()


@dataclass(frozen=True, slots=True)
class LeftToOthers(Verdict):
    """The verdict that another scheduler places the pods, so that even a required job starts."""


def not_placed(
    job: TrainingJob, pods: Iterable[Pod] = (), *, node_resources: Collection[str] = ()
) -> Verdict | None:
    """Return the reason why kfext cannot choose the nodes of a job, or None.

    Another scheduler may choose them, the job or a pod may be too large, or kfext does not model a
    term of the job. `pods` are checked too, because admission may have changed them.
    `node_resources`: the resources that nodes list; empty at admission, which knows no nodes.
    """
    pods = tuple(pods)
    if others := _others(job, pods, node_resources):
        return LeftToOthers(REASON_HANDS_OFF, others)
    excesses = (pod.constraints.excess for pod in pods if pod.constraints is not None)
    pod_excess = next(filter(None, excesses), "")
    if excess := job.excess or (pod_excess and f"a pod has {pod_excess}"):
        return Verdict(REASON_HANDS_OFF, excess)
    return _unmodelled(job, pods)


def _others(job: TrainingJob, pods: Collection[Pod], node_resources: Collection[str]) -> str:
    """Return a clause about another scheduler that places a job's pods, or an empty string.

    HAMi's scheduler, for example, accounts for nvidia.com/gpumem: no node lists it, but nodes list
    nvidia.com/gpu of the same domain. Without such a peer, new nodes may list the resource yet.
    """
    placed = {pod.scheduler: "its pods" for pod in pods}
    placed |= {group.scheduler: f"the pods of {group.type}" for group in job.groups}
    if other := min(placed.keys() - {DEFAULT_SCHEDULER}, default=""):
        return f"scheduler {other} places {placed[other]}"
    for group in job.groups:
        for name in sorted(group.requests.keys() - {*node_resources}):
            domain = name.partition("/")[0] + "/"
            if peers := [n for n in group.requests if n.startswith(domain) and n in node_resources]:
                return f"no node lists {name} beside {peers[0]}: another scheduler accounts for it"
    return ""


def _unmodelled(job: TrainingJob, pods: Collection[Pod]) -> Verdict | None:
    terms = {*_not_within_gang(job, pods), *_slot_requests(job)}
    for constraints in _constraints(job, pods):
        terms.update(constraints.unmodelled, constraints.volumes.unmodelled)
    if not terms:
        return None
    message = f"its pods have {listed(sorted(terms), noun='terms')}, which kfext does not model"
    return Verdict(REASON_UNMODELLED, message)


def unbound_claims(job: TrainingJob, pods: Iterable[Pod] = ()) -> Verdict | None:
    """Return the verdict on the unbound volume claims that a job waits for, or None.

    No pod of the job can be bound before its claims, with or without kfext.
    """
    all_constraints = _constraints(job, pods)
    claims = sorted({name for terms in all_constraints for name in terms.volumes.pending})
    if not claims:
        return None
    several = f"{len(claims)} volume claims are"
    subject = f"volume claim {claims[0]} is" if len(claims) == 1 else several
    return Verdict(REASON_WAITING_FOR_VOLUME, f"{subject} not bound yet")


def _slot_requests(job: TrainingJob) -> Iterator[str]:
    """Yield the GPU slots that templates request: kfext writes slots only into pods."""
    requested = {name for group in job.groups if group.replicas for name in group.requests}
    slots = (name for name in requested if name.startswith(SLOT))
    yield from (f"requests for {name}" for name in slots if slot_of(name) is not None)


def _not_within_gang(job: TrainingJob, pods: Iterable[Pod]) -> Iterator[str]:
    """Yield the kinds of inter-pod terms that do not select exactly the pods that have them.

    The ledger cannot know that a selected pod without the term obstructs a pod with it. The terms
    of `pods` must equal the terms of their templates, because admission may have changed them.
    """
    templates = {group.type.lower(): group.constraints for group in job.groups if group.replicas}
    pairs = [
        (templates.get(pod.replica.type, _NO_TERMS), pod.constraints)
        for pod in pods
        if pod.constraints is not None and pod.replica is not None
    ]
    apart = {type_: template.apart for type_, template in templates.items()}
    if not _within(job, apart) or any(template.apart != pod.apart for template, pod in pairs):
        yield ANTI_AFFINITY
    together = {type_: template.together for type_, template in templates.items()}
    one_for_all = len(set(together.values())) <= 1
    if not (one_for_all and _within(job, together)) or any(
        template.together != pod.together for template, pod in pairs
    ):
        yield AFFINITY


def _within(job: TrainingJob, terms: Mapping[str, tuple[GangTerm, ...]]) -> bool:
    """Return whether each term of a job selects exactly the replica types with this term."""
    return all(
        term.job == job.name
        and all((term in terms[type_]) == term.selects(type_) for type_ in terms)
        for term in {term for terms_of_type in terms.values() for term in terms_of_type}
    )


def _constraints(job: TrainingJob, pods: Iterable[Pod]) -> Iterator[Constraints]:
    yield from (group.constraints for group in job.groups if group.replicas)
    yield from (pod.constraints for pod in pods if pod.constraints is not None)


_ENFORCE = "pod-security.kubernetes.io/enforce"
_NO_HOST = frozenset({"baseline", "restricted"})


def why_no_host_network(job: TrainingJob, namespace_labels: Mapping[str, str]) -> str:
    """Return the obstacle to the host network for a job's pods, or an empty string."""
    if job.excess:
        return job.excess
    level = namespace_labels.get(_ENFORCE, "")
    if level in _NO_HOST:
        return f"Pod Security {level} of namespace {job.namespace} forbids the host network"
    if job.started_by:
        return f"{job.started_by} starts the job, and does not take ports into account"
    if job.rendezvous.obstacle:
        return job.rendezvous.obstacle
    return next(filter(None, map(_template_obstacle, job.groups)), "") or _shared_port(job)


def _shared_port(job: TrainingJob) -> str:
    """Return a sentence about a port that several pods declare, or an empty string."""
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


def _template_obstacle(group: ReplicaGroup) -> str:
    """Return the obstacle to the host network in one template, or an empty string."""
    networking = group.networking
    if group.constraints.node_name:
        return f"the {group.type} template names its node, and the webhook ignores such pods"
    if networking.own_host:
        return f"the {group.type} template itself sets the host network or a host port"
    if networking.own_meeting:
        return f"the {group.type} template itself sets where its replicas meet"
    if networking.mesh:
        return f"the {group.type} template requests {networking.mesh}, which needs the pod network"
    return ""


def why_not_moved(job: TrainingJob, settings: Settings) -> Verdict | None:
    """Return the obstacle to moves of a job that opted in, or None.

    The message is a clause, with a remedy if there is one.
    """
    why = why_managed(job) or why_same_slots(job)
    if not settings.metrics.is_log:
        why = f"{METRICS} is {settings.metrics.source}, so kfext sees no checkpoint: set it to auto"
    if why:
        return Verdict(REASON_STANDS_DOWN, why)
    if volume := next(filter(None, map(local_volume, job.groups)), ""):
        message = f"{volume} is on one node: save checkpoints on a volume that all nodes reach"
        return Verdict(REASON_NO_SHARED_VOLUME, message)
    return None


def why_not_stopped(job: TrainingJob, settings: Settings) -> Verdict | None:
    """Return the obstacle to stops of a job that opted in, or None.

    A job that may lose its work needs no checkpoint.
    """
    if settings.preempt != ALWAYS:
        return why_not_moved(job, settings)
    why = why_managed(job) or why_same_slots(job)
    return Verdict(REASON_STANDS_DOWN, why) if why else None


def why_not_drained(job: TrainingJob, settings: Settings, *, by_force: bool) -> Verdict | None:
    """Return the obstacle that keeps a job on a drained node, or None.

    `by_force`: whether the drain stops jobs that did not opt in, and may cost them work.
    """
    if job.started_by:
        why = f"{job.started_by} manages it: stop it there"
        return Verdict(REASON_ON_DRAINED_NODE, why)
    if by_force:
        return None
    if settings.preempt == OFF and settings.migrate == NEVER:
        why = f"it set neither {MIGRATE} nor {PREEMPT}: set either, or drain with --force"
        return Verdict(REASON_ON_DRAINED_NODE, why)
    why_not = why_not_stopped(job, settings)
    return why_not and Verdict(REASON_ON_DRAINED_NODE, f"{why_not.message}; or drain with --force")


def local_volume(group: ReplicaGroup) -> str:
    """Return the volume on one node that may hold a replica's checkpoints, or an empty string.

    A claim that is bound to a node counts. A directory of the node or of the pod counts if the
    replica has no other writable volume.
    """
    for terms in group.constraints.volumes.terms:
        if terms and all(term.names_node for term in terms):
            return "the volume of a claim"
    return group.local_volume


def why_same_slots(job: TrainingJob) -> str:
    """Return a clause that says why a job must keep its GPU slots, or an empty string."""
    return "it shares GPUs, and keeps its slots" if job.shares_gpus else ""


def why_managed(job: TrainingJob) -> str:
    """Return a clause about another system that manages a job's size, or an empty string."""
    if job.started_by:
        return f"{job.started_by} manages it and accounts for its resources: submit the job alone"
    if job.scaling.autoscaled:
        # The autoscaler follows the use of the pods, so both would react to each other's changes.
        return "a HorizontalPodAutoscaler scales it: remove metrics from its elasticPolicy"
    return ""
