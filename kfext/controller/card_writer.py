"""Creates and deletes the pods that reserve GPUs for slots."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, assert_never

from kfext.errors import Conflict, NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.constraints import NAME_FIELD
from kfext.model.gpu_slots import reservation_of
from kfext.model.tolerant import mapping, sequence
from kfext.names import GPU_NAMESPACE, GPU_SLOT, RESERVATION_TEMPLATE
from kfext.state.card_steps import Reserve, Unreserve

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class CardWriter:
    """Creates and deletes the pods that reserve GPUs.

    The pods are made from the PodTemplate RESERVATION_TEMPLATE, a part of the installation.
    """

    def __init__(self, *, client: Client) -> None:
        self._client = client

    async def write(self, step: Reserve | Unreserve) -> None:
        """Carry out a step. Raises ApiError."""
        match step:
            case Reserve():
                template = paths.pod_templates(GPU_NAMESPACE, RESERVATION_TEMPLATE)
                found = await self._client.get(template)
                body = _pod(mapping(found.get("template")), step)
                with suppress(Conflict):  # the name is that of the slot, so the pod exists already
                    await self._client.create(paths.pods(GPU_NAMESPACE), body)
            case Unreserve(pod=pod):
                with suppress(NotFound, Conflict):  # the pod is gone, or a new pod has its name
                    await self._client.delete(paths.pods(pod.namespace, pod.name), uid=pod.uid)
            case _:
                assert_never(step)


def _pod(template: Mapping[str, Any], step: Reserve) -> dict[str, Any]:
    """Return the pod that reserves a GPU of one node, where the sharers may be."""
    metadata, spec = mapping(template.get("metadata")), mapping(template.get("spec"))
    node, slot = step.place
    here = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    tolerations = [
        {key: value for key, value in asdict(one).items() if value} for one in step.tolerations
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": reservation_of(node, slot),
            "labels": {**mapping(metadata.get("labels")), GPU_SLOT: str(slot)},
        },
        "spec": {
            **spec,
            "affinity": {"nodeAffinity": {_REQUIRED: terms}},
            "tolerations": [*sequence(spec.get("tolerations")), *tolerations],
        },
    }
