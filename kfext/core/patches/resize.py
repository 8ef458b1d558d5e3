"""The one patch of a pod that runs: another CPU size, in place, by its subresource `resize`.

It is a strategic merge patch, which finds the container by its name. Whatever anybody else wrote
meanwhile is a conflict, as the resource version says which state of which pod the size is for.
"""

from typing import Any

from kfext.model.cpu_size import CpuSize
from kfext.model.pod import Pod
from kfext.model.quantity import CPU

Body = dict[str, Any]


def resize(pod: Pod, size: CpuSize, *, container: str) -> Body:
    """Return the patch that gives a container of a pod another size.

    A pod that requests no CPU states that, since the API server would take the limit as its
    request.
    """
    resources: Body = {"limits": {CPU: _millicores(size.limit)}}
    request = size.request
    if request is None and pod.trainer is not None and pod.trainer.request == 0:
        request = 0
    if request is not None:
        resources["requests"] = {CPU: _millicores(request)}
    return {
        "metadata": {"resourceVersion": pod.resource_version},
        "spec": {"containers": [{"name": container, "resources": resources}]},
    }


def _millicores(amount: int) -> str:
    return f"{amount}m"
