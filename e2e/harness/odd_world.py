"""A small cluster for one test: nodes of several kinds, running pods, volumes and devices.

Two namespaces of the same world have equal but separate nodes, volumes and pods. Two claims are
bound at once, one claim waits for a pod, and one claim is created later.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from e2e.harness.kube import Kube, Object
from e2e.harness.space import CASE, Space
from e2e.harness.wait import until
from e2e.testbed import fakenodes

SHARED, ZONAL, LOCAL, LATE = "shared", "zonal", "local", "late"
VOLUMES = "/api/v1/persistentvolumes"
_BOUND = (SHARED, ZONAL)
_PER_NODE = 2
"""The number of local volumes on each node."""
HIGH, MIDDLE, LOW = "never-worse-high", "never-worse-middle", "never-worse-low"
OVERHEAD, STEERED = "never-worse-overhead", "never-worse-steered"
DEDICATED = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
DRIVER, CARD = "cards.example.com", "card"
FILLER = {"app": "filler"}
JOB = {"odd": "job"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NODES: tuple[Object, ...] = (
    {"zone": "a", "disk": "ssd", "cpu": 8, "gpus": 4, "cards": 3},
    {"zone": "a", "disk": "hdd", "cpu": 8, "gpus": 4, "cards": 0},
    {"zone": "b", "disk": "ssd", "cpu": 8, "gpus": 0, "cards": 3},
    {"zone": "b", "disk": "hdd", "cpu": 16, "gpus": 0, "cards": 0},
    {"zone": "c", "disk": "ssd", "cpu": 16, "gpus": 0, "cards": 0, "dedicated": True},
)
_CLASSES: tuple[tuple[str, Object], ...] = (
    *(
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": name}, "value": value},
        )
        for name, value in ((HIGH, 1000), (MIDDLE, 500), (LOW, -10))
    ),
    (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "metadata": {"name": OVERHEAD},
            "handler": "sandbox",
            "overhead": {"podFixed": {"cpu": "300m", "memory": "256Mi"}},
        },
    ),
    (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "metadata": {"name": STEERED},
            "handler": "sandbox",
            "scheduling": {"nodeSelector": {"disk": "ssd"}, "tolerations": [DEDICATED]},
        },
    ),
    (
        "/apis/resource.k8s.io/v1/deviceclasses",
        {
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
        },
    ),
)


def wait_bound(space: Space) -> None:
    """Wait until the claims that need no pod are bound."""
    bound = [f"{_claims(space.name)}/{name}" for name in _BOUND]
    until(
        lambda: all(space.kube.get(path)["status"].get("phase") == "Bound" for path in bound),
        what=f"the claims of {space.name} are bound",
    )


def make_late_claim(space: Space) -> None:
    """Create the claim that is missing at first; its volume exists."""
    space.kube.create(_claims(space.name), _static_claim(space.name, LATE))


def objects(arm: str, nodes: Sequence[str]) -> Iterator[tuple[str, Object]]:
    """Yield the storage class, volumes and claims of a namespace, each with its API path."""
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
            arm, f"{LOCAL}-{number}", affinity=("kubernetes.io/hostname", node), local=local
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
    return {
        "accessModes": [mode],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
    }


def _volume(
    arm: str, name: str, *, affinity: tuple[str, str] | None = None, local: Object | None = None
) -> Object:
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce" if local else "ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
    }
    spec |= local or {"nfs": {"server": "nfs.example.com", "path": "/"}, "storageClassName": ""}
    if local is None:
        spec["claimRef"] = {"namespace": arm, "name": name}
    if affinity:
        line = {"key": affinity[0], "operator": "In", "values": [affinity[1]]}
        terms = [{"matchExpressions": [line]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {"metadata": {"name": f"{arm}-{name}"}, "spec": spec}


@dataclass(frozen=True, slots=True)
class World:
    """The state of the cluster before the job is submitted.

    `filled`: whether a low-priority pod runs on the first node.
    `crowded`: whether low-priority pods use most of the CPU of every node.
    `shunned`: whether the pod on the first node has anti-affinity to pods of the job.
    `storage`, `devices`: whether there are volumes, and devices for resource claims.
    """

    filled: bool = False
    crowded: bool = False
    shunned: bool = False
    storage: bool = False
    devices: bool = False

    def make(self, space: Space) -> None:
        space.create_nodes(list(_nodes(space.name)))
        for path, body in self._objects(space):
            space.kube.create(path, body)
        if self.storage:
            wait_bound(space)

    def remove(self, space: Space) -> None:
        """Delete its cluster-scoped objects, except its nodes."""
        for path, body in self._objects(space):
            if "/namespaces/" not in path:
                space.kube.delete(f"{path}/{body['metadata']['name']}")

    def _objects(self, space: Space) -> Iterator[tuple[str, Object]]:
        nodes = [_node(space.name, number) for number in range(len(_NODES))]
        yield from objects(space.name, nodes) if self.storage else ()
        yield from _devices(space.name) if self.devices else ()
        yield from self._fillers(space)

    def _fillers(self, space: Space) -> Iterator[tuple[str, Object]]:
        for number, kind in enumerate(_NODES):
            cpu = kind["cpu"] * 1000 - 700 if self.crowded else 500
            if self.crowded or (self.filled and number == 0):
                yield space.path("pods"), _filler(space.name, number, cpu, shuns=self.shunned)


def make_classes(kube: Kube) -> None:
    """Create the priority, runtime and device classes, which all worlds share."""
    for path, body in _CLASSES:
        kube.create(path, body)


def remove_classes(kube: Kube) -> None:
    for path, body in _CLASSES:
        kube.delete(f"{path}/{body['metadata']['name']}")


def _nodes(arm: str) -> Iterator[Object]:
    for number, kind in enumerate(_NODES):
        capacity = {"cpu": str(kind["cpu"]), "memory": "32Gi", "pods": "20"}
        capacity |= {"nvidia.com/gpu": str(kind["gpus"])} if kind["gpus"] else {}
        taints = [{"key": DEDICATED["key"], "value": "yes", "effect": "NoSchedule"}]
        labels = {CASE: arm, "zone": kind["zone"], "disk": kind["disk"]}
        yield fakenodes.node(
            _node(arm, number),
            capacity=capacity,
            labels=labels,
            taints=taints if kind.get("dedicated") else [],
        )


def _node(arm: str, number: int) -> str:
    return f"{arm}-{number}"


def _filler(arm: str, number: int, cpu: int, *, shuns: bool) -> Object:
    resources = {"requests": {"cpu": f"{cpu}m"}}
    spec: Object = {
        "nodeName": _node(arm, number),
        "priorityClassName": LOW,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "filler", "image": "none", "resources": resources}],
    }
    if shuns and number == 0:
        term = {"labelSelector": {"matchLabels": JOB}, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [term]}}
    return {"metadata": {"name": f"filler-{number}", "labels": FILLER}, "spec": spec}


def _devices(arm: str) -> Iterator[tuple[str, Object]]:
    root = "/apis/resource.k8s.io/v1"
    exactly = {"name": CARD, "exactly": {"deviceClassName": DRIVER}}
    yield (
        f"{root}/namespaces/{arm}/resourceclaimtemplates",
        {"metadata": {"name": CARD}, "spec": {"spec": {"devices": {"requests": [exactly]}}}},
    )
    for number, kind in enumerate(_NODES):
        node = _node(arm, number)
        spec = {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"{CARD}-{n}"} for n in range(kind["cards"])],
        }
        if kind["cards"]:
            yield f"{root}/resourceslices", {"metadata": {"name": node}, "spec": spec}
