"""What is there before a soak begins."""

from e2e.harness.kube import Kube
from e2e.soak import manifests, refusals
from e2e.soak.invariants import Limits
from e2e.soak.mischief import NAMESPACES
from e2e.soak.roster import WILD
from e2e.soak.scaling import REST_SECONDS

_QUOTA = {"pods": "24", "requests.nvidia.com/gpu": "16"}
_RESERVE_AFTER = "30s"
_SCALE = {"wait": 3, "idle": 1, "rest": REST_SECONDS}


def set_up(kube: Kube, limits: Limits) -> None:
    """Make a quota, priorities, a TrainingPolicy, and policies that refuse nothing yet."""
    refusals.install(kube, WILD)
    quota = {"metadata": {"name": "soak"}, "spec": {"hard": _QUOTA}}
    path = f"/api/v1/namespaces/{NAMESPACES[-1]}/resourcequotas"
    kube.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    for name in manifests.PRIORITIES:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        kube.create(path, manifests.priority_class(name))
    timeouts = {
        "bindTimeout": f"{limits.bind:.0f}s",
        "createTimeout": f"{limits.create:.0f}s",
        "reserveAfter": _RESERVE_AFTER,
    }
    scale = {"mode": "act", "parameters": _SCALE}
    spec = {"placement": timeouts, "companion": {"scale": scale}}
    policy = {"metadata": {"name": "soak"}, "spec": spec}
    path = "/apis/kfext.dev/v1alpha1/trainingpolicies"
    body = {"apiVersion": "kfext.dev/v1alpha1", "kind": "TrainingPolicy", **policy}
    kube.create(path, body)
