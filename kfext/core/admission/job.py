"""The job webhook's decision: hold a new job until it has a place, and write its settings down.

A copied manifest may contain the annotations of the job it was copied from. If `held` is among
them, its `suspend` was set by kfext and not by a person, so the decision is made as if neither were
set. That also makes the decision idempotent, which it must be: the API server may send us our own
output again, and nothing distinguishes a second review from a first one (each has its own uid).
"""

from collections.abc import Mapping
from typing import Any

from kfext import names
from kfext.core.admission.facts import Facts
from kfext.core.admission.mutation import Mutation
from kfext.core.admission.notices import edits, warnings
from kfext.core.patches.json_patch import Changes, Unpatchable, operations
from kfext.core.placement.unmodelled import unplaceable
from kfext.core.settings.of_job import settings_of
from kfext.core.settings.resolve import Settings
from kfext.core.settings.values import Colocation
from kfext.model.job import TrainingJob, parse_job, template_of
from kfext.model.replica_group import ReplicaGroup
from kfext.model.tolerant import mapping, text
from kfext.model.verdict import Verdict

DEFAULT_SCHEDULERS = frozenset({"", "default-scheduler"})
_HELD = "true"
# Pods go to the host network only under a plan, which has ports for them.
_NO_PLAN = {names.PORT_BASE: None, names.INTERFACES: None, names.PLAN_GENERATION: None}
_UNMANAGED = Verdict(names.REASON_HANDS_OFF, f"the namespace is not labelled {names.MANAGED}=true")


def mutate_job(raw: object, facts: Facts) -> Mutation:
    """Return what admission does to a new PyTorchJob or TFJob; total, whatever the input."""
    body = mapping(raw)
    job = parse_job(body)
    if job is None:
        return Mutation()
    if not facts.managed:
        return Mutation(verdicts=(_UNMANAGED,))
    settings = settings_of(job, facts.namespace(job.namespace), facts.policies)
    if settings.errors:
        refusal = "; ".join(str(error) for error in settings.errors)
        return Mutation(
            warnings=settings.warnings,
            refusal=refusal,
            verdicts=(Verdict(names.REASON_SETTINGS_INVALID, refusal),),
        )
    verdict = (
        _not_ours(job, body, settings) or _not_held(job, settings, facts) or _held(job, settings)
    )
    try:
        ops = operations(body, _changes(job, body, settings=settings, reason=verdict.reason))
    except Unpatchable as error:
        # The API server will refuse such an object, with a better message than ours.
        return Mutation(warnings=settings.warnings, verdicts=(_malformed(error),))
    return Mutation(
        ops=tuple(ops),
        warnings=(*settings.warnings, *warnings(job, body, settings=settings, facts=facts)),
        verdicts=(verdict, *edits(job, settings, facts, ops=ops)),
    )


def _not_ours(job: TrainingJob, body: Mapping[str, Any], settings: Settings) -> Verdict | None:
    """Return why kfext does not handle the job, None if it does."""
    if job.excess and not job.released and settings.colocation is not Colocation.REQUIRED:
        return Verdict(names.REASON_HANDS_OFF, job.excess)
    if not job.pods:
        return Verdict(
            names.REASON_HANDS_OFF,
            f"the job has no replicas of the types that a {job.kind.name} supports "
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
    """Return why a job that kfext handles is not suspended now, None if it is."""
    reason = names.REASON_NOT_HELD
    if job.kueue_managed:
        return Verdict(reason, "Kueue decides when the job starts; kfext places it after that")
    if job.suspend and not job.held:
        return Verdict(
            names.REASON_SUSPENDED_BY_USER, "runPolicy.suspend was set in the submitted job"
        )
    if settings.colocation is Colocation.OFF:
        return Verdict(reason, f"colocation is off (from {settings.source(names.COLOCATION)})")
    if settings.colocation is not Colocation.REQUIRED and (why := unplaceable(job)):
        return why
    if not facts.controller_alive:
        return Verdict(
            reason, "kfext's controller does not answer; plain Kubernetes places the job"
        )
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
        # The pod webhook sees pods only: without the mark on them, replaced pods would be gated.
        return {"annotations": {names.RELEASED: job.annotations[names.RELEASED], **_NO_PLAN}}
    if reason == names.REASON_HANDS_OFF:
        return {}
    changes: Changes = {
        "annotations": {
            **settings.stated,
            names.COLOCATION: settings.colocation.value,
            names.NETWORK: settings.network,
            # So that no pod is gated, also of types without such a term.
            names.RELEASED: reason if reason == names.REASON_UNMODELLED else None,
            **_NO_PLAN,
        }
    }
    metadata = _metadata(job, body, group)
    if not any(names.ISTIO_INJECT in mapping(metadata.get(at)) for at in ("labels", "annotations")):
        changes["annotations"][names.ISTIO_INJECT] = "false"
        changes["labels"] = {names.ISTIO_INJECT: "false"}
    return changes


def _metadata(job: TrainingJob, body: Mapping[str, Any], group: ReplicaGroup) -> Mapping[str, Any]:
    return mapping(template_of(job, body, group).get("metadata"))


def _scheduler(job: TrainingJob, body: Mapping[str, Any], group: ReplicaGroup) -> str:
    return text(mapping(template_of(job, body, group).get("spec")).get("schedulerName"))
