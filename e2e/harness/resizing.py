"""Resizes pods as the controller does: with its patch, its client and its permissions."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from e2e.harness.install import component
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from kfext import names
from kfext.core.patches.pod import resize
from kfext.errors import ApiError, NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.wire import decode_pod
from kfext.model.cpu_size import CpuSize, TrainerCpu
from kfext.model.pod import Pod, parse_pod

CONTAINER = "pytorch"
_OWNER = {
    "apiVersion": f"{names.TRAINING_GROUP}/v1",
    "kind": "PyTorchJob",
    "uid": "none",
    "controller": True,
}
_COMPONENT = "pod-resize"
_SERVICE = f"system:serviceaccount:{names.NAMESPACE}"


class Resizing:
    """Resizes pods of a namespace as the controller, or as the user of a kubeconfig."""

    def __init__(self, bed: Testbed, namespace: str, *, config: Path | None = None) -> None:
        self._bed, self._namespace = bed, namespace
        self._config = config or bed.pki.kubeconfig(
            bed.folder / "kubeconfigs" / "resizing.yaml",
            server=bed.server,
            user=f"{_SERVICE}:kfext-controller",
            groups=("system:serviceaccounts", f"system:serviceaccounts:{names.NAMESPACE}"),
        )

    def pod(self, name: str) -> Pod:
        return parse_pod(_owned(self._bed.api.get(paths.pods(self._namespace, name))))

    def trainer(self, name: str) -> TrainerCpu:
        """Return the current CPU of the container that trains in a pod."""
        trainer = self.pod(name).trainer
        assert trainer is not None, f"nothing trains in pod {name}"
        return trainer

    def write(self, pod: Pod, size: CpuSize, *, subresource: str = "resize") -> Pod:
        """Resize a pod; return it as stored. Raises ApiError, also for a pod that has changed."""

        async def write() -> Pod:
            body = resize(pod, size, container=CONTAINER)
            path = paths.pods(pod.namespace, pod.name, subresource)
            async with await Client.connect(self._config) as client:
                return await client.strategic_patch_as(path, body, decode=_decode)

        return asyncio.run(write())

    def may_resize(self) -> bool:
        """Return whether the controller has the permission to resize pods."""
        absent = Pod(namespace=self._namespace, name="absent", uid="")
        try:
            self.write(absent, CpuSize(1))
        except NotFound:
            return True
        except ApiError:
            pass
        return False


@contextmanager
def resizing(bed: Testbed, namespace: str) -> Iterator[Resizing]:
    """Grant the controller permission to resize pods during a `with` block, as an admin does."""
    resizer, manifests = Resizing(bed, namespace), list(component(_COMPONENT))
    for manifest in manifests:
        bed.api.apply(manifest)
    try:
        until(resizer.may_resize, what="the controller may resize pods")
        yield resizer
    finally:
        for manifest in manifests:
            bed.api.delete(bed.api.path(manifest))


def _owned(raw: Any) -> Any:
    """Return a pod with a PyTorchJob as owner; the cluster would delete pods of absent jobs."""
    metadata = raw["metadata"]
    return {**raw, "metadata": {"ownerReferences": [_OWNER], **metadata}}


def _decode(raw: bytes) -> Pod:
    return decode_pod(msgspec.json.encode(_owned(msgspec.json.decode(raw))))
