"""The part of a job's JSON object that kfext keeps: what patches test or replace.

A job is 2 KB to 1.5 MiB of JSON, and most of it is never read again: commands, variables, volumes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kfext.model.bounds import kept, name, own
from kfext.model.job import TrainingJob
from kfext.model.replica_group import ReplicaGroup
from kfext.model.tolerant import mapping
from kfext.names import DOMAIN

Raw = Mapping[str, Any]


def basis(raw: Raw, job: TrainingJob) -> Raw:
    """Return the part of `raw` that gives the same patches of the job as all of it."""
    part = _only(raw, "metadata", "spec")
    _replace(part, "metadata", _metadata(raw.get("metadata")))
    _replace(part, "spec", _spec(raw.get("spec"), job))
    return dict(part)


def _spec(spec: object, job: TrainingJob) -> Any:
    paths = [path for path in (job.kind.suspend_path, job.kind.port_path) if path]
    part = _only(spec, *(path[0] for path in paths), job.kind.replica_specs)
    if isinstance(spec, Mapping):
        for path in paths:
            _replace(part, path[0], _along(spec.get(path[0]), path[1:]))
        changed = spec.get(job.kind.replica_specs)
        kept_part = job.kind.kept_changes(changed) if job.kind.rendered else _specs(changed, job)
        _replace(part, job.kind.replica_specs, kept_part)
    return part


def _specs(specs: object, job: TrainingJob) -> Any:
    part = _only(specs, *(group.key for group in job.groups))
    for group in job.groups:
        replica_spec = _only(part[group.key], "replicas", "template")
        template = mapping(part[group.key]).get("template")
        _replace(replica_spec, "template", _template(template, group))
        part[group.key] = replica_spec
    return part


def _template(template: object, group: ReplicaGroup) -> Any:
    part = _only(template, "metadata", "spec")
    if isinstance(template, Mapping):
        _replace(part, "metadata", _metadata(template.get("metadata")))
        _replace(part, "spec", _pod(template.get("spec"), group))
    return part


def _pod(spec: object, group: ReplicaGroup) -> Any:
    if group.excess:
        return _only(spec)
    part = _only(spec, "affinity", "containers")
    containers = mapping(spec).get("containers")
    if isinstance(containers, list | tuple):
        part["containers"] = [_container(container) for container in containers]
    return part


def _container(container: object) -> Any:
    part = _only(container, "name", "ports")
    _replace(part, "name", name(mapping(container).get("name")))
    return part


def _metadata(metadata: object) -> Any:
    part = _only(metadata, "uid", "annotations")
    annotations = mapping(metadata).get("annotations")
    if isinstance(annotations, Mapping):
        readable = own(annotations)
        marks = (key for key in annotations if key.startswith(f"{DOMAIN}/"))
        part["annotations"] = kept({key: readable.get(key, "") for key in marks})
    return part


def _along(value: object, path: Sequence[str]) -> Any:
    """Return nested objects with only the members on a path."""
    if not path:
        return value
    part = _only(value, path[0])
    _replace(part, path[0], _along(mapping(value).get(path[0]), path[1:]))
    return part


def _only(value: object, *keys: str) -> Any:
    """Return some members of an object, None for None, and () for any other value."""
    if isinstance(value, Mapping):
        return {key: value[key] for key in keys if key in value}
    return None if value is None else ()


def _replace(part: Any, key: str, value: Any) -> None:
    """Set a member that exists."""
    if isinstance(part, dict) and key in part:
        part[key] = value
