"""Admission of jobs and pods that share GPUs: refusals, and a GPU share in place of a whole GPU.

A pod requests its planned GPU share, and its Python loads the hook through PYTHONPATH. The image
does not change.

Admission cannot see a PYTHONPATH of the image, and a variable of the container would replace it. So
a shell puts the hook ahead of that path, then replaces itself with the container's command. If the
template has no `command`, an init container of the same image records the path, and kfext's
sitecustomize restores it. Both run a static binary, because the image may have no shell; like the
hook, it is mounted with the GPU share.

The init container is the second choice, because it requests the GPU share too. After a restart of
kubelet, running containers keep their devices, but kubelet allocates devices again for containers
that have ended. This allocation, and with it the pod, fails until the device plugin is back.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfext import names
from kfext.core.ledger.cards import why_unshareable
from kfext.core.patches.json_patch import Operation, pointer
from kfext.core.settings.table import Settings, parsed
from kfext.core.settings.values import LOW
from kfext.model.gpu import asks_for_gpu, decode_slot, resource_of, why_not_shareable
from kfext.model.job import TrainingJob
from kfext.model.kinds.job_kind import JobKind
from kfext.model.pod import replica_of
from kfext.model.podspec import containers_of, pod_requests, with_container
from kfext.model.tolerant import mapping, sequence, strings
from kfext.model.verdict import Verdict
from kfext.names import NATIVE_GPU

HOOK = "/kfext/hook"
"""The path where the node's agent mounts the hook into containers with a GPU share."""
BUSYBOX = "busybox"
PRIORITY, RECORDED = "KFEXT_GPU_PRIORITY", "KFEXT_PYTHONPATH"
"""Variables that the hook reads: `high` or `low`; a file with the image's own PYTHONPATH."""
_PYTHONPATH = "PYTHONPATH"
_RUN_WITH_HOOK = (
    f'export {_PYTHONPATH}="{HOOK}${{{_PYTHONPATH}:+:${_PYTHONPATH}}}"; set -f; IFS=:; '
    'case "$0" in */*) ;; *) for folder in $PATH; do '
    '[ -f "$folder/$0" ] && [ -x "$folder/$0" ] && exec "$folder/$0" "$@"; done;; esac; '
    'exec "$0" "$@"'
)
"""Runs the command with the hook. It searches PATH itself: busybox prefers its own commands."""
_VOLUME, _DIRECTORY = "kfext-recorded", "/kfext/recorded"
_FILE = f"{_DIRECTORY}/pythonpath"
_INIT = "kfext-record"
_COPIED = ("image", "imagePullPolicy", "env", "envFrom", "resources", "securityContext")
_CHANGED = ("containers", "initContainers", "tolerations", "volumes")
"""The fields of a pod spec that are written whole, because the present value may be no list."""
_TOLERATION = {"key": NATIVE_GPU, "operator": "Exists", "effect": "NoSchedule"}
"""The toleration that clusters with tainted GPU nodes add only to pods that request whole GPUs."""

Raw = Mapping[str, Any]


def why_not_shared(job: TrainingJob, *, settings: Settings, verdict: Verdict) -> str:
    """Return the reason for refusing a job with a GPU share, or an empty string.

    `verdict`: the verdict of `hold_of`.
    """
    if job.released:
        return ""
    if why := job.excess or (verdict.message if verdict.reason == names.REASON_HANDS_OFF else ""):
        return f"kfext does not place this job ({why})"
    return why_unshareable(job, settings)


@dataclass(frozen=True, slots=True)
class Sharer:
    """A pod spec with a GPU share and the operations that add it, or the reason for a refusal."""

    spec: Raw
    operations: tuple[Operation, ...] = ()
    refusal: str = ""


def with_gpu_share(kind: JobKind, metadata: Raw, spec: Raw) -> Sharer:
    """Return the spec of a pod of a job that shares GPUs, with its GPU share.

    A spec that requests no GPU, or several, does not change. A pod without a plan is refused,
    because nothing would account for its share. Its operator tries again.
    """
    if not any(map(asks_for_gpu, (spec, *containers_of(spec)))):
        return Sharer(spec)
    annotations, labels = strings(metadata.get("annotations")), strings(metadata.get("labels"))
    planned = annotations.get(names.GPU_SLOTS, "")
    if not planned and pod_requests(spec).get(NATIVE_GPU, 0) > 1:
        return Sharer(spec)  # pods of its type use whole GPUs
    if why := why_not_shareable(spec):
        return Sharer(spec, refusal=f"it {why}")
    replica = replica_of(labels, kind)
    share = decode_slot(planned, replica.index) if replica else None
    if replica is None or share is None:
        return Sharer(spec, refusal="kfext has not placed the GPU share of this pod")
    position = next(
        position
        for position, container in enumerate(spec["containers"])
        if asks_for_gpu(mapping(container))
    )
    changed = _with_slot(spec, position, units=share[0], slot=share[1])
    changed = with_hook(changed, position, priority=_priority(annotations))
    return Sharer(changed, tuple(_operations(spec, changed)))


def _operations(spec: Raw, changed: Raw) -> Iterator[Operation]:
    """Yield the operations that turn `spec` into `changed`."""
    for field in _CHANGED:
        if changed.get(field) != spec.get(field):
            yield {"op": "add", "path": pointer("spec", field), "value": changed[field]}


def _with_slot(spec: Raw, position: int, *, units: int, slot: int) -> Raw:
    """Return the spec with a container that requests units of a slot instead of a GPU."""
    resources = {**mapping(spec["containers"][position].get("resources"))}
    for kind in ("limits", "requests"):
        stated = mapping(resources.get(kind))
        if NATIVE_GPU in stated:
            others = {name: amount for name, amount in stated.items() if name != NATIVE_GPU}
            resources[kind] = {**others, resource_of(slot): str(units)}
    tolerations = list(sequence(spec.get("tolerations")))
    if _TOLERATION not in tolerations:
        tolerations.append(_TOLERATION)
    return {**with_container(spec, position, resources=resources), "tolerations": tolerations}


def _priority(annotations: Mapping[str, str]) -> str:
    """Return the priority on a template, or low if a later edit has made it invalid."""
    values = parsed(names.GPU_PRIORITY, annotations.get(names.GPU_PRIORITY))
    return str(values[0]) if values else LOW


def with_hook(spec: Raw, position: int, *, priority: str) -> Raw:
    """Return a pod spec with the hook in the container at a position."""
    container = mapping(sequence(spec.get("containers"))[position])
    env = [mapping(variable) for variable in sequence(container.get("env"))]
    values = [variable.get("value") for variable in env if variable.get("name") == _PYTHONPATH]
    if values and isinstance(values[-1], str):
        path = ":".join(filter(None, (HOOK, values[-1])))
        changed = [*_with_path(env, path), _variable(PRIORITY, priority)]
        return with_container(spec, position, env=changed)
    if command := sequence(container.get("command")):
        shell = [f"{HOOK}/{BUSYBOX}", "sh", "-c", _RUN_WITH_HOOK]
        return with_container(
            spec, position, command=[*shell, *command], env=[*env, _variable(PRIORITY, priority)]
        )
    changed = [*_with_path(env, HOOK), _variable(PRIORITY, priority), _variable(RECORDED, _FILE)]
    mount = {"name": _VOLUME, "mountPath": _DIRECTORY}
    volume = {"name": _VOLUME, "emptyDir": {"sizeLimit": "1Mi"}}
    mounts = [*sequence(container.get("volumeMounts")), mount]
    return {
        **with_container(spec, position, env=changed, volumeMounts=mounts),
        "volumes": [*sequence(spec.get("volumes")), volume],
        "initContainers": [*sequence(spec.get("initContainers")), _recorder(container, mount)],
    }


def _with_path(env: Sequence[Raw], path: str) -> list[Raw]:
    """Return variables with a new PYTHONPATH at its old position: later variables may use it."""
    variable = _variable(_PYTHONPATH, path)
    if all(other.get("name") != _PYTHONPATH for other in env):
        return [*env, variable]
    return [variable if other.get("name") == _PYTHONPATH else other for other in env]


def _recorder(container: Raw, mount: Raw) -> Raw:
    """Return the init container that records the PYTHONPATH of `container`.

    It has all fields that decide the PYTHONPATH. It also requests the same resources, so that the
    binary is mounted with the GPU share; the requests of the pod do not grow.
    """
    copied = {key: container[key] for key in _COPIED if container.get(key) is not None}
    script = f'printf %s "${_PYTHONPATH}" > {_FILE}'
    command = [f"{HOOK}/{BUSYBOX}", "sh", "-c", script]
    return {"name": _INIT, **copied, "command": command, "volumeMounts": [mount]}


def _variable(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}
