"""The job webhook's decision: hold a new job until it has a place, and write its settings down.

A copied manifest may bring marks of the job it was copied from. `held` among them says that its
suspend is kfext's doing, not the person's: both are taken back in thought before the decision. That
makes the decision idempotent too, because the API server may show us our own output again, and
nothing in a second review tells it from a first one (every review has a uid of its own).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfext import names
from kfext.core.host_network import obstacle
from kfext.core.mutation import Mutation
from kfext.core.patch import Changes, Operation, Unpatchable, operations
from kfext.core.pod_network import edits_of
from kfext.core.settings import Settings, resolve
from kfext.core.validate import HOST, OFF
from kfext.model.job import TrainingJob, parse_job, template_of
from kfext.model.policy import TrainingPolicy, policy_for
from kfext.model.replica_group import ReplicaGroup
from kfext.model.tolerant import mapping, strings, text
from kfext.model.verdict import Verdict

DEFAULT_SCHEDULERS = frozenset({"", "default-scheduler"})
_HELD = "true"
_UNMANAGED = Verdict(names.REASON_HANDS_OFF, f"the namespace is not labelled {names.MANAGED}=true")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a review must know of the cluster; all of it comes from a watched cache."""

    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)
    policies: Sequence[TrainingPolicy] = ()
    controller_alive: bool = False

    @property
    def managed(self) -> bool:
        """Whether an administrator opted the namespace in."""
        return self.namespace_labels.get(names.MANAGED) == "true"


def mutate_job(raw: object, facts: Facts) -> Mutation:
    """Return what admission does to a new PyTorchJob or TFJob; total, whatever the input."""
    body = mapping(raw)
    job = parse_job(body)
    if job is None:
        return Mutation()
    if not facts.managed:
        return Mutation(verdicts=(_UNMANAGED,))
    policy = policy_for(facts.policies, facts.namespace_labels)
    settings = resolve(job.annotations, facts.namespace_annotations, policy)
    if settings.errors:
        refusal = "; ".join(str(error) for error in settings.errors)
        return Mutation(
            warnings=settings.warnings,
            refusal=refusal,
            verdicts=(Verdict(names.REASON_SETTINGS_INVALID, refusal),),
        )
    verdict = _not_ours(job, body) or _not_held(job, settings, facts) or _held(job, settings)
    try:
        ops = operations(body, _changes(job, body, settings=settings, reason=verdict.reason))
    except Unpatchable as error:
        # The API server is about to refuse such an object, with a better sentence than ours.
        return Mutation(warnings=settings.warnings, verdicts=(_malformed(error),))
    return Mutation(
        ops=tuple(ops),
        warnings=(*settings.warnings, *_warnings(job, body, settings=settings, facts=facts)),
        verdicts=(verdict, *_edits(job, settings, facts, ops=ops)),
    )


def _not_ours(job: TrainingJob, body: Mapping[str, Any]) -> Verdict | None:
    """Return why kfext has no business with the job, if it has none."""
    if not job.pods:
        return Verdict(
            names.REASON_HANDS_OFF,
            f"the job has no replicas of a type that a {job.kind.name} knows "
            f"({', '.join(job.kind.types)}), so there is nothing to place",
        )
    if not job.run_by_operator:
        return Verdict(names.REASON_HANDS_OFF, f"runPolicy.managedBy is {job.managed_by}")
    if job.released:
        said = job.annotations[names.RELEASED]
        return Verdict(names.REASON_RELEASED, f"annotation {names.RELEASED} is set ({said})")
    for group in job.groups:
        scheduler = _scheduler(job, body, group)
        if scheduler not in DEFAULT_SCHEDULERS:
            return Verdict(
                names.REASON_HANDS_OFF, f"scheduler {scheduler} places the pods of {group.type}"
            )
    return None


def _not_held(job: TrainingJob, settings: Settings, facts: Facts) -> Verdict | None:
    """Return why a job of ours is not to be suspended now, if it is not."""
    reason = names.REASON_NOT_HELD
    if job.kueue_managed:
        return Verdict(reason, "Kueue decides when the job starts; kfext places it after that")
    if job.suspend and not job.held:
        return Verdict(
            names.REASON_SUSPENDED_BY_USER, "runPolicy.suspend was set by whoever sent the job"
        )
    if settings.colocation == OFF:
        return Verdict(reason, f"colocation is off ({settings.source(names.COLOCATION)} says so)")
    if not facts.controller_alive:
        return Verdict(reason, "kfext's controller does not answer; plain Kubernetes places it")
    return None


def _held(job: TrainingJob, settings: Settings) -> Verdict:
    return Verdict(
        names.REASON_HELD,
        f"suspended until {job.pods} pods have a place together "
        f"(colocation {settings.colocation}, from {settings.source(names.COLOCATION)})",
    )


def _malformed(error: Unpatchable) -> Verdict:
    return Verdict(names.REASON_HANDS_OFF, f"the object is malformed: {error}")


def _changes(
    job: TrainingJob, body: Mapping[str, Any], *, settings: Settings, reason: str
) -> Changes:
    """Return the changes as a merge patch."""
    hold = reason == names.REASON_HELD
    annotations: Changes = {names.PLAN: None, names.STATE: None}
    annotations[names.HELD] = _HELD if hold else None
    spec: Changes = {}
    if hold or (job.held and job.suspend and not job.kueue_managed and job.run_by_operator):
        spec["runPolicy"] = {"suspend": hold}
    edits = {
        group.key: {"template": {"metadata": metadata}}
        for group in job.groups
        if (metadata := _template(job, body, group=group, settings=settings, reason=reason))
    }
    if edits:
        spec[job.kind.replica_specs] = edits
    return {"metadata": {"annotations": annotations}, "spec": spec}


def _template(
    job: TrainingJob,
    body: Mapping[str, Any],
    *,
    group: ReplicaGroup,
    settings: Settings,
    reason: str,
) -> Changes:
    """Return the changes of one template's metadata."""
    if reason == names.REASON_RELEASED:
        # The pod webhook sees pods only: without it there, replaced pods would be gated.
        return {"annotations": {names.RELEASED: job.annotations[names.RELEASED]}}
    if reason == names.REASON_HANDS_OFF:
        return {}
    changes: Changes = {
        "annotations": {
            names.COLOCATION: settings.colocation,
            names.NETWORK: settings.network,
            # Pods go to the host network only under a plan, which has ports for them.
            names.PORT_BASE: None,
            names.INTERFACES: None,
            names.PLAN_GENERATION: None,
        }
    }
    metadata = _metadata(job, body, group)
    if not any(names.ISTIO_INJECT in mapping(metadata.get(at)) for at in ("labels", "annotations")):
        changes["annotations"][names.ISTIO_INJECT] = "false"
        changes["labels"] = {names.ISTIO_INJECT: "false"}
    return changes


def _warnings(
    job: TrainingJob, body: Mapping[str, Any], *, settings: Settings, facts: Facts
) -> Iterator[str]:
    """Yield what the user would be surprised by later."""
    if not job.pods:
        yield "kfext leaves this job alone: it has no replicas"
        return
    if not facts.controller_alive:
        yield "kfext's controller does not answer: the job runs as on plain Kubernetes"
    if settings.network == HOST and (why := _pod_network(job, settings, facts)):
        yield f"the pods will have their own network, not that of their node: {why}"
    if settings.elastic is not None and not job.elastic:
        yield (
            f"{names.ELASTIC} has no effect on this job: only a PyTorchJob with an elasticPolicy "
            f"and no Master, or a TFJob with PS and enableDynamicWorker, runs with fewer workers"
        )
    for group in job.groups:
        written = strings(_metadata(job, body, group).get("annotations")).get(names.COLOCATION)
        if written not in {None, settings.colocation}:
            yield (
                f"annotation {names.COLOCATION} of the {group.type} template is overwritten with "
                f"{settings.colocation}: settings are read from the job's own annotations"
            )


def _pod_network(job: TrainingJob, settings: Settings, facts: Facts) -> str:
    """Return why a job that asks for the host network will not have it, as far as is known."""
    by_hand = job.suspend and not job.held
    if settings.colocation == OFF or by_hand or not facts.controller_alive:
        return "only a job that kfext starts has ports there"
    return obstacle(job, facts.namespace_labels)


def _edits(
    job: TrainingJob, settings: Settings, facts: Facts, *, ops: Sequence[Operation]
) -> Iterator[Verdict]:
    """Yield what was written besides the suspension."""
    brought = sorted(names.WRITTEN_BY_KFEXT & job.annotations.keys())
    if brought and any(op["op"] == "remove" for op in ops):
        yield Verdict(
            names.REASON_COPIED_MARKS_REMOVED,
            f"the manifest brought {', '.join(brought)} of another job",
        )
    paths = [op["path"] for op in ops if "/template" in op["path"]]
    if paths and settings.network == HOST and not _pod_network(job, settings, facts):
        edits = "; ".join(f"{what}, because {why}" for what, why in edits_of(job.kind))
        yield Verdict(
            names.REASON_HOST_NETWORK,
            f"asked for; with its place the job gets ports of its own, and on its pods {edits}",
        )
    if paths:
        yield Verdict(
            names.REASON_TEMPLATES_EDITED,
            f"{len(job.groups)} templates carry colocation {settings.colocation}, network "
            f"{settings.network}, and no Istio sidecar unless they ask for one: a sidecar never "
            f"ends",
        )


def _metadata(job: TrainingJob, body: Mapping[str, Any], group: ReplicaGroup) -> Mapping[str, Any]:
    return mapping(template_of(job, body, group).get("metadata"))


def _scheduler(job: TrainingJob, body: Mapping[str, Any], group: ReplicaGroup) -> str:
    return text(mapping(template_of(job, body, group).get("spec")).get("schedulerName"))
