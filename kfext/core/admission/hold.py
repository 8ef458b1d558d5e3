"""Whether the job webhook holds a new job, and why or why not."""

from collections.abc import Mapping
from typing import Any

from kfext import names
from kfext.core.admission.facts import Facts
from kfext.core.placement.unmodelled import unplaceable
from kfext.core.settings.resolve import Settings
from kfext.core.settings.values import Colocation
from kfext.model.job import TrainingJob, template_of
from kfext.model.replica_group import ReplicaGroup
from kfext.model.tolerant import mapping, text
from kfext.model.verdict import Verdict
from kfext.names import DEFAULT_SCHEDULER

DEFAULT_SCHEDULERS = frozenset({"", DEFAULT_SCHEDULER})


def hold_of(
    job: TrainingJob, body: Mapping[str, Any], *, settings: Settings, facts: Facts
) -> Verdict:
    """Return whether a job is held, and why or why not."""
    return _not_ours(job, body, settings) or _not_held(job, settings, facts) or _held(job, settings)


def _not_ours(job: TrainingJob, body: Mapping[str, Any], settings: Settings) -> Verdict | None:
    """Return why kfext does not handle the job, None if it does."""
    if job.excess and not job.released and not settings.why_never_released:
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
    if not settings.why_never_released and (why := unplaceable(job)):
        return why
    if not (facts.controller_alive or settings.shares_gpus):
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


def _scheduler(job: TrainingJob, body: Mapping[str, Any], group: ReplicaGroup) -> str:
    return text(mapping(template_of(job, body, group).get("spec")).get("schedulerName"))
