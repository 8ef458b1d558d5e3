"""The cluster as the checker sees it: nodes, pods and gangs, as values; `reading` makes them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.soak.amounts import Amounts

Object = dict[str, Any]
Replica = tuple[str, int]

GATE = "kfext.dev/placement"
HELD, PLAN, STATE = "kfext.dev/held", "kfext.dev/plan", "kfext.dev/state"
RELEASED, COLOCATION = "kfext.dev/released", "kfext.dev/colocation"
BY_PERSON = "soak.example.com/by-person"
"""The soak's own annotation on a job that a person has SUSPENDED, or resumed since."""
SUSPENDED, RESUMED = "suspended", "resumed"
FORGED = "soak.example.com/forged"
"""The soak's own annotation on a job of a tenant who tries things."""
REFUSES = "soak.example.com/refuses"
"""The soak's own label on a namespace in which the API server refuses some writes; says which."""
WRITE_REFUSED = "WriteRefused"
RUNNING_CHANGES = {"AwaitsCheckpoint", "Rescaling"}
"""Reasons of the condition Scaled while kfext changes the size of a job."""
OVER = {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class Node:
    """A node; `open` says that a pod without tolerations may start there, `ready` its kubelet."""

    name: str
    offers: Amounts
    labels: Mapping[str, str]
    open: bool
    ready: bool


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; `pins` are the nodes that its required affinity names, `ending` is its deletion.

    `asks` is what it occupies for kube-scheduler, `has` what its kubelet has granted: less, while
    it asks for more in place.
    """

    uid: str
    name: str
    namespace: str
    owner: str
    replica: Replica
    node: str
    pins: frozenset[str]
    gates: frozenset[str]
    ending: bool
    over: bool
    asks: Amounts
    has: Amounts
    selector: Mapping[str, str]

    @property
    def gated(self) -> bool:
        """Whether our gate holds it."""
        return GATE in self.gates

    @property
    def home(self) -> str:
        """The node it has or will have, whatever kube-scheduler thinks; empty while it is open."""
        pinned = "" if self.gates or len(self.pins) != 1 else next(iter(self.pins))
        return self.node or pinned


@dataclass(frozen=True, slots=True)
class Gang:
    """A job with its pods (terminating ones included) and its TrainingPlan's status.

    `managed`: whether its namespace is opted in, `operated` whether the operator runs it, `kueue`
    whether it bears Kueue's label, so that kfext may not suspend it, `autoscaled` whether a
    HorizontalPodAutoscaler scales it. `fewest`: with how few workers it trains, 0 if only whole.
    """

    uid: str
    name: str
    namespace: str
    kind: str
    sizes: Mapping[str, int]
    templates: Mapping[str, Object]
    annotations: Mapping[str, str]
    suspended: bool
    ending: bool
    conditions: Mapping[str, str]
    pods: tuple[Pod, ...]
    view: Object
    managed: bool = True
    operated: bool = True
    kueue: bool = False
    autoscaled: bool = False
    fewest: int = 0

    @property
    def size(self) -> int:
        return sum(self.sizes.values())

    @property
    def over(self) -> bool:
        return not OVER.isdisjoint(self.conditions)

    @property
    def held(self) -> bool:
        return HELD in self.annotations

    @property
    def live(self) -> tuple[Pod, ...]:
        """Its pods that are not being deleted."""
        return tuple(pod for pod in self.pods if not pod.ending)

    @property
    def handled(self) -> bool:
        """Whether kfext has the job in hand: not before, nor after it let go, nor at its end.

        It has none in a namespace that is not opted in, whatever is written there.
        """
        if not (self.managed and self.operated):
            return False
        marked = self.held or PLAN in self.annotations or STATE in self.annotations
        touched = any(pod.gated or pod.pins for pod in self.live)
        return (marked or touched) and not (self.over or self.ending or self.released)

    @property
    def released(self) -> bool:
        return RELEASED in self.annotations

    @property
    def foreign(self) -> bool:
        """Whether another system's gate holds a pod."""
        return any(pod.gates - {GATE} for pod in self.live)

    @property
    def escaped(self) -> bool:
        """Whether a pod started without us: neither gated nor pinned."""
        return any(not pod.gated and not pod.pins for pod in self.live)

    @property
    def plan(self) -> dict[Replica, str]:
        """The node of each replica in the plan that is written on the job; empty without one.

        Nobody is to believe a plan on a job that kfext must not place.
        """
        if not (self.managed and self.operated):
            return {}
        written = _decoded(self.annotations.get(PLAN))
        if written.get("uid") != self.uid:
            return {}
        return {
            (kind, index): written["nodes"][place]
            for kind, places in written["replicas"].items()
            for index, place in enumerate(places)
            if place >= 0
        }

    @property
    def state(self) -> Object:
        """What kfext remembers of the job."""
        return _decoded(self.annotations.get(STATE))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything at one time. `at` counts seconds in which kfext was there to work.

    `limited`: the namespaces with a ResourceQuota; `refusing`: those in which the API server
    refuses something, by what it is. `saved_at`: when all programs last printed a checkpoint.
    """

    at: float
    nodes: Mapping[str, Node]
    pods: tuple[Pod, ...]
    gangs: Mapping[str, Gang]
    limited: frozenset[str] = field(default_factory=frozenset)
    refusing: Mapping[str, str] = field(default_factory=dict)
    saved_at: float = 0.0

    def home(self, pod: Pod) -> str:
        """Return the node on which kfext must leave room for a pod, empty if on none.

        A pin that is not of kfext keeps nobody waiting: kube-scheduler carries it out within a
        moment, or it refuses the pod, and nobody knows for how long.
        """
        gang = self.gangs.get(pod.owner)
        ours = gang is not None and gang.managed and pod in gang.pods
        return pod.home if ours else pod.node


def _decoded(written: str | None) -> Object:
    """Return what an annotation says, nothing if it makes no sense: anybody may have written it."""
    try:
        found = json.loads(written) if written else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
