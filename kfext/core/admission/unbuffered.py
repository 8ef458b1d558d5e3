"""Have the Python of a TFJob print its lines at once, as that of a PyTorchJob does.

Into a pipe Python prints in blocks of 8 KiB, so the log would lag behind the training by many
steps. The operator sets PYTHONUNBUFFERED for PyTorchJobs only.
"""

from collections.abc import Mapping
from typing import Any

from kfext.core.patches.json_patch import Operation, appended
from kfext.model.kinds.job_kind import TENSORFLOW, Kind
from kfext.model.tolerant import mapping, sequence

_VARIABLE = {"name": "PYTHONUNBUFFERED", "value": "1"}


def unbuffered(kind: Kind, spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Operation]]:
    """Return the pod spec with the variable where it is unset, and the operations that set it."""
    containers = list(sequence(spec.get("containers")))
    for number, container in enumerate(map(mapping, containers)):
        if kind is not TENSORFLOW or container.get("name") != kind.container:
            continue
        env = container.get("env")
        if env is not None and (not isinstance(env, list) or _is_set(env)):
            continue
        operation = appended(env, _VARIABLE, "spec", "containers", str(number), "env")
        containers[number] = {**container, "env": [*(env or []), _VARIABLE]}
        return {**spec, "containers": containers}, [operation]
    return spec, []


def _is_set(env: list[Any]) -> bool:
    return any(one.get("name") == _VARIABLE["name"] for one in map(mapping, env))
