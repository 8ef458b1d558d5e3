"""The part of a job's JSON object that kfext stores: the fields that patches test or replace.

A job is 2 KB to 1.5 MiB of JSON, mostly commands, variables and volumes, which patches do not need.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kfext.model.bounds import bounded, bounded_name, kfext_annotations
from kfext.model.job import TrainingJob
from kfext.model.replica_group import ReplicaGroup
from kfext.names import DOMAIN

Raw = Mapping[str, Any]


def basis(raw: Raw, job: TrainingJob) -> Raw:
    """Return the part of `raw` that the patches of core.patches.job need."""
    return dict(_only(raw, {"metadata": _metadata, "spec": partial(_spec, job=job)}))


def _spec(spec: object, job: TrainingJob) -> Any:
    paths = [path for path in (job.kind.suspend_path, job.kind.port_path) if path]
    along = {path[0]: partial(_along, path=path[1:]) for path in paths}
    templates = job.kind.kept_changes if job.kind.rendered else partial(_specs, job=job)
    return _only(spec, {**along, job.kind.replica_specs: templates})


def _specs(specs: object, job: TrainingJob) -> Any:
    return _only(specs, {group.key: partial(_replicas, group=group) for group in job.groups})


def _replicas(spec: object, group: ReplicaGroup) -> Any:
    return _only(spec, {"replicas": _all, "template": partial(_template, group=group)})


def _template(template: object, group: ReplicaGroup) -> Any:
    return _only(template, {"metadata": _metadata, "spec": partial(_pod, group=group)})


def _pod(spec: object, group: ReplicaGroup) -> Any:
    return _only(spec, {} if group.excess else {"affinity": _all, "containers": _containers})


def _containers(containers: object) -> Any:
    if not isinstance(containers, list | tuple):
        return containers
    return [_only(container, {"name": bounded_name, "ports": _all}) for container in containers]


def _metadata(metadata: object) -> Any:
    return _only(metadata, {"uid": _all, "annotations": _annotations})


def _annotations(annotations: object) -> Any:
    if not isinstance(annotations, Mapping):
        return annotations
    readable = kfext_annotations(annotations)
    marks = (key for key in annotations if key.startswith(f"{DOMAIN}/"))
    return bounded({key: readable.get(key, "") for key in marks})


def _along(value: object, path: Sequence[str]) -> Any:
    """Return nested objects with only the members on a path."""
    return _only(value, {path[0]: partial(_along, path=path[1:])}) if path else value


def _all(value: object) -> Any:
    return value


def _only(value: object, members: Mapping[str, Callable[[Any], Any]]) -> Any:
    """Return some members of an object, each reduced; None for None, () for any other value."""
    if isinstance(value, Mapping):
        return {key: reduce(value[key]) for key, reduce in members.items() if key in value}
    return None if value is None else ()
