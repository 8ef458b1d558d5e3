"""The pods of this node, as the API server has them: which pods share, their terms, and which run.

The terms are in an annotation that only the controller can write. The pod itself is not asked.
"""

from dataclasses import dataclass

import msgspec

from kfext.gpu.agent.report import Pod
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.informer import Informer
from kfext.model.gpu import GpuShare, decode_terms
from kfext.model.tolerant import mapping, strings, text
from kfext.names import GPU_NAMESPACE, GPU_TERMS


@dataclass(frozen=True, slots=True)
class _NodePod:
    pod: Pod
    uid: str
    terms: GpuShare | None
    runs: bool


class NodePods:
    """Watches the pods of the node."""

    def __init__(self, client: Client, *, node: str) -> None:
        self._pods = Informer(
            client,
            paths.pods(),
            decode=_decode,
            selectors={"fieldSelector": f"spec.nodeName={node}"},
        )
        self.synced = self._pods.synced
        self.run = self._pods.run

    def terms(self, pod: Pod) -> GpuShare | None:
        """Return the terms on which a pod shares its card, or None without terms or for no pod."""
        pod_read = self._known(pod)
        return pod_read.terms if pod_read else None

    def uid(self, pod: Pod) -> str:
        """Return the uid of a pod; empty for an unknown pod."""
        pod_read = self._known(pod)
        return pod_read.uid if pod_read else ""

    def running(self) -> frozenset[Pod]:
        """Return the running pods that share a card or belong to kfext."""
        pods = (pod for pod in self._pods.store if pod.terms or pod.pod[0] == GPU_NAMESPACE)
        return frozenset(pod.pod for pod in pods if pod.runs)

    def _known(self, pod: Pod) -> _NodePod | None:
        namespace, name = pod
        return self._pods.store.by_name(name, namespace=namespace)


def _decode(raw: bytes) -> _NodePod:
    whole = mapping(msgspec.json.decode(raw))
    metadata, status = mapping(whole.get("metadata")), mapping(whole.get("status"))
    written = strings(metadata.get("annotations")).get(GPU_TERMS, "")
    return _NodePod(
        pod=(text(metadata.get("namespace")), text(metadata.get("name"))),
        uid=text(metadata.get("uid")),
        terms=decode_terms(written),
        runs=status.get("phase") == "Running" and not metadata.get("deletionTimestamp"),
    )
