"""Random jobs that together use every field of a pod spec that kube-scheduler reads.

All random choices derive from one seed. A *term* changes the pod specs of all replica types of a
job. A hard term decides whether and where the pods can be bound; a mild term hardly does. Each job
has one hard term, in turn, and up to two mild terms, so that most jobs can be bound.
"""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.harness import odd_world
from e2e.harness.jobs import job, specs
from e2e.harness.kube import Object
from e2e.harness.odd_world import FILLER, JOB, World
from kfext.names import JOB_NAME

NAME = "odd"
"""The name of every odd job, which terms about its own pods select."""
ARM = "ARM"
"""The text in a manifest that stands for the namespace."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOSTNAME = "kubernetes.io/hostname"
_OWN = {JOB_NAME: NAME}

Specs = list[dict[str, Any]]
Term = Callable[[random.Random, Specs], None]
PREEMPTING, SHUNNED, DEVICES = "preemption", "anti-affinity of another pod", "devices"
LATE, EPHEMERAL = "a claim that is created later", "an ephemeral volume"
_EPHEMERAL = {
    "volumeClaimTemplate": {
        "spec": odd_world.claim_spec("ReadWriteOnce", f"{ARM}-{odd_world.LOCAL}")
    }
}
_SHAPES: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("PyTorchJob", {"Master": 1, "Worker": 1}),
    ("PyTorchJob", {"Master": 1, "Worker": 2}),
    ("PyTorchJob", {"Worker": 3}),
    ("TFJob", {"PS": 1, "Worker": 2}),
    ("TFJob", {"Chief": 1, "PS": 1, "Worker": 1}),
)


def _affinity(spec: Object, kind: str, when: str, term: Object) -> None:
    spec.setdefault("affinity", {}).setdefault(kind, {}).setdefault(when, []).append(term)


def _required(kind: str, labels: Mapping[str, str], *keys: str) -> Term:
    def change(draw: random.Random, pods: Specs) -> None:
        key = draw.choice(keys)
        term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": key}
        for spec in pods:
            _affinity(spec, kind, _REQUIRED, term)

    return change


def _preferred(kind: str) -> Term:
    def change(draw: random.Random, pods: Specs) -> None:
        labels = {"matchLabels": dict(draw.choice((_OWN, FILLER)))}
        term = {"labelSelector": labels, "topologyKey": draw.choice((_HOSTNAME, "zone"))}
        for spec in pods:
            _affinity(spec, kind, _PREFERRED, {"weight": 50, "podAffinityTerm": term})

    return change


def _spread(when: str) -> Term:
    def change(draw: random.Random, pods: Specs) -> None:
        constraint = {
            "maxSkew": draw.choice((1, 2)),
            "topologyKey": draw.choice((_HOSTNAME, "zone")),
            "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": _OWN},
        }
        for spec in pods:
            spec.setdefault("topologySpreadConstraints", []).append(constraint)

    return change


def _with_fields(**fields: Any) -> Term:
    def change(_: random.Random, pods: Specs) -> None:
        for spec in pods:
            spec.update(fields)

    return change


def _volume(**source: Any) -> Term:
    def change(_: random.Random, pods: Specs) -> None:
        for spec in pods:
            volumes = spec.setdefault("volumes", [])
            volumes.append({"name": f"volume-{len(volumes)}", **source})

    return change


def _claim(name: str) -> Term:
    return _volume(persistentVolumeClaim={"claimName": name})


def _node_affinity(draw: random.Random, pods: Specs) -> None:
    line = {"key": "zone", "operator": "In", "values": draw.sample("ab", draw.choice((1, 2)))}
    if draw.randrange(3) == 0:
        line = {"key": "disk", "operator": draw.choice(("Exists", "DoesNotExist"))}
        line["key"] = "disk" if line["operator"] == "Exists" else "absent"
    for spec in pods:
        terms = {"nodeSelectorTerms": [{"matchExpressions": [line]}]}
        spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})[_REQUIRED] = terms


def _node_preference(draw: random.Random, pods: Specs) -> None:
    line = {"key": "zone", "operator": "In", "values": [draw.choice("abc")]}
    term = {"weight": draw.randrange(1, 101), "preference": {"matchExpressions": [line]}}
    for spec in pods:
        _affinity(spec, "nodeAffinity", _PREFERRED, term)


def _priorities(draw: random.Random, pods: Specs) -> None:
    for number, spec in enumerate(draw.sample(pods, len(pods))):
        spec["priorityClassName"] = odd_world.HIGH if number == 0 else odd_world.MIDDLE


def _ports(draw: random.Random, pods: Specs) -> None:
    port = draw.randrange(8000, 9000)
    for spec in pods:
        ports = spec["containers"][0].setdefault("ports", [])
        ports.append({"name": "data", "containerPort": port, "hostPort": port})


def _init_containers(draw: random.Random, pods: Specs) -> None:
    for spec in pods:
        requests = {"cpu": f"{draw.choice((200, 1800))}m"}
        container = {"name": "before", "image": "none", "resources": {"requests": requests}}
        if draw.randrange(2):
            container["restartPolicy"] = "Always"
        spec["initContainers"] = [container]


def _resource_claims(_: random.Random, pods: Specs) -> None:
    for spec in pods:
        spec["resourceClaims"] = [
            {"name": odd_world.CARD, "resourceClaimTemplateName": odd_world.CARD}
        ]
        spec["containers"][0]["resources"]["claims"] = [{"name": odd_world.CARD}]


HARD: Mapping[str, Term] = {
    "anti-affinity to its own pods": _required("podAntiAffinity", _OWN, _HOSTNAME),
    "a hard spread": _spread("DoNotSchedule"),
    "a claim of one zone": _claim(odd_world.ZONAL),
    "a claim that waits for a pod": _claim(odd_world.LOCAL),
    "host ports": _ports,
    "affinity to its own pods": _required("podAffinity", _OWN, _HOSTNAME, "zone"),
    PREEMPTING: _with_fields(priorityClassName=odd_world.HIGH),
    DEVICES: _resource_claims,
    "priorities": _priorities,
    "required node affinity": _node_affinity,
    EPHEMERAL: _volume(ephemeral=_EPHEMERAL),
    "affinity to other pods": _required("podAffinity", FILLER, _HOSTNAME, "zone"),
    SHUNNED: _with_fields(),
    "a runtime class with a node selector": _with_fields(runtimeClassName=odd_world.STEERED),
    LATE: _claim(odd_world.LATE),
    "anti-affinity to other pods": _required("podAntiAffinity", FILLER, _HOSTNAME, "zone"),
    "a runtime class with overhead": _with_fields(runtimeClassName=odd_world.OVERHEAD),
    "a node selector": _with_fields(nodeSelector={"disk": "ssd"}),
    "a claim for every node": _claim(odd_world.SHARED),
    "nothing hard": _with_fields(),
}
ON_VOLUMES = frozenset(name for name in HARD if "claim" in name) | {EPHEMERAL}
MILD: Mapping[str, Term] = {
    "preferred affinity": _preferred("podAffinity"),
    "preferred anti-affinity": _preferred("podAntiAffinity"),
    "preferred node affinity": _node_preference,
    "a soft spread": _spread("ScheduleAnyway"),
    "a toleration": _with_fields(tolerations=[odd_world.DEDICATED]),
    "init containers and sidecars": _init_containers,
    "an empty volume": _volume(emptyDir={}),
    "a network volume": _volume(nfs={"server": "nfs.example.com", "path": "/"}),
}


@dataclass(frozen=True, slots=True)
class OddJob:
    """A job, and the world in which it is submitted.

    `asks`: the names of its terms. `late`: whether its claim is created after the job.
    """

    number: int
    asks: tuple[str, ...]
    world: World
    late: bool
    _manifest: Object = field(repr=False)

    def manifest(self, arm: str) -> Object:
        manifest: Object = json.loads(json.dumps(self._manifest).replace(ARM, arm))
        return manifest

    @property
    def kind(self) -> str:
        kind: str = self._manifest["kind"]
        return kind

    @property
    def pods(self) -> int:
        return sum(spec["replicas"] for spec in specs(self._manifest).values())


def odd_job(seed: int, number: int) -> OddJob:
    """Return job `number` of a seed; the same arguments always give the same job."""
    draw = random.Random(f"{seed}-{number}")
    kind, replicas = draw.choice(_SHAPES)
    each = {"cpu": f"{draw.choice((500, 1000, 1500))}m", "memory": f"{draw.choice((1, 2))}Gi"}
    if draw.randrange(4) == 0:
        each["nvidia.com/gpu"] = "1"
    manifest = job(NAME, replicas, kind=kind, each=each)
    hard = list(HARD)[number % len(HARD)]
    mild = draw.sample(list(MILD), draw.choice((0, 1, 1, 2)))
    templates = [spec["template"] for spec in specs(manifest).values()]
    for template in templates:
        template["metadata"] = {"labels": dict(JOB)}
    for change in (HARD[hard], *(MILD[name] for name in mild)):
        change(draw, [template["spec"] for template in templates])
    world = World(
        filled=True,
        crowded=hard == PREEMPTING,
        shunned=hard == SHUNNED,
        storage=hard in ON_VOLUMES,
        devices=hard == DEVICES,
    )
    return OddJob(number, (hard, *mild), world, hard == LATE, manifest)
