"""The cluster as the checker sees it: nodes, pods and gangs as values, which `reading` builds.

Pod requests and node capacity are computed from the raw JSON, as Kubernetes computes them.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

_Json = Mapping[str, Any]
Amounts = dict[str, Fraction]

_UNITS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}
Object = dict[str, Any]
Replica = tuple[str, int]
GATE = "kfext.dev/placement"
HELD, PLAN, STATE = "kfext.dev/held", "kfext.dev/plan", "kfext.dev/state"
RELEASED, COLOCATION = "kfext.dev/released", "kfext.dev/colocation"
BY_PERSON = "soak.example.com/by-person"
"""The soak's own annotation on a job that a person suspended: `SUSPENDED`, later `RESUMED`."""
SUSPENDED, RESUMED = "suspended", "resumed"
FORGED = "soak.example.com/forged"
"""The soak's own annotation on a job of a tenant who probes kfext."""
REFUSES = "soak.example.com/refuses"
"""The soak's own label on a namespace; its value names the writes that the API server refuses."""
WRITE_REFUSED = "WriteRefused"
RUNNING_CHANGES = {"AwaitsCheckpoint", "Rescaling"}
"""The reasons of the condition Scaled while kfext changes the size of a job."""
PREEMPT = "kfext.dev/preempt"
DRAIN, BY_FORCE = "kfext.dev/drain", "force"
NEW_NODES, PLACEHOLDER_OF = "kfext-nodes", "kfext.dev/placeholder-of"
POOL = "karpenter.sh/nodepool"
"""The label of nodes that the soak's autoscaler has added."""
OVER = {"Succeeded", "Failed"}


@lru_cache(maxsize=4096)
def amount(text: str) -> Fraction:
    """Return a Kubernetes quantity, e.g. `100m`, `4Gi`, `2`. Raises ValueError."""
    digits = text.rstrip("numkKMGTPEi")
    return Fraction(digits) * _UNITS[text[len(digits) :]]


def amounts(resources: _Json | None) -> Amounts:
    return {name: amount(str(text)) for name, text in (resources or {}).items()}


def requests(spec: _Json, status: _Json | None = None) -> Amounts:
    """Return the resources that a pod occupies on its node, including 1 of `pods`.

    For each resource, this is the larger of two sums, plus the overhead: its containers and
    sidecars; or the largest init container with the sidecars started before it. While a container
    is resized, it counts with the larger of its request and the size that its kubelet reports.
    """
    return _occupied(spec, status, larger)


def granted(spec: _Json, status: _Json | None = None) -> Amounts:
    """Return the resources granted to a pod; while a container is resized, as kubelet reports."""
    return _occupied(
        spec, status, lambda requested_, granted_amounts: granted_amounts or requested_
    )


def _occupied(
    spec: _Json, status: _Json | None, combine: Callable[[Amounts, Amounts], Amounts]
) -> Amounts:
    """Return the resources of a pod; `combine`: of a container's request and granted size."""
    statuses = (status or {}).get("containerStatuses", ())
    sizes = {
        entry["name"]: amounts((entry.get("resources") or {}).get("requests")) for entry in statuses
    }
    main = (
        combine(_requests(container), sizes.get(container.get("name"), {}))
        for container in spec.get("containers", ())
    )
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers", ()):
        container_requests = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = total((sidecars, container_requests))
            container_requests = {}
        peak = larger(peak, total((container_requests, sidecars)))
    running = total((sidecars, *main))
    sum_ = total((larger(peak, running), amounts(spec.get("overhead"))))
    return {**sum_, "pods": Fraction(1)}


def total(many: Iterable[Mapping[str, Fraction]]) -> Amounts:
    added: Amounts = {}
    for amounts_ in many:
        for name, number in amounts_.items():
            added[name] = added.get(name, Fraction(0)) + number
    return added


def larger(left: Mapping[str, Fraction], right: Mapping[str, Fraction]) -> Amounts:
    zero = Fraction(0)
    return {name: max(left.get(name, zero), right.get(name, zero)) for name in {*left, *right}}


def times(amount: Mapping[str, Fraction], number: int) -> Amounts:
    return {name: number_ * number for name, number_ in amount.items()}


def excess(wanted: Mapping[str, Fraction], offered: Mapping[str, Fraction]) -> Amounts:
    """Return the positive differences between wanted and offered amounts."""
    zero = Fraction(0)
    over = {name: number - offered.get(name, zero) for name, number in wanted.items()}
    return {name: number for name, number in over.items() if number > 0}


def _requests(container: _Json) -> Amounts:
    resources = container.get("resources") or {}
    # A resource with a limit and no request is requested in the amount of the limit.
    return amounts({**resources.get("limits", {}), **resources.get("requests", {})})


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `open`: whether pods without tolerations may start there. `ready`: its condition.

    `offers`: its allocatable amounts. `drained`: the value of the taint of a drain; None means that
    it is not drained. `created`: in epoch seconds.
    """

    name: str
    offers: Amounts
    labels: Mapping[str, str]
    open: bool
    ready: bool
    drained: str | None = None
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. `pins`: the nodes that its required affinity names. `ending`: it is being deleted.

    `over`: it succeeded or failed. `requested`: the resources that it occupies for kube-scheduler.
    `granted`: the resources that its kubelet granted, fewer while it grows in place.
    `placeholder_of`: the uid of the job that asks for nodes with this placeholder.
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
    requested: Amounts
    granted: Amounts
    selector: Mapping[str, str]
    placeholder_of: str = ""

    @property
    def gated(self) -> bool:
        return GATE in self.gates

    @property
    def home(self) -> str:
        """The node that it is bound or pinned to; empty if it has none yet."""
        pinned = "" if self.gates or len(self.pins) != 1 else next(iter(self.pins))
        return self.node or pinned


@dataclass(frozen=True, slots=True)
class Gang:
    """A job with its pods (terminating pods included) and its TrainingPlan's status.

    `managed`: its namespace is managed. `operated`: the training-operator runs it. `kueue`: it has
    Kueue's label, so kfext may not suspend it. `autoscaled`: a HorizontalPodAutoscaler scales it to
    at most `most_autoscaled` workers, whatever a person sets. `fewest`: the fewest workers that
    can train; 0 means that all are needed.
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
    most_autoscaled: int = 0
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
        return tuple(pod for pod in self.pods if not pod.ending)

    @property
    def handled(self) -> bool:
        """Whether kfext handles the job now: after its first mark, until it is released or ends."""
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
        return any(pod.gates - {GATE} for pod in self.live)

    @property
    def escaped(self) -> bool:
        """Whether a pod started without kfext: neither gated nor pinned."""
        return any(not pod.gated and not pod.pins for pod in self.live)

    @property
    def plan(self) -> dict[Replica, str]:
        """The node of each replica in the plan on the job; empty if the job has no valid plan.

        A plan on a job that kfext must not place does not count.
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
        return _decoded(self.annotations.get(STATE))

    @property
    def asked_since(self) -> float:
        """Since when it asks the autoscaler for nodes, in epoch seconds; infinity: it does not."""
        ask = self.state.get("ask") if self.handled else None
        return (ask.get("since") or math.inf) if isinstance(ask, dict) else math.inf

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster at a time `at`, in seconds in which kfext was at work.

    `limited`: the namespaces with a ResourceQuota. `refusing`: the namespaces where the API server
    refuses some writes, with the kind of write. `saved_at`: when all programs last printed a
    checkpoint. `preempted`: the uid of each preempted pod, with the uid of its preemptor.
    """

    at: float
    nodes: Mapping[str, Node]
    pods: tuple[Pod, ...]
    gangs: Mapping[str, Gang]
    limited: frozenset[str] = field(default_factory=frozenset)
    refusing: Mapping[str, str] = field(default_factory=dict)
    saved_at: float = 0.0
    preempted: tuple[tuple[str, str], ...] = ()

    def home(self, pod: Pod) -> str:
        """Return the node on which kfext must hold capacity for a pod; empty if there is none.

        A foreign pin holds nothing: kube-scheduler binds the pod within a moment, or refuses it for
        an unknown time. A placeholder takes no capacity from jobs.
        """
        if pod.placeholder_of:
            return ""
        gang = self.gangs.get(pod.owner)
        handled = gang is not None and gang.managed and pod in gang.pods
        return pod.home if handled else pod.node


def _decoded(written: str | None) -> Object:
    """Return the decoded value of an annotation; empty if it is no JSON object."""
    try:
        value = json.loads(written) if written else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
