"""Add the control file to the training container: kfext requests checkpoints through it.

The file shows an annotation of the pod: kubelet creates it empty and rewrites it when the
annotation changes. So the job needs no library, no network and no permissions.
"""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from kfext import names
from kfext.core.patches.json_patch import Operation, appended
from kfext.core.settings.table import settings_of_pod
from kfext.model.kinds.job_kind import JobKind
from kfext.model.pod_bounds import pod_excess
from kfext.model.podspec import container_named, with_container
from kfext.model.tolerant import mapping, sequence, strings, text

DIRECTORY = "/etc/kfext"
FILE = "control"
_VOLUME = "kfext-control"
CHECKPOINT_SETTINGS = (names.ELASTIC, names.MIGRATE, names.PREEMPT)
"""The settings that allow kfext to request a checkpoint from a job."""
_REQUEST = {"fieldPath": f"metadata.annotations['{names.CHECKPOINT_REQUEST}']"}

Raw = Mapping[str, Any]


def control_file(kind: JobKind, metadata: Raw, spec: Raw) -> tuple[Raw, list[Operation]]:
    """Return the pod spec with the file, and the operations that add it, if the job may save.

    The spec of a pod that already uses the directory or the volume's name does not change.
    """
    trainer = container_named(spec, kind.container)
    settings = settings_of_pod(strings(metadata.get("annotations")))
    if trainer is None or not settings.asks_to_save:
        return spec, []
    index, container = trainer
    volumes, mounts = spec.get("volumes"), container.get("volumeMounts")
    if not (_is_list(volumes) and _is_list(mounts)):
        return spec, []
    if is_mounted((text(mapping(mount).get("mountPath")) for mount in sequence(mounts)), DIRECTORY):
        return spec, []
    volume = {"name": _VOLUME, "downwardAPI": {"items": [{"path": FILE, "fieldRef": _REQUEST}]}}
    mount = {"name": _VOLUME, "mountPath": DIRECTORY, "readOnly": True}
    others = sequence(volumes)
    if any(mapping(other).get("name") == _VOLUME for other in others):
        return spec, []
    mounted = with_container(spec, index, volumeMounts=[*sequence(mounts), mount])
    changed = {**mounted, "volumes": [*others, volume]}
    if pod_excess(changed):
        return spec, []
    return changed, [
        appended(volumes, volume, "spec", "volumes"),
        appended(mounts, mount, "spec", "containers", str(index), "volumeMounts"),
    ]


def _is_list(value: object) -> bool:
    return value is None or isinstance(value, list)


def is_mounted(paths: Iterable[str], directory: str) -> bool:
    """Return whether one of the mount paths is `directory`, lies below it, or lies above it.

    No container starts with a mount inside a read-only mount.
    """
    wanted = _parts(directory)
    return any(path[: len(wanted)] == wanted[: len(path)] for path in map(_parts, paths))


def _parts(path: str) -> list[str]:
    return [part for part in posixpath.normpath("/" + path).split("/") if part]
