"""Random nodes and pods: valid for the API server, with unusual values that placement reads.

All random choices derive from one seed, so that a difference between two verdicts can be
reproduced.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from e2e.harness.kube import Object
from e2e.testbed import fakenodes

GROUP = "kfext.dev/case"
"""The label of nodes with their group; a free pod may use any node of one group."""
ODD = "kfext.dev/odd"
"""The label of nodes with the `stem` of the `Odd` that made them."""
OVERHEAD_CLASS = "overhead"
STEERED_CLASS = "steered"
AT_ADMISSION = "set at admission"
HOST_ADDRESS = "host address"
POD_AFFINITY, SPREAD, VOLUME = "pod affinity", "topology spread", "volume"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_ZONES, _GENERATIONS = ("a", "b", "c"), ("3", "5", "7", "old")
_GPU, _CARD, _HUGE = "nvidia.com/gpu", "example.com/card", "hugepages-2Mi"
_TAINTS = (
    {"key": "team", "value": "vision", "effect": "NoSchedule"},
    {"key": "team", "value": "speech", "effect": "NoExecute"},
    {"key": "spot", "effect": "NoExecute"},
)
_SOFT_TAINT = {"key": "busy", "value": "yes", "effect": "PreferNoSchedule"}
_TOLERATIONS = (
    {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"},
    {"key": "team", "value": "speech"},
    {"key": "team", "operator": "Exists"},
    {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
    {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
    {"operator": "Exists", "effect": "NoSchedule"},
    {"operator": "Exists"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
)


@dataclass(frozen=True, slots=True)
class OddPod:
    """A pod, and its candidate nodes `among`.

    `known_difference`: why kfext may judge unlike kube-scheduler; empty if it must not.
    """

    body: Object
    among: tuple[str, ...]
    known_difference: str = ""


@dataclass(slots=True)
class Odd:
    """A source of random nodes and pods. `stem`: a prefix for labels and runtime classes."""

    seed: int
    stem: str
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    # --- nodes ------------------------------------------------------------------------------------

    def node(self, name: str, group: str) -> Object:
        """Return a fake node with random size, labels and taints, one in ten of them cordoned."""
        draw = self._random
        capacity = {
            "cpu": f"{draw.randrange(4, 20) * 500}m",
            "memory": f"{draw.randrange(2, 12)}Gi",
            "pods": str(draw.randrange(1, 7)),
        }
        for name_, amount in ((_GPU, 6), (_CARD, 3)):
            if not self._one_in(4):
                capacity[name_] = str(draw.randrange(amount + 1))
        if not self._one_in(4):
            capacity["ephemeral-storage"] = f"{draw.randrange(1, 20)}Gi"
        if not self._one_in(3):
            capacity[_HUGE] = f"{draw.randrange(1, 9) * 2}Mi"
        labels = {GROUP: group, ODD: self.stem}
        if not self._one_in(5):
            labels["zone"] = draw.choice(_ZONES)
        if not self._one_in(5):
            labels["generation"] = draw.choice(_GENERATIONS)
        taints = draw.sample(_TAINTS, draw.choice((0, 0, 0, 0, 1, 2)))
        if self._one_in(3):
            taints.append(_SOFT_TAINT)
        body = fakenodes.node(name, capacity=capacity, labels=labels, taints=taints)
        body["spec"]["unschedulable"] = self._one_in(10)
        return body

    # --- pods -------------------------------------------------------------------------------------

    def pinned(self, name: str, node: str) -> OddPod:
        """Return a pod that kube-scheduler may bind to one node only, as kfext pins it."""
        terms = self._terms() or [{}]
        for term in terms:
            term.setdefault("matchFields", []).append(_line("metadata.name", "In", node))
        return self._pod(name, terms, among=(node,))

    def free(self, name: str, group: str, nodes: tuple[str, ...]) -> OddPod:
        """Return a pod for any node of a group that its node affinity allows."""
        terms = self._terms()
        if terms and self._one_in(2):
            node = self._random.choice(nodes)
            field_ = _line("metadata.name", self._random.choice(("In", "NotIn")), node)
            self._random.choice(terms).setdefault("matchFields", []).append(field_)
        return self._pod(name, terms, among=nodes, selector={GROUP: group})

    def _pod(
        self,
        name: str,
        terms: list[Object],
        *,
        among: tuple[str, ...],
        selector: dict[str, str] | None = None,
    ) -> OddPod:
        draw = self._random
        selector = dict(selector or {})
        if terms and self._one_in(6):
            selector["zone"] = draw.choice(_ZONES)
        tolerations = draw.sample(_TOLERATIONS, draw.choice((0, 0, 1, 1, 2)))
        if self._one_in(2):  # let capacity decide
            tolerations = [{"operator": "Exists"}]
        spec: Object = {"nodeSelector": selector, "tolerations": tolerations, **self._containers()}
        if terms:
            spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
        known = self._ports(spec)
        if not known and self._one_in(6):
            kind = draw.choice((OVERHEAD_CLASS, STEERED_CLASS))
            spec["runtimeClassName"] = f"{self.stem}-{kind}"
            known = AT_ADMISSION
        elif not known and self._one_in(15):
            known = self._unmodelled(spec)
        body = {"metadata": {"name": name, "labels": {"odd": "yes"}}, "spec": spec}
        return OddPod(body, among, known)

    def _terms(self) -> list[Object]:
        return [
            {
                "matchExpressions": [
                    self._requirement() for _ in range(self._random.choice((1, 1, 2)))
                ]
            }
            for _ in range(self._random.choice((0, 0, 0, 0, 1, 1, 2)))
        ]

    def _requirement(self) -> Object:
        draw = self._random
        match draw.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")):
            case ("In" | "NotIn") as operator:
                return _line("zone", operator, *draw.sample(_ZONES, draw.choice((1, 2))))
            case ("Gt" | "Lt") as operator:
                key = draw.choice(("generation", "generation", "zone", "absent"))
                return _line(key, operator, draw.choice(("4", "5", "04", "6", "new")))
            case operator:
                return {"key": draw.choice(("zone", "generation")), "operator": operator}

    def _containers(self) -> Object:
        draw = self._random
        main = [self._container(f"main-{n}", most=2) for n in range(draw.choice((1, 1, 2)))]
        before = []
        for number in range(draw.choice((0, 0, 0, 1, 2, 3))):
            container = self._container(f"init-{number}", most=3)
            before.append(
                {**container, "restartPolicy": "Always"} if self._one_in(2) else container
            )
        spec: Object = {"containers": main, "initContainers": before}
        if self._one_in(10):
            # The resources of the pod must be at least the sum of its containers'.
            whole = draw.choice(("requests", "limits"))
            spec["resources"] = {whole: {"cpu": "8", "memory": "16Gi"}}
            if self._one_in(3):
                for container in main:
                    container["resources"] = {}
                spec["initContainers"] = []
                spec["resources"] = {whole: {"cpu": "500m", "memory": "512Mi"}}
        return spec

    def _container(self, name: str, *, most: int) -> Object:
        draw = self._random
        requests: dict[str, str] = {}
        limits: dict[str, str] = {}
        if not self._one_in(4):
            requests["cpu"] = f"{draw.randrange(most * 5) * 100}m"
        if not self._one_in(3):
            draw.choice((requests, limits))["memory"] = f"{draw.randrange(1, most * 5) * 128}Mi"
        if self._one_in(8):
            draw.choice((requests, limits))["ephemeral-storage"] = f"{draw.randrange(1, 5)}Gi"
        if self._one_in(6):
            limits[draw.choice((_GPU, _CARD))] = str(draw.randrange(1, 3))
        if self._one_in(12):
            limits.update({"memory": "256Mi", _HUGE: f"{draw.randrange(1, 4) * 2}Mi"})
            requests.pop("memory", None)
        if "cpu" in requests and self._one_in(4):
            limits["cpu"] = requests.pop("cpu")
        resources = {"requests": requests, "limits": limits}
        return {"name": name, "image": "trainer", "resources": resources}

    def _ports(self, spec: Object) -> str:
        """Add host ports, or none; return `known_difference` of the pod (see `OddPod`)."""
        if self._one_in(2):
            return ""
        draw = self._random
        sidecars = [
            container for container in spec["initContainers"] if "restartPolicy" in container
        ]
        container_with_ports = draw.choice([*spec["containers"], *sidecars])
        ports = draw.sample((8001, 8002), draw.choice((1, 1, 2)))
        written = [
            {"containerPort": port, "protocol": draw.choice(("TCP", "TCP", "UDP"))}
            for port in ports
        ]
        container_with_ports["ports"] = written
        if self._one_in(4):
            spec["hostNetwork"] = True
            return ""
        address = draw.choice(("", "0.0.0.0", "10.0.0.1", "10.0.0.2"))
        for port in written:
            port["hostPort"] = port["containerPort"]
            if address:
                port["hostIP"] = address
        return HOST_ADDRESS if address.startswith("10.") else ""

    def _unmodelled(self, spec: Object) -> str:
        """Add a term that kfext does not model; return its name."""
        match self._random.choice((POD_AFFINITY, SPREAD, VOLUME)):
            case "pod affinity":
                term = {
                    "labelSelector": {"matchLabels": {"absent": "yes"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
                spec.setdefault("affinity", {})["podAffinity"] = {_REQUIRED: [term]}
                return POD_AFFINITY
            case "topology spread":
                spec["topologySpreadConstraints"] = [
                    {
                        "maxSkew": 1,
                        "topologyKey": "absent",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"odd": "yes"}},
                    }
                ]
                return SPREAD
            case _:
                claim = {"claimName": "absent"}
                spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
                return VOLUME

    def _one_in(self, times: int) -> bool:
        return self._random.randrange(times) == 0


def _line(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def runtime_classes(stem: str) -> list[Object]:
    """Return the classes of odd pods: the first adds overhead, the second a node selector."""
    return [
        {
            "metadata": {"name": f"{stem}-{OVERHEAD_CLASS}"},
            "handler": "sandbox",
            "overhead": {"podFixed": {"cpu": "300m", "memory": "256Mi"}},
        },
        {
            "metadata": {"name": f"{stem}-{STEERED_CLASS}"},
            "handler": "sandbox",
            "scheduling": {
                "nodeSelector": {"generation": "5"},
                "tolerations": [{"key": "spot", "operator": "Exists"}],
            },
        },
    ]
