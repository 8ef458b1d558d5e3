"""Volumes and claims of an odd world: bound ones, one that waits for a pod, and one made later."""

from collections.abc import Iterator, Sequence
from typing import Any

from e2e.harness.kube import Object
from e2e.harness.space import Space
from e2e.harness.wait import until

SHARED, ZONAL, LOCAL, LATE = "shared", "zonal", "local", "late"
VOLUMES = "/api/v1/persistentvolumes"
_BOUND = (SHARED, ZONAL)
_PER_NODE = 2
"""Local volumes of one node."""


def wait_bound(space: Space) -> None:
    """Wait until the claims that need no pod are bound."""
    bound = [f"{_claims(space.name)}/{name}" for name in _BOUND]
    until(
        lambda: all(space.kube.get(path)["status"].get("phase") == "Bound" for path in bound),
        what=f"the claims of {space.name} are bound",
    )


def make_late_claim(space: Space) -> None:
    """Make the claim that is missing at first; its volume is there."""
    space.kube.create(_claims(space.name), _static_claim(space.name, LATE))


def objects(arm: str, nodes: Sequence[str]) -> Iterator[tuple[str, Object]]:
    """Yield the class, claims and volumes of a namespace, each with its path."""
    yield (
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": f"{arm}-{LOCAL}"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for name, affinity in ((SHARED, None), (ZONAL, ("zone", "a")), (LATE, None)):
        yield VOLUMES, _volume(arm, name, affinity=affinity)
    for number in range(_PER_NODE * len(nodes)):
        node = nodes[number % len(nodes)]
        local = {"local": {"path": "/data"}, "storageClassName": f"{arm}-{LOCAL}"}
        body = _volume(
            arm, f"{LOCAL}-{number}", affinity=("kubernetes.io/hostname", node), of=local
        )
        yield VOLUMES, body
    for name in _BOUND:
        yield _claims(arm), _static_claim(arm, name)
    local_class = claim_spec("ReadWriteOnce", f"{arm}-{LOCAL}")
    yield _claims(arm), {"metadata": {"name": LOCAL}, "spec": local_class}


def _claims(arm: str) -> str:
    return f"/api/v1/namespaces/{arm}/persistentvolumeclaims"


def _static_claim(arm: str, name: str) -> Object:
    spec = claim_spec("ReadWriteMany", "") | {"volumeName": f"{arm}-{name}"}
    return {"metadata": {"name": name}, "spec": spec}


def claim_spec(mode: str, storage_class: str) -> Object:
    """Return the spec of a claim."""
    return {
        "accessModes": [mode],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
    }


def _volume(
    arm: str, name: str, *, affinity: tuple[str, str] | None = None, of: Object | None = None
) -> Object:
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce" if of else "ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
    }
    spec |= of or {"nfs": {"server": "nfs.example.com", "path": "/"}, "storageClassName": ""}
    if of is None:
        spec["claimRef"] = {"namespace": arm, "name": name}
    if affinity:
        line = {"key": affinity[0], "operator": "In", "values": [affinity[1]]}
        terms = [{"matchExpressions": [line]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {"metadata": {"name": f"{arm}-{name}"}, "spec": spec}
