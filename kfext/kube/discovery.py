"""What the API server serves in this cluster: kinds of training jobs, and an autoscaler."""

from collections.abc import Iterable

from kfext.errors import Forbidden, NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.registered import KINDS
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import TRAINING_GROUP, TRAINING_VERSION

_JOBS = f"/apis/{TRAINING_GROUP}/{TRAINING_VERSION}"
_STATUS = paths.config_maps("kube-system", "cluster-autoscaler-status")
"""The ConfigMap that the Kubernetes cluster-autoscaler writes while it runs."""
_KARPENTER = "/apis/karpenter.sh"


async def served_kinds(client: Client) -> tuple[JobKind, ...]:
    """Return the kinds of training jobs that have a CRD in the cluster. Raises ApiError."""
    try:
        resources = sequence((await client.get(_JOBS)).get("resources"))
    except NotFound:
        return ()  # without any CRD of the group, the API server does not know the group
    served = {text(mapping(resource).get("name")) for resource in resources}
    return tuple(kind for kind in KINDS.values() if kind.plural in served)


def why_unserved(kinds: Iterable[JobKind]) -> str:
    """Return that the cluster serves none of some kinds, and what provides them."""
    plurals = " or ".join(kind.plural for kind in kinds)
    return f"the cluster serves no {plurals}; install the training-operator 1.8 or 1.9"


async def has_autoscaler(client: Client) -> bool:
    """Return whether cluster-autoscaler or Karpenter is installed; False if kfext may not see it.

    An autoscaler may add nodes when it sees a job that cannot fit. Raises ApiError if a request
    fails for any other reason.
    """
    return await _is_there(client, _STATUS) or await _is_there(client, _KARPENTER)


async def _is_there(client: Client, path: str) -> bool:
    try:
        await client.get(path)
    except (NotFound, Forbidden):
        return False
    return True
