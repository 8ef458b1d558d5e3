"""What the kubelet has allocated to a pod; during a resize this differs from its requests.

While a pod is resized in place, kube-scheduler counts the largest of the requested, the allocated
and the effective amount, so that capacity counts as free only once it has been given back. Source:
kubernetes component-helpers resource.PodRequests with UseStatusResources.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kfext.model.quantity import Resources, maximum, parse_resources
from kfext.model.tolerant import mapping, sequence, text

_LISTS = ("containerStatuses", "initContainerStatuses")


class Allocation:
    """The allocated resources of the containers of a pod, from its status."""

    def __init__(self, status: Mapping[str, Any], *, names: Iterable[str]) -> None:
        """Read the status of the lasting containers, which have these `names`."""
        wanted = set(names)
        self._infeasible = _is_infeasible(status)
        self._of: dict[str, Resources] = {}
        for container in (
            mapping(container) for key in _LISTS for container in sequence(status.get(key))
        ):
            name, resources = text(container.get("name")), container.get("resources")
            if name in wanted and isinstance(resources, Mapping):
                self._of[name] = maximum(
                    parse_resources(resources.get("requests")),
                    parse_resources(container.get("allocatedResources")),
                )

    def counted(self, container: Mapping[str, Any], requests: Resources) -> Resources:
        """Return what counts for a container that requests this much.

        A resize that its node can never carry out does not count.
        """
        allocated = self._of.get(text(container.get("name")))
        if allocated is None:
            return requests
        return allocated if self._infeasible else maximum(requests, allocated)


def _is_infeasible(status: Mapping[str, Any]) -> bool:
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in map(mapping, sequence(status.get("conditions")))
    )
