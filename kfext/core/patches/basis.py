"""The part of a job's JSON object that patches are made from: all that is kept of it.

A job is 2 KB to 1.5 MiB of JSON, most of which is never read again: commands, variables, volumes.
What patches look at is what they test and what they replace.
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
    """Return an object for which every patch of the job is the same as for `raw`."""
    found = _only(raw, "metadata", "spec")
    _replace(found, "metadata", _metadata(raw.get("metadata")))
    _replace(found, "spec", _spec(raw.get("spec"), job))
    return dict(found)


def _spec(spec: object, job: TrainingJob) -> Any:
    paths = [path for path in (job.kind.suspend_path, job.kind.port_path) if path]
    found = _only(spec, *(path[0] for path in paths), job.kind.replica_specs)
    if isinstance(spec, Mapping):
        for path in paths:
            _replace(found, path[0], _along(spec.get(path[0]), path[1:]))
        _replace(found, job.kind.replica_specs, _specs(spec.get(job.kind.replica_specs), job))
    return found


def _specs(specs: object, job: TrainingJob) -> Any:
    found = _only(specs, *(group.key for group in job.groups))
    for group in job.groups:
        one = _only(found[group.key], "replicas", "template")
        template = mapping(found[group.key]).get("template")
        _replace(one, "template", _template(template, group))
        found[group.key] = one
    return found


def _template(template: object, group: ReplicaGroup) -> Any:
    found = _only(template, "metadata", "spec")
    if isinstance(template, Mapping):
        _replace(found, "metadata", _metadata(template.get("metadata")))
        _replace(found, "spec", _pod(template.get("spec"), group))
    return found


def _pod(spec: object, group: ReplicaGroup) -> Any:
    if group.excess:
        return _only(spec)
    found = _only(spec, "affinity", "containers")
    containers = mapping(spec).get("containers")
    if isinstance(containers, list | tuple):
        found["containers"] = [_container(one) for one in containers]
    return found


def _container(container: object) -> Any:
    found = _only(container, "name", "ports")
    _replace(found, "name", name(mapping(container).get("name")))
    return found


def _metadata(metadata: object) -> Any:
    found = _only(metadata, "uid", "annotations")
    annotations = mapping(metadata).get("annotations")
    if isinstance(annotations, Mapping):
        readable = own(annotations)
        ours = (key for key in annotations if key.startswith(f"{DOMAIN}/"))
        found["annotations"] = kept({key: readable.get(key, "") for key in ours})
    return found


def _along(value: object, path: Sequence[str]) -> Any:
    """Return of nested objects what lies on a path."""
    if not path:
        return value
    found = _only(value, path[0])
    _replace(found, path[0], _along(mapping(value).get(path[0]), path[1:]))
    return found


def _only(value: object, *keys: str) -> Any:
    """Return some members of an object; of what is no object, that it is none."""
    if isinstance(value, Mapping):
        return {key: value[key] for key in keys if key in value}
    return None if value is None else ()


def _replace(found: Any, key: str, value: Any) -> None:
    """Set a member that is there."""
    if isinstance(found, dict) and key in found:
        found[key] = value
