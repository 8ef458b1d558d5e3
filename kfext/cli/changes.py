"""What kfext wrote on a job and its pods, read from these themselves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kfext import names
from kfext.cli.cluster import Raw
from kfext.core.companion.restoring import Owner, asked_of, owner_of
from kfext.core.elastic import asked_workers, workers_of
from kfext.core.network.pod_edits import edits_of
from kfext.core.words import listed
from kfext.model.job import TrainingJob, annotations_of, template_of
from kfext.model.job_state import state_of
from kfext.model.plan import Plan
from kfext.model.pod import Pod
from kfext.model.replica_group import ReplicaGroup
from kfext.model.tolerant import mapping, sequence, text

_ANNOTATIONS = (
    *(names.COLOCATION, names.NETWORK, names.PORT_BASE, names.INTERFACES),
    *(names.PLAN_GENERATION, names.ISTIO_INJECT, names.RELEASED, names.ELASTIC, names.MIGRATE),
)


def changes(
    job: TrainingJob, raw: Raw, plan: Plan | None, pods: Sequence[Pod]
) -> dict[str, list[str]]:
    """Return what kfext wrote, each change as a phrase, by where it wrote it."""
    on_pods = (
        [f"{what}, because {why}" for what, why in edits_of(job)] if plan and plan.port else []
    )
    return {
        "the job": list(_of_job(job)),
        "the templates": [
            f"{group.type}: {what}"
            for group in job.groups
            for what in _of_template(job, raw, group)
        ],
        "each pod": on_pods,
        "some pods": list(_cpu_changes(job, pods)),
    }


def _of_job(job: TrainingJob) -> Iterator[str]:
    if job.held:
        state = "and waits to be placed" if job.suspend else "until it could be placed"
        yield f"suspended when it was submitted, {state} ({names.HELD})"
    workers, asked = workers_of(job), asked_workers(job, state_of(job))
    if workers != asked:
        yield f"has {workers} workers, and asks for {asked} ({names.STATE})"
    if job.released:
        yield f"marked as released: {job.annotations[names.RELEASED]}"


def _of_template(job: TrainingJob, raw: Raw, group: ReplicaGroup) -> Iterator[str]:
    template = template_of(job, raw, group)
    written = annotations_of(job, raw, group)
    yield from (f"{key}={written[key]}" for key in _ANNOTATIONS if key in written)
    if preferred := _preferred(template):
        yield f"prefers {listed(preferred, of='nodes')} (affinity)"


def _cpu_changes(job: TrainingJob, pods: Sequence[Pod]) -> Iterator[str]:
    """Yield the CPU limits of pods that are kfext's and not the user's; alike ones together."""
    cpu = state_of(job).cpu
    found: dict[tuple[int, int | None], list[str]] = {}
    for pod in pods:
        asked, trainer = asked_of(pod, cpu), pod.trainer
        if asked is None or trainer is None or trainer.limit is None:
            continue
        if owner_of(pod, cpu) is Owner.KFEXT:
            found.setdefault((trainer.limit, asked.limit), []).append(pod.name)
    for (limit, asked_limit), pod_names in found.items():
        yours = "none" if asked_limit is None else f"{asked_limit}m"
        of = listed(pod_names, of="pods")
        yield f"CPU limit of {of}: {limit}m; by the job: {yours} ({names.STATE})"


def _preferred(template: Mapping[str, Any]) -> list[str]:
    """Return the nodes that a template prefers by name, which only kfext writes."""
    affinity = mapping(mapping(mapping(template.get("spec")).get("affinity")).get("nodeAffinity"))
    return [
        text(value)
        for term in sequence(affinity.get("preferredDuringSchedulingIgnoredDuringExecution"))
        for field in sequence(mapping(mapping(term).get("preference")).get("matchFields"))
        for value in sequence(mapping(field).get("values"))
    ]
