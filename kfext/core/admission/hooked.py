"""Make Python in a container load the hook, through PYTHONPATH.

The image stays as it is. What PYTHONPATH the image has is not known here, and a variable of the
container would replace it. So a shell puts the hook before it and becomes the container's command.
Where the template has no `command`, so that the image's own runs, an init container of the same
image writes the path down first, and our sitecustomize puts it back. Both run a static binary that
comes with the part of the GPU, as the hook itself does: the image may have no shell.

The init container is the second choice, as it requests the part of the GPU. After a restart of the
kubelet a running container keeps its devices, but one that has ended is given them anew, which
fails until the device plugin is back, and the pod with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kfext.model.tolerant import mapping, sequence

HOOK = "/kfext/hook"
"""Where the node's agent mounts the hook into containers with a part of a GPU."""
BUSYBOX = "busybox"
PRIORITY, RECORDED = "KFEXT_GPU_PRIORITY", "KFEXT_PYTHONPATH"
"""Variables that the hook reads: `high` or `low`; a file with the image's own PYTHONPATH."""
_PYTHONPATH = "PYTHONPATH"
_AHEAD = (
    f'export {_PYTHONPATH}="{HOOK}${{{_PYTHONPATH}:+:${_PYTHONPATH}}}"; set -f; IFS=:; '
    'case "$0" in */*) ;; *) for folder in $PATH; do '
    '[ -f "$folder/$0" ] && [ -x "$folder/$0" ] && exec "$folder/$0" "$@"; done;; esac; '
    'exec "$0" "$@"'
)
"""The shell. It looks for a command itself: busybox would take one of its own of that name."""
_VOLUME, _DIRECTORY = "kfext-recorded", "/kfext/recorded"
_FILE = f"{_DIRECTORY}/pythonpath"
_INIT = "kfext-record"
_COPIED = ("image", "imagePullPolicy", "env", "envFrom", "resources", "securityContext")

Raw = Mapping[str, Any]


def hooked(spec: Raw, at: int, *, priority: str) -> Raw:
    """Return a pod spec whose container number `at` loads the hook."""
    container = mapping(sequence(spec.get("containers"))[at])
    env = [mapping(one) for one in sequence(container.get("env"))]
    own = [one.get("value") for one in env if one.get("name") == _PYTHONPATH]
    if own and isinstance(own[-1], str):
        path = ":".join(filter(None, (HOOK, own[-1])))
        changed = [*_with_path(env, path), _variable(PRIORITY, priority)]
        return _with(spec, at, env=changed)
    if command := sequence(container.get("command")):
        shell = [f"{HOOK}/{BUSYBOX}", "sh", "-c", _AHEAD]
        return _with(
            spec, at, command=[*shell, *command], env=[*env, _variable(PRIORITY, priority)]
        )
    changed = [*_with_path(env, HOOK), _variable(PRIORITY, priority), _variable(RECORDED, _FILE)]
    mount = {"name": _VOLUME, "mountPath": _DIRECTORY}
    volume = {"name": _VOLUME, "emptyDir": {"sizeLimit": "1Mi"}}
    mounts = [*sequence(container.get("volumeMounts")), mount]
    return {
        **_with(spec, at, env=changed, volumeMounts=mounts),
        "volumes": [*sequence(spec.get("volumes")), volume],
        "initContainers": [*sequence(spec.get("initContainers")), _recording(container, mount)],
    }


def _with_path(env: Sequence[Raw], path: str) -> list[Raw]:
    """Return variables with this PYTHONPATH, in its place: variables after it may refer to it."""
    variable = _variable(_PYTHONPATH, path)
    if all(one.get("name") != _PYTHONPATH for one in env):
        return [*env, variable]
    return [variable if one.get("name") == _PYTHONPATH else one for one in env]


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
