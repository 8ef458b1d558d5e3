"""Whether the cluster has an autoscaler, which may add nodes when it sees a job that cannot fit."""

from kfext.errors import Forbidden, NotFound
from kfext.kube import paths
from kfext.kube.client import Client

_STATUS = paths.config_maps("kube-system", "cluster-autoscaler-status")
"""The ConfigMap that the Kubernetes cluster-autoscaler writes while it runs."""
_KARPENTER = "/apis/karpenter.sh"


async def has_autoscaler(client: Client) -> bool:
    """Return whether cluster-autoscaler or Karpenter is installed; False if kfext may not see it.

    Raises ApiError if a request fails for any other reason.
    """
    return await _is_there(client, _STATUS) or await _is_there(client, _KARPENTER)


async def _is_there(client: Client, path: str) -> bool:
    try:
        await client.get(path)
    except (NotFound, Forbidden):
        return False
    return True
