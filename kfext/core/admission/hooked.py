"""Have the Python of a container give way on the GPU that it shares: by its PYTHONPATH.

The image stays as it is. What PYTHONPATH the image has is not known here, and a variable of the
container would replace it, so an init container of the same image writes it down first, and our
sitecustomize puts it back. It runs a static binary that comes with the part of the GPU, as the hook
itself does: the image may have no shell.
"""

from collections.abc import Mapping
from typing import Any

from kfext.core.patches.json_patch import Operation, appended
from kfext.model.tolerant import mapping, sequence

HOOK = "/kfext/hook"
"""Where the node's agent mounts the hook into containers with a part of a GPU."""
BUSYBOX = "busybox"
PRIORITY, RECORDED = "KFEXT_GPU_PRIORITY", "KFEXT_PYTHONPATH"
"""Variables that the hook reads: `high` or `low`; a file with the image's own PYTHONPATH."""
_PYTHONPATH = "PYTHONPATH"
_VOLUME, _DIRECTORY = "kfext-recorded", "/kfext/recorded"
_FILE = f"{_DIRECTORY}/pythonpath"
_INIT = "kfext-record"
_COPIED = ("image", "imagePullPolicy", "env", "envFrom", "resources", "securityContext")

Raw = Mapping[str, Any]


def hooked(spec: Raw, at: int, *, priority: str) -> tuple[Raw, list[Operation]]:
    """Return a pod spec whose container number `at` loads the hook, and the operations for that."""
    container = mapping(sequence(spec.get("containers"))[at])
    where = ("spec", "containers", str(at))
    env = [dict(mapping(one)) for one in sequence(container.get("env"))]
    own = [one.get("value") for one in env if one.get("name") == _PYTHONPATH]
    others = [one for one in env if one.get("name") != _PYTHONPATH]
    if own and isinstance(own[-1], str):
        changed = [*others, _variable(PRIORITY, priority), _path(f"{HOOK}:{own[-1]}")]
        return _with(spec, at, env=changed), [_set(container, "env", changed, *where)]
    changed = [
        *others,
        _variable(PRIORITY, priority),
        _variable(RECORDED, _FILE),
        _path(HOOK),
    ]
    mount = {"name": _VOLUME, "mountPath": _DIRECTORY}
    mounts, volumes = container.get("volumeMounts"), spec.get("volumes")
    inits, init = spec.get("initContainers"), _recording(container, mount)
    volume = {"name": _VOLUME, "emptyDir": {"sizeLimit": "1Mi"}}
    found = {
        **_with(spec, at, env=changed, volumeMounts=[*sequence(mounts), mount]),
        "volumes": [*sequence(volumes), volume],
        "initContainers": [*sequence(inits), init],
    }
    return found, [
        _set(container, "env", changed, *where),
        appended(mounts, mount, *where, "volumeMounts"),
        appended(volumes, volume, "spec", "volumes"),
        appended(inits, init, "spec", "initContainers"),
    ]


def _recording(container: Raw, mount: Raw) -> Raw:
    """Return the init container: it has all that decides what PYTHONPATH is in the container.

    It requests the same resources, so that the pod requests no more than without it, and the part
    of the GPU with which the binary comes.
    """
    copied = {key: container[key] for key in _COPIED if container.get(key) is not None}
    script = f'printf %s "${_PYTHONPATH}" > {_FILE}'
    command = [f"{HOOK}/{BUSYBOX}", "sh", "-c", script]
    return {"name": _INIT, **copied, "command": command, "volumeMounts": [mount]}


def _with(spec: Raw, at: int, **fields: Any) -> dict[str, Any]:
    containers = list(sequence(spec.get("containers")))
    containers[at] = {**mapping(containers[at]), **fields}
    return {**spec, "containers": containers}


def _variable(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def _path(value: str) -> dict[str, str]:
    return _variable(_PYTHONPATH, value)


def _set(container: Raw, key: str, value: object, *where: str) -> Operation:
    path = "/" + "/".join((*where, key))
    return {"op": "replace" if key in container else "add", "path": path, "value": value}
