"""Give a new pod the part of a GPU that its job was planned with, in place of a whole one."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kfext import names
from kfext.core.admission.hooked import hooked
from kfext.core.patches.gpu import part_of
from kfext.core.patches.json_patch import Operation, pointer
from kfext.core.settings.table import parse_setting
from kfext.core.settings.values import LOW
from kfext.errors import SettingError
from kfext.model.gpu_request import asks_for_gpu, why_no_part
from kfext.model.gpu_slots import resource_of
from kfext.model.podspec import containers_of, pod_requests
from kfext.model.tolerant import mapping, sequence, strings
from kfext.names import NATIVE_GPU

_CHANGED = ("containers", "initContainers", "tolerations", "volumes")
"""The fields of a pod spec that are written, each as a whole: what is there may be no list."""
_TOLERATION = {"key": NATIVE_GPU, "operator": "Exists", "effect": "NoSchedule"}
"""Clusters whose nodes with GPUs are tainted add it to pods that request GPUs natively."""

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A pod spec with a part of a GPU, the operations that give it, or why it has none."""

    spec: Raw
    operations: tuple[Operation, ...] = ()
    refusal: str = ""


def shares_gpu(metadata: Raw) -> bool:
    """Return whether a pod's job shares GPUs, so that it must not run otherwise."""
    annotations = strings(metadata.get("annotations"))
    stated = names.GPU_SHARE in annotations or names.GPU_SLOTS in annotations
    return stated and names.RELEASED not in annotations


def gpu_part(metadata: Raw, spec: Raw) -> Part:
    """Return the pod spec with its part of a GPU; as it is if it asks for none, or for several.

    A pod without a plan is refused: nothing would account for it. Its operator tries again.
    """
    annotations, labels = strings(metadata.get("annotations")), strings(metadata.get("labels"))
    type_, index = labels.get(names.REPLICA_TYPE, "").lower(), labels.get(names.REPLICA_INDEX, "")
    planned = annotations.get(names.GPU_SLOTS, "")
    asks = any(map(asks_for_gpu, (spec, *containers_of(spec))))
    if not (asks and shares_gpu(metadata)):
        return Part(spec)
    if not planned and pod_requests(spec).get(NATIVE_GPU, 0) > 1:
        return Part(spec)  # its type keeps whole GPUs
    if why := why_no_part(spec):
        return Part(spec, refusal=f"it {why}")
    number = int(index) if index.isdecimal() and len(index) <= 4 else -1
    part = part_of(planned, number) if number >= 0 else None
    if part is None:
        return Part(spec, refusal="kfext has not placed the part of a GPU that this pod shares")
    at = next(at for at, one in enumerate(spec["containers"]) if asks_for_gpu(mapping(one)))
    changed = _swapped(spec, at, units=part[0], slot=part[1])
    changed = hooked(changed, at, priority=_priority(annotations, type_))
    return Part(changed, tuple(_operations(spec, changed)))


def _operations(spec: Raw, changed: Raw) -> Iterator[Operation]:
    """Yield what makes one pod spec of the other."""
    for field in _CHANGED:
        if changed.get(field) != spec.get(field):
            yield {"op": "add", "path": pointer("spec", field), "value": changed[field]}


def _swapped(spec: Raw, at: int, *, units: int, slot: int) -> Raw:
    """Return the spec whose container requests units of a slot instead of a GPU."""
    containers = list(sequence(spec["containers"]))
    container = containers[at]
    resources = {**mapping(container.get("resources"))}
    for kind in ("limits", "requests"):
        stated = mapping(resources.get(kind))
        if NATIVE_GPU in stated:
            others = {name: one for name, one in stated.items() if name != NATIVE_GPU}
            resources[kind] = {**others, resource_of(slot): str(units)}
    containers[at] = {**container, "resources": resources}
    tolerations = list(sequence(spec.get("tolerations")))
    if _TOLERATION not in tolerations:
        tolerations.append(_TOLERATION)
    return {**spec, "containers": containers, "tolerations": tolerations}


def _priority(annotations: Mapping[str, str], type_: str) -> str:
    """Return the priority on a template, which may have been edited after admission.

    The templates of a job that started under an earlier version may state it for one type alone.
    """
    for key in (f"{names.GPU_PRIORITY}.{type_}", names.GPU_PRIORITY):
        with suppress(KeyError, SettingError):
            return str(parse_setting(names.GPU_PRIORITY, annotations[key], place=key))
    return LOW
