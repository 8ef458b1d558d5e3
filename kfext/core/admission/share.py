"""Which jobs cannot share GPUs as they are: they are refused, as they must not run otherwise."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kfext import names
from kfext.core.admission.gpu_part import CARDS, names_cards
from kfext.core.queue.unshareable import why_unshareable
from kfext.core.settings.gpu_shares import share_of, shares_by
from kfext.core.settings.gpu_values import TYPES
from kfext.core.settings.resolve import Settings
from kfext.core.words import listed
from kfext.model.job import TrainingJob, template_of
from kfext.model.podspec import limits_of, requests_of
from kfext.model.replica_group import ReplicaGroup
from kfext.model.tolerant import mapping, sequence
from kfext.model.verdict import Verdict
from kfext.names import NATIVE_GPU


def why_not_shared(
    job: TrainingJob, body: Mapping[str, Any], *, settings: Settings, verdict: Verdict
) -> str:
    """Return why a job that asks for parts of GPUs is refused, empty if it is not.

    `verdict`: whether kfext handles it.
    """
    if not settings.shares_gpus or job.released:
        return ""
    if why := job.excess or (verdict.message if verdict.reason == names.REASON_HANDS_OFF else ""):
        return f"kfext does not place this job ({why})"
    return next(filter(None, _obstacles(job, body, settings)), "")


def _obstacles(job: TrainingJob, body: Mapping[str, Any], settings: Settings) -> Iterator[str]:
    groups = [group for group in job.groups if group.replicas]
    shares = shares_by(settings.gpu, replace(job, groups=tuple(groups)))
    if settings.elastic is not None:
        yield f"the number of its replicas may change ({names.ELASTIC}); set it to off"
    for group in groups:
        if share_of(settings.gpu, group.type.lower()) is None:
            continue  # its GPUs are its own
        if why := _of_template(job, body, group, asked=_has_own(group.type.lower(), settings)):
            yield f"the {group.type} template {why}"
    present = {group.type.lower() for group in groups}
    missing = [type_ for type_ in TYPES if type_ not in present and _has_own(type_, settings)]
    if missing or not shares:
        what = f"no replicas of type {listed(missing, of='types')}" if missing else "no GPUs"
        yield f"the job has {what}; each replica that shares a GPU asks for {NATIVE_GPU}: 1"
    yield why_unshareable(job, shares)


def _of_template(
    job: TrainingJob, body: Mapping[str, Any], group: ReplicaGroup, *, asked: bool
) -> str:
    """Return what of a template is in the way, empty if nothing is."""
    spec = mapping(template_of(job, body, group).get("spec"))
    number = group.requests.get(NATIVE_GPU, 0)
    if not asked and not number:
        return ""
    if number != 1:
        return f"asks for {NATIVE_GPU}: {number}, but a replica can have a part of 1 only"
    if spec.get("resourceClaims"):
        return "has resourceClaims: GPUs that are given out by DRA cannot be shared yet"
    return _of_containers(spec)


def _of_containers(spec: Mapping[str, Any]) -> str:
    if any(_asks(one) for one in map(mapping, sequence(spec.get("initContainers")))):
        return "has an init container that asks for a GPU"
    for container in map(mapping, sequence(spec.get("containers"))):
        if _asks(container) and names_cards(container):
            return f"sets {CARDS}, which is set by what the pod is given"
    return ""


def _asks(container: Mapping[str, Any]) -> bool:
    return {**requests_of(container), **limits_of(container)}.get(NATIVE_GPU, 0) > 0


def _has_own(type_: str, settings: Settings) -> bool:
    """Return whether a share is set for one type alone."""
    return f"{names.GPU_SHARE}.{type_}" in settings.gpu
