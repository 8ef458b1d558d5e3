"""The reports of a review to the user: warnings, and the edits of the job."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kfext import names
from kfext.core.admission.hold import outcome, waits, why_not_placed
from kfext.core.admission.made_elastic import MadeElastic
from kfext.core.admission.review import ReviewContext
from kfext.core.elastic import why_ineligible
from kfext.core.eligibility import not_placed, why_no_host_network, why_not_moved, why_not_stopped
from kfext.core.patches.host_network import edits_of
from kfext.core.patches.json_patch import Operation
from kfext.core.placement.gang import max_anti_affine
from kfext.core.placement.solve import usable_cpu
from kfext.core.settings.table import Settings
from kfext.core.settings.values import HOST, NEVER, OFF, Colocation
from kfext.core.words import cpus
from kfext.model.job import TrainingJob, annotations_of
from kfext.model.quantity import CPU
from kfext.model.verdict import Verdict


def warnings(
    job: TrainingJob,
    body: Mapping[str, Any],
    *,
    settings: Settings,
    context: ReviewContext,
    verdict: Verdict,
) -> Iterator[str]:
    """Yield warnings about effects that may surprise the user; `verdict` is from `hold_of`."""
    if not (job.pods or job.kind.rendered):
        yield "kfext ignores this job: it has no replicas"
    elif job.excess:
        if handles(verdict) or verdict.message == job.excess:
            yield f"kfext does not place this job: {job.excess}; {outcome(job, settings, context)}"
    else:
        if handles(verdict):
            yield from _placement(job, settings, context)
            yield from _overwritten(job, body, settings)
            if settings.migrate != NEVER and (why_not := why_not_moved(job, settings)):
                yield f"{names.MIGRATE} has no effect on this job: {why_not.message}"
            if settings.preempt != OFF and (why_not := why_not_stopped(job, settings)):
                yield f"{names.PREEMPT} has no effect on this job: {why_not.message}"
        if settings.network == HOST and (why := _pod_network(job, settings, context, verdict)):
            yield f"the pods will have their own network, not their node's: {why}"


def handles(verdict: Verdict) -> bool:
    """Return whether kfext handles a job, by the verdict of `hold_of`."""
    return verdict.reason not in {names.REASON_HANDS_OFF, names.REASON_RELEASED}


def _placement(job: TrainingJob, settings: Settings, context: ReviewContext) -> Iterator[str]:
    """Yield warnings about a placement that differs from the settings."""
    if not context.controller_alive:
        stays = "it shares GPUs, so it stays suspended until the controller is back"
        effect = stays if waits(settings, context) else "the job runs as on plain Kubernetes"
        yield f"kfext's controller does not answer: {effect}"
    if settings.colocation is Colocation.OFF:
        return
    if why_not := not_placed(job):
        yield f"kfext does not place this job: {why_not.message}; {outcome(job, settings, context)}"
    elif why := _too_few_nodes(job, settings):
        yield f"kfext cannot place this job: {why}; {outcome(job, settings, context)}"
    elif names.COLOCATION in settings.stated:
        yield from _crowding(job, assumed=settings.placement.assumed_burst)
    if names.RESERVATION_PRIORITY in job.priority_classes:
        yield (
            f"pods of this job are refused with PriorityClass {names.RESERVATION_PRIORITY}, which "
            f"is for pods that reserve GPUs; name another class"
        )


def _overwritten(job: TrainingJob, body: Mapping[str, Any], settings: Settings) -> Iterator[str]:
    for group in job.groups:
        written = annotations_of(job, body, group).get(names.COLOCATION)
        if written not in {None, settings.colocation}:
            yield (
                f"annotation {names.COLOCATION} of the {group.type} template is overwritten with "
                f"{settings.colocation}: settings are read from the job's own annotations"
            )


def scaling_warnings(
    job: TrainingJob,
    settings: Settings,
    *,
    verdict: Verdict,
    made_elastic: MadeElastic | None,
    why_fixed: str,
) -> Iterator[str]:
    """Yield warnings about scaling that differs from the range of a job.

    `made_elastic`: the job after it was made elastic; None means that it was not.
    `why_fixed`: the obstacle to making the job elastic, or an empty string.
    """
    allowed = settings.elastic
    if allowed is None or job.excess or not (job.pods or job.kind.rendered):
        return
    if job.started_by or not handles(verdict):
        yield f"{names.ELASTIC} has no effect on this job: {verdict.message}"
    elif made_elastic is not None:
        if made_elastic.folded:
            yield (
                f"the {made_elastic.folded} of this job is its first worker now "
                f"({job.name}-worker-0), because {names.ELASTIC} makes it elastic; "
                f"{names.ELASTIC}: off keeps it as submitted"
            )
    elif why := why_fixed or why_ineligible(job, settings):
        yield f"{names.ELASTIC} has no effect on this job: {why}"
    elif job.scaling.elastic:
        least, most = job.scaling.fewest, job.scaling.most or allowed.maximum
        if allowed.minimum < least or allowed.maximum > most:
            yield (
                f"{names.ELASTIC} is {allowed.minimum}-{allowed.maximum}, but the elasticPolicy of "
                f"this job allows {least}-{most} workers: only numbers within both are used"
            )
    else:
        yield (
            f"{names.ELASTIC}: every change of the number of workers restarts all pods of this "
            f"job; workers come and go only with {job.scaling.needs}"
        )


def _too_few_nodes(job: TrainingJob, settings: Settings) -> str:
    """Return a clause about a node limit below the number of pods that need a node each, if any."""
    apart = max_anti_affine((group.constraints, group.replicas) for group in job.groups)
    for key, limit in settings.node_limits.items():
        if not limit.allow_set([str(number) for number in range(apart)]):
            return f"{apart} of its pods cannot share a node, but {key} is {settings.value(key)}"
    return ""


def _crowding(job: TrainingJob, *, assumed: int) -> Iterator[str]:
    """Yield a warning if a job sets colocation itself and its pods may have too little CPU."""
    requested = sum(group.replicas * group.requests.get(CPU, 0) for group in job.groups)
    cpu_per_pod = usable_cpu(job.groups, assumed=assumed)
    usable = sum(group.replicas * cpu for group, cpu in zip(job.groups, cpu_per_pod, strict=True))
    if job.pods > 1 and usable > requested:
        yield (
            f"its {job.pods} pods may share too little CPU: with {names.COLOCATION} on the job, "
            f"only their requests count ({cpus(requested)}), not their usable CPU ({cpus(usable)})"
        )


def _pod_network(
    job: TrainingJob, settings: Settings, context: ReviewContext, verdict: Verdict
) -> str:
    """Return the obstacle to a request for the host network, or an empty string."""
    if verdict.reason != names.REASON_HELD and not job.started_by:
        return "only a job that kfext starts has ports on the host network"
    return why_no_host_network(job, context.namespace.labels) or why_not_placed(
        job, settings, context
    )


def edits(
    job: TrainingJob,
    settings: Settings,
    context: ReviewContext,
    *,
    verdict: Verdict,
    ops: Sequence[Operation],
) -> Iterator[Verdict]:
    """Yield the edits of the job besides the suspension; `verdict` is from `hold_of`."""
    copied = sorted(names.WRITTEN_BY_KFEXT & job.annotations.keys())
    if copied and any(op["op"] == "remove" for op in ops):
        yield Verdict(
            names.REASON_COPIED_MARKS_REMOVED,
            f"the manifest contained {', '.join(copied)} of another job",
        )
    paths = [op["path"] for op in ops if "/template" in op["path"]]
    if paths and settings.network == HOST and not _pod_network(job, settings, context, verdict):
        reasons = (f"{edit}, because {why}" for edit, why in edits_of(job))
        message = "the job has ports of its own once it is placed, and edits on its pods"
        yield Verdict(names.REASON_HOST_NETWORK, "; ".join((message, *reasons)))
    if paths:
        yield Verdict(
            names.REASON_TEMPLATES_EDITED,
            f"pod templates ({len(job.groups)}) now set colocation {settings.colocation} and "
            f"network {settings.network}; they have no Istio sidecar, which never ends, unless "
            f"they request it",
        )
