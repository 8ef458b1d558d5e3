"""The one patch of a pod that asks its job for a checkpoint: an annotation, which the job reads."""

from kfext.core.patches.json_patch import Operation, pointer
from kfext.model.pod import Pod
from kfext.names import CHECKPOINT_REQUEST

_ANNOTATIONS = pointer("metadata", "annotations")


def request_patch(pod: Pod, number: int) -> list[Operation]:
    """Return the operations that ask the job of a pod for checkpoint `number`, from 1 on.

    A pod of the same name may be another one by now, so the uid is tested. Where there are no
    annotations yet, the version is too: those that somebody has added since must not be lost.
    """
    asked = str(number)
    same: Operation = {"op": "test", "path": "/metadata/uid", "value": pod.uid}
    if pod.annotated:
        path = _ANNOTATIONS + pointer(CHECKPOINT_REQUEST)
        return [same, {"op": "add", "path": path, "value": asked}]
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": pod.resource_version}
    first = {"op": "add", "path": _ANNOTATIONS, "value": {CHECKPOINT_REQUEST: asked}}
    return [same, version, first]
