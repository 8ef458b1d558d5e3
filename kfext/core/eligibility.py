"""Whether kfext may choose the nodes of a job, and whether its pods may use their network.

Admission, the queue, the gate and `plan -f` ask both, of jobs of all kinds. A job that kfext must
not place runs as on plain Kubernetes; with `colocation: required` it waits, unless another
scheduler places it. A job that cannot have the host network starts on the pod network.
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
    """Why another scheduler places the pods of a job, so that not even a required job waits."""


def not_placed(
    job: TrainingJob, pods: Iterable[Pod] = (), *, on_nodes: Collection[str] = ()
) -> Verdict | None:
    """Return why kfext must not choose the nodes of a job, or None.

    Another scheduler does, the job or a pod is too large, or only kube-scheduler understands a term
    of it. `pods` are asked too, because admission may have changed them. `on_nodes`: the resources
    that nodes list; admission knows none.
    """
    pods = tuple(pods)
    if others := _others(job, pods, on_nodes):
        return LeftToOthers(REASON_HANDS_OFF, others)
    sizes = (pod.constraints.excess for pod in pods if pod.constraints is not None)
    of_pod = next(filter(None, sizes), "")
    if excess := job.excess or (of_pod and f"a pod has {of_pod}"):
        return Verdict(REASON_HANDS_OFF, excess)
    return _unmodelled(job, pods)


def _others(job: TrainingJob, pods: Collection[Pod], on_nodes: Collection[str]) -> str:
    """Return why another scheduler places the pods of a job, empty if none does.

    HAMi's accounts for nvidia.com/gpumem, a resource that no node has ever listed, beside a listed
    resource of its domain, nvidia.com/gpu. A resource alone may be listed by nodes still to come.
    """
    placed = {pod.scheduler: "its pods" for pod in pods}
    placed |= {group.scheduler: f"the pods of {group.type}" for group in job.groups}
    if other := min(placed.keys() - {DEFAULT_SCHEDULER}, default=""):
        return f"scheduler {other} places {placed[other]}"
    for group in job.groups:
        for name in sorted(group.requests.keys() - {*on_nodes}):
            beside = name.partition("/")[0] + "/"
            if known := [n for n in group.requests if n.startswith(beside) and n in on_nodes]:
                return f"no node lists {name} beside {known[0]}: another scheduler accounts for it"
    return ""


def _unmodelled(job: TrainingJob, pods: Collection[Pod]) -> Verdict | None:
    known = (of.unmodelled + of.volumes.unmodelled for of in _constraints(job, pods))
    terms = {term for terms in known for term in terms}
    found = sorted(terms | {*_not_within_gang(job, pods)} | {*_parts(job)})
    if not found:
        return None
    message = f"its pods have {listed(found, of='terms')}, which kfext does not model"
    return Verdict(REASON_UNMODELLED, message)


def unbound(job: TrainingJob, pods: Iterable[Pod] = ()) -> Verdict | None:
    """Return the volume claims that a job waits for, or None.

    No pod of the job can be bound before its claims, with or without kfext.
    """
    found = sorted({name for of in _constraints(job, pods) for name in of.volumes.pending})
    if not found:
        return None
    named = f"volume claim {found[0]} is" if len(found) == 1 else f"{len(found)} volume claims are"
    message = f"{named} not bound yet"
    return Verdict(REASON_WAITING_FOR_VOLUME, message)


def _parts(job: TrainingJob) -> Iterator[str]:
    """Yield the parts of GPUs in requests of templates: kfext writes them only into pods."""
    asked = {name for group in job.groups if group.replicas for name in group.requests}
    named = (name for name in asked if name.startswith(SLOT))
    yield from (f"requests for {name}" for name in named if slot_of(name) is not None)


def _not_within_gang(job: TrainingJob, pods: Iterable[Pod]) -> Iterator[str]:
    """Yield the kinds of terms that select other pods than the pods that have them.

    A selected pod without the term would be in the way of a pod with it, unknown to the ledger.
    Admission may have changed the terms of pods.
    """
    groups = {group.type.lower(): group.constraints for group in job.groups if group.replicas}
    both = [
        (groups.get(pod.replica.type, _NO_TERMS), pod.constraints)
        for pod in pods
        if pod.constraints is not None and pod.replica is not None
    ]
    apart = {type_: of.apart for type_, of in groups.items()}
    if not _within(job, apart) or any(of.apart != seen.apart for of, seen in both):
        yield ANTI_AFFINITY
    together = {type_: of.together for type_, of in groups.items()}
    one_for_all = len(set(together.values())) <= 1
    if not (one_for_all and _within(job, together)) or any(
        of.together != seen.together for of, seen in both
    ):
        yield AFFINITY


def _within(job: TrainingJob, terms: Mapping[str, tuple[GangTerm, ...]]) -> bool:
    """Return whether the terms of a job, by replica type, select exactly the types with them."""
    return all(
        term.job == job.name
        and all((term in own) == term.selects(type_) for type_, own in terms.items())
        for term in {term for own in terms.values() for term in own}
    )


def _constraints(job: TrainingJob, pods: Iterable[Pod]) -> Iterator[Constraints]:
    yield from (group.constraints for group in job.groups if group.replicas)
    yield from (pod.constraints for pod in pods if pod.constraints is not None)


_ENFORCE = "pod-security.kubernetes.io/enforce"
_NO_HOST = frozenset({"baseline", "restricted"})


def why_no_host_network(job: TrainingJob, namespace_labels: Mapping[str, str]) -> str:
    """Return what keeps a job's pods from the host network, empty if nothing is known."""
    if job.excess:
        return job.excess
    level = namespace_labels.get(_ENFORCE, "")
    if level in _NO_HOST:
        return f"Pod Security {level} of namespace {job.namespace} forbids the host network"
    if job.started_by:
        return f"{job.started_by} starts the job, and does not take ports into account"
    if job.rendezvous.obstacle:
        return job.rendezvous.obstacle
    return next(filter(None, map(_why_not_there, job.groups)), "") or _shared_port(job)


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


def _why_not_there(group: ReplicaGroup) -> str:
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


def why_not_moved(job: TrainingJob, settings: Settings) -> Verdict | None:
    """Return why kfext leaves a job where it is although it opted in to moves, or None.

    Each message is a part of a sentence, and says what would change it.
    """
    why = why_others(job) or why_same_slots(job)
    if not settings.metrics.is_log:
        why = f"{METRICS} is {settings.metrics.source}, so kfext sees no checkpoint: set it to auto"
    if why:
        return Verdict(REASON_STANDS_DOWN, why)
    if volume := next(filter(None, map(local_volume, job.groups)), ""):
        message = f"{volume} is on one node: save checkpoints on a volume that all nodes reach"
        return Verdict(REASON_NO_SHARED_VOLUME, message)
    return None


def why_not_stopped(job: TrainingJob, settings: Settings) -> Verdict | None:
    """Return why kfext never stops a job for others although it opted in, or None.

    A job that may lose its work needs no checkpoint.
    """
    if settings.preempt != ALWAYS:
        return why_not_moved(job, settings)
    why = why_others(job) or why_same_slots(job)
    return Verdict(REASON_STANDS_DOWN, why) if why else None


def why_not_drained(job: TrainingJob, settings: Settings, *, by_force: bool) -> Verdict | None:
    """Return why a job does not leave a drained node, or None.

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
    """Return the volume on its node that may hold the checkpoints of a replica; empty if none does.

    A claim that is bound to a node counts. A directory of the node or of the pod counts if the
    replica mounts nothing else that it may write to.
    """
    for terms in group.constraints.volumes.terms:
        if terms and all(term.names_node for term in terms):
            return "the volume of a claim"
    return group.local_volume


def why_same_slots(job: TrainingJob) -> str:
    """Return why GPU slots tie a job to its pods; empty if it shares no GPUs."""
    return "it shares GPUs, and keeps its slots" if job.shares_gpus else ""


def why_others(job: TrainingJob) -> str:
    """Return what else manages the size of a job; empty if nothing does."""
    if job.started_by:
        return f"{job.started_by} manages it, and accounts for what it has: submit the job alone"
    if job.scaling.autoscaled:
        # The autoscaler follows the use of the pods, so both would react to each other's changes.
        return "a HorizontalPodAutoscaler scales it: remove metrics from its elasticPolicy"
    return ""
