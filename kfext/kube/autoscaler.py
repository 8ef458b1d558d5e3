"""Whether the cluster has an autoscaler: then a job without room may be what makes it add nodes."""

from kfext.errors import Forbidden, NotFound
from kfext.kube import paths
from kfext.kube.client import Client

_STATUS = paths.config_map("kube-system", "cluster-autoscaler-status")
"""Written by the Kubernetes cluster-autoscaler while it runs."""
_KARPENTER = "/apis/karpenter.sh"


async def has_autoscaler(client: Client) -> bool:
    """Return whether cluster-autoscaler or Karpenter is installed; not if we may not see it.

    Raises ApiError when the server does not answer.
    """
    return await _is_there(client, _STATUS) or await _is_there(client, _KARPENTER)


async def _is_there(client: Client, path: str) -> bool:
    try:
        await client.get(path)
    except (NotFound, Forbidden):
        return False
    return True
