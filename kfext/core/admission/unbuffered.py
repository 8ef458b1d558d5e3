"""Make Python print its lines at once in the pods of kinds for which the operator does not.

Into a pipe Python prints in blocks of 8 KiB, so the log would lag behind the training by many
steps.
"""

from collections.abc import Mapping
from typing import Any

from kfext.core.patches.json_patch import Operation, appended
from kfext.model.kinds.job_kind import JobKind
from kfext.model.tolerant import mapping, sequence

_VARIABLE = {"name": "PYTHONUNBUFFERED", "value": "1"}


def unbuffered(kind: JobKind, spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Operation]]:
    """Return the pod spec with the variable where it is unset, and the operations that set it."""
    containers = list(sequence(spec.get("containers"))) if kind.buffers else []
    for number, container in enumerate(map(mapping, containers)):
        if container.get("name") != kind.container:
            continue
        env = container.get("env")
        if env is not None and (not isinstance(env, list) or _is_set(env)):
            continue
        operation = appended(env, _VARIABLE, "spec", "containers", str(number), "env")
        containers[number] = {**container, "env": [*(env or []), _VARIABLE]}
        return {**spec, "containers": containers}, [operation]
    return spec, []


def _is_set(env: list[Any]) -> bool:
    return any(variable.get("name") == _VARIABLE["name"] for variable in map(mapping, env))
