"""The pods of this node, as the API server has them: which share, on which terms, and which run.

The terms are on an annotation that only the controller can write. What runs in a pod is not asked.
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
        """Return the terms on which a pod shares its card, None if it has none or is not known."""
        known = self._known(pod)
        return known.terms if known else None

    def uid(self, pod: Pod) -> str:
        """Return the uid of a pod, empty if it is not known."""
        known = self._known(pod)
        return known.uid if known else ""

    def running(self) -> frozenset[Pod]:
        """Return the pods that share a card, or that are kfext's own, and certainly run."""
        ours = (one for one in self._pods.store if one.terms or one.pod[0] == GPU_NAMESPACE)
        return frozenset(one.pod for one in ours if one.runs)

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
