"""Small builders of jobs, pods and nodes, as the API server would show them.

job().worker(replicas=7, gpus=8).held().build()
pod(some_job, "worker", 0, gated=True)
ledger(node("a", gpus=8), node("b"), used={"a": {"cpu": "3"}})
"""

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

from kfext import names
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.situation import Clocks, Situation
from kfext.core.placement.gang import Limits, Member, members_of
from kfext.core.settings.resolve import share_of
from kfext.core.settings.table import Settings
from kfext.core.settings.values import HIGH, LOW, Colocation
from kfext.model.gang_terms import GangTerm
from kfext.model.gpu import Place
from kfext.model.job import TrainingJob, parse_job, pod_labels, pod_name
from kfext.model.job_state import JobState, state_of
from kfext.model.kinds.registered import KINDS
from kfext.model.limit import Excluded, MaxNodes
from kfext.model.node import Node, parse_node
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey, parse_pod
from kfext.model.quantity import parse_resources
from kfext.state.planner.planner import Planner
from kfext.state.running.executor import Executor

Raw = dict[str, Any]

WITH_TEMPLATES = {name: kind for name, kind in KINDS.items() if not kind.rendered}
"""The kinds of jobs with templates of their own."""

ANY_SIZE: Raw = {"maxReplicas": 10_000, "maxRestarts": 100}
"""The elasticPolicy that lets the number of workers of a PyTorchJob change freely."""

PINNED = "requiredDuringSchedulingIgnoredDuringExecution"


def moment(seconds: float) -> str:
    """Epoch seconds as the API writes them."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def discovery(*names: str) -> Raw:
    """The API server's list of the resources of kubeflow.org/v1, if it serves these."""
    resources = [{"name": name, "namespaced": True} for name in names]
    return {"kind": "APIResourceList", "groupVersion": "kubeflow.org/v1", "resources": resources}


def requests(
    cpu: str | None = None, memory: str | None = None, gpus: int = 0, **more: str
) -> dict[str, str]:
    """A resource list."""
    result = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus) if gpus else None, **more}
    return {name: amount for name, amount in result.items() if amount is not None}


def extended(amounts: dict[str, str]) -> dict[str, str]:
    """The extended resources in a resource list."""
    return {name: amount for name, amount in amounts.items() if "/" in name}


E = TypeVar("E", bound=Executor)


class JobBuilder:
    """Builds a training job; each method returns the builder, but `build` and `members`."""

    def __init__(self, kind: str, name: str, uid: str) -> None:
        self.raw: Raw = {
            "apiVersion": "kubeflow.org/v1",
            "kind": kind,
            "metadata": {
                "namespace": "team",
                "name": name,
                "uid": uid,
                "resourceVersion": "1",
                "creationTimestamp": moment(0),
                "annotations": {},
                "labels": {},
            },
            "spec": {KINDS[kind].replica_specs: {}, "runPolicy": {}},
        }

    def group(
        self, type_: str, replicas: int = 1, *, spec: Raw | None = None, **amounts: Any
    ) -> Self:
        """Add a group of pods that request `amounts`.

        `cpu_limit`: the limit of CPU, by default the request; empty for no limit. Extended
        resources have a limit too, as the API server requires of pods.
        """
        guaranteed, host_ports = amounts.pop("guaranteed", False), amounts.pop("ports", ())
        cpu_limit = amounts.pop("cpu_limit", amounts.get("cpu", ""))
        resources: Raw = {"requests": requests(**amounts)}
        if guaranteed:
            resources["limits"] = resources["requests"]
        else:
            limits = {**extended(resources["requests"]), **requests(cpu=cpu_limit or None)}
            resources |= {"limits": limits} if limits else {}
        ports = [{"hostPort": port, "containerPort": port} for port in host_ports]
        container: Raw = {"name": "main", "resources": resources}
        if ports:
            container["ports"] = ports
        self.raw["spec"][KINDS[self.raw["kind"]].replica_specs][type_] = {
            "replicas": replicas,
            "template": {"spec": {"containers": [container], **(spec or {})}},
        }
        return self

    def worker(self, replicas: int = 1, **more: Any) -> Self:
        return self.group("Worker", replicas, **more)

    def master(self, **more: Any) -> Self:
        return self.group("Master", 1, **more)

    def ps(self, replicas: int = 1, **more: Any) -> Self:
        return self.group("PS", replicas, **more)

    def elastic(self, **policy: Any) -> Self:
        """Set the elasticPolicy; with ANY_SIZE, kfext can scale the job."""
        self.raw["spec"]["elasticPolicy"] = policy
        return self

    def annotated(self, key: str, value: str) -> Self:
        self.raw["metadata"]["annotations"][key] = value
        return self

    def prioritized(self, priority_class: str) -> Self:
        """Name a PriorityClass in all templates."""
        for replica in self.raw["spec"][KINDS[self.raw["kind"]].replica_specs].values():
            replica["template"]["spec"]["priorityClassName"] = priority_class
        return self

    def labelled(self, key: str, value: str) -> Self:
        self.raw["metadata"]["labels"][key] = value
        return self

    def suspended(self) -> Self:
        self.raw["spec"]["runPolicy"]["suspend"] = True
        return self

    def resumed(self) -> Self:
        self.raw["spec"]["runPolicy"]["suspend"] = False
        return self

    def held(self) -> Self:
        return self.suspended().annotated(names.HELD, "true")

    def released(self) -> Self:
        return self.annotated(names.RELEASED, names.REASON_BIND_TIMEOUT)

    def queued_by_kueue(self) -> Self:
        return self.labelled(names.KUEUE_QUEUE, "team-queue")

    def condition(self, type_: str, *, status: str = "True", since: float = 0) -> Self:
        conditions = self.raw.setdefault("status", {}).setdefault("conditions", [])
        conditions.append({"type": type_, "status": status, "lastTransitionTime": moment(since)})
        return self

    def version(self, number: int) -> Self:
        self.raw["metadata"]["resourceVersion"] = str(number)
        return self

    def created(self, seconds: float) -> Self:
        self.raw["metadata"]["creationTimestamp"] = moment(seconds)
        return self

    def deleting(self) -> Self:
        self.raw["metadata"]["deletionTimestamp"] = moment(1)
        return self

    def build(self) -> TrainingJob:
        built = parse_job(deepcopy(self.raw))
        assert built is not None
        return built

    def members(self) -> list[Member]:
        return members_of(self.build())


def job(kind: str = "PyTorchJob", *, name: str = "train", uid: str = "uid-1") -> JobBuilder:
    """A builder of a job that has no replicas yet."""
    return JobBuilder(kind, name, uid)


def raw_pod(
    owner_job: TrainingJob,
    type_: str,
    index: int,
    *,
    gated: bool = False,
    pinned: str = "",
    bound: str = "",
    gates: Iterable[str] = (),
    phase: str = "Pending",
    deleting: bool = False,
    unschedulable: str = "",
    spec: Mapping[str, Any] | None = None,
    version: int = 1,
    uid: str = "",
    owned: bool = True,
) -> Raw:
    """A pod as the training-operator creates it."""
    template, key = _template(owner_job, type_), ReplicaKey(type_, index)
    pod_spec: Raw = {**deepcopy(template), **deepcopy(dict(spec or {}))}
    all_gates = [*([names.GATE] if gated else []), *gates]
    if all_gates:
        pod_spec["schedulingGates"] = [{"name": gate} for gate in all_gates]
    if pinned:
        pod_spec["affinity"] = {**pod_spec.get("affinity", {}), **affinity_to(pinned)}
    if bound:
        pod_spec["nodeName"] = bound
    metadata: Raw = {
        "namespace": owner_job.namespace,
        "name": pod_name(owner_job, key),
        "uid": uid or f"{owner_job.uid}-{type_}-{index}",
        "resourceVersion": str(version),
        "labels": dict(pod_labels(owner_job, key)),
    }
    if owned:
        owner = {"kind": owner_job.kind.name, "uid": owner_job.uid, "controller": True}
        metadata["ownerReferences"] = [{"apiVersion": "kubeflow.org/v1", **owner}]
    if deleting:
        metadata["deletionTimestamp"] = moment(1)
    status: Raw = {"phase": phase}
    if unschedulable:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status["conditions"] = [{**condition, "message": unschedulable}]
    return {"kind": "Pod", "metadata": metadata, "spec": pod_spec, "status": status}


def state_in(written: str | None) -> JobState:
    """The state that kfext reads from the annotation `written` of the job that it names."""
    match = re.search(r'"uid": ?"([^"]+)"', written or "")
    annotations = {} if written is None else {names.STATE: written}
    return state_of(replace(job(uid=match[1] if match else "u").build(), annotations=annotations))


def pod(owner_job: TrainingJob, type_: str, index: int, **more: Any) -> Pod:
    """The pod of `raw_pod` as kfext parses it."""
    return parse_pod(raw_pod(owner_job, type_, index, **more))


def pods(job: TrainingJob, **more: Any) -> list[Pod]:
    """Every pod of a job, all in the same state."""
    return [pod(job, key.type, key.index, **more) for key, _ in job.replicas()]


def affinity_to(node_name: str) -> Raw:
    """A required node affinity to one node by name."""
    name = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    return {"nodeAffinity": {PINNED: {"nodeSelectorTerms": [{"matchFields": [name]}]}}}


def _template(job: TrainingJob, type_: str) -> Raw:
    """A pod spec with the requests of the job's template."""
    group = next(group for group in job.groups if group.type.lower() == type_)
    amounts = {
        name: f"{amount}m" if name == "cpu" else str(amount)
        for name, amount in group.requests.items()
        if name != "pods"
    }
    container: Raw = {"name": "main", "resources": {"requests": amounts}}
    cpu_limit = None if group.cpu_limit is None else f"{group.cpu_limit}m"
    if limits := {**extended(amounts), **requests(cpu=cpu_limit)}:
        container["resources"]["limits"] = limits
    if group.constraints.host_ports:
        container["ports"] = [
            {"hostPort": port, "containerPort": port} for _, port in group.constraints.host_ports
        ]
    claims = group.constraints.claims
    terms = apart(*group.constraints.apart)["affinity"]
    terms |= together(*group.constraints.together)["affinity"]
    return {
        "containers": [container],
        **(using(*claims) if claims else {}),
        **({"affinity": terms} if group.constraints.gang_terms else {}),
    }


def raw_node(
    name: str,
    *,
    cpu: str = "32",
    memory: str = "256Gi",
    gpus: int = 0,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
    cordoned: bool = False,
    **more: str,
) -> Raw:
    """A node; by default with ample CPU and memory, and no GPU."""
    allocatable = {**requests(cpu, memory, gpus, **more), "pods": str(pods)}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"name": name, names.HOSTNAME: name, **(labels or {})},
        },
        "spec": {"unschedulable": cordoned, "taints": [dict(taint) for taint in taints]},
        "status": {"allocatable": allocatable},
    }


def node(name: str, **more: Any) -> Node:
    """The node of `raw_node` as kfext parses it."""
    return parse_node(raw_node(name, **more))


def using(*claims: str) -> Raw:
    """The part of a pod spec that uses volume claims."""
    return {"volumes": [{"name": x, "persistentVolumeClaim": {"claimName": x}} for x in claims]}


def apart(*terms: GangTerm) -> Raw:
    """The part of a pod spec that has these terms as anti-affinity."""
    return {"affinity": {"podAntiAffinity": {PINNED: [_term(term) for term in terms]}}}


def together(*terms: GangTerm) -> Raw:
    """The part of a pod spec that has these terms as affinity."""
    return {"affinity": {"podAffinity": {PINNED: [_term(term) for term in terms]}}}


def _term(term: GangTerm) -> Raw:
    labels: list[Raw] = [{"key": names.JOB_NAME, "operator": "In", "values": [term.job]}]
    if term.types:
        labels.append({"key": names.REPLICA_TYPE, "operator": "In", "values": list(term.types)})
    return {"topologyKey": names.HOSTNAME, "labelSelector": {"matchExpressions": labels}}


def ledger(*nodes: Node, used: Mapping[str, Mapping[str, str]] | None = None) -> Ledger:
    """A ledger of nodes, with one other pod on each node of `used`."""
    ledger = Ledger(nodes)
    for name, amounts in (used or {}).items():
        taken = {**parse_resources(amounts), "pods": 1}
        ledger.claim(("other", name), Claim(node=name, requests=taken))
    return ledger


def limits(
    *,
    max_nodes: int | None = None,
    excluded: Iterable[str] = (),
    doubted: Iterable[str] = (),
    closed: Iterable[Place] = (),
    topology_keys: Iterable[str] = (),
    assumed_burst: int | None = None,
) -> Limits:
    """Limits that allow everything except these arguments."""
    on_number = [] if max_nodes is None else [MaxNodes(max_nodes)]
    names_ = frozenset(excluded)
    return Limits(
        on_nodes=(*on_number, *([Excluded(names_)] if names_ else [])),
        doubted=frozenset(doubted),
        closed=tuple(closed),
        topology_keys=tuple(topology_keys),
        assumed_burst=assumed_burst,
    )


def situation_of(
    job: TrainingJob,
    pods: tuple[Pod, ...] = (),
    plan: Plan | None = None,
    state: JobState | None = None,
    now: float = 1000.0,
    **more: Any,
) -> Situation:
    """A situation of a job; `more`: fields of Settings, Clocks or Situation.

    Its pods have waited as long as the job. The settings of GPUs are read from the job.
    """
    clocks = {key: more.pop(key) for key in list(more) if key in Clocks.__dataclass_fields__}
    waited = clocks.get("waited", 0.0)
    clocks.setdefault("unbound", {pod.uid: waited for pod in pods if not pod.node_name})
    if "colocation" in more:
        more["colocation"] = Colocation(more["colocation"])
    settings = {key: more.pop(key) for key in list(more) if key in Settings.__dataclass_fields__}
    if "gpu_share" not in settings and (share := share_of(job)):
        settings |= {"gpu_share": share.units, "gpu_priority": HIGH if share.high else LOW}
    return Situation(
        job,
        pods,
        plan,
        state or JobState(),
        now,
        settings=Settings(**settings),
        clocks=Clocks(**clocks),
        **more,
    )


def executor_of(planner: Planner, kind: type[E]) -> E:
    """Return an executor of the companion, once a job has asked for its kind of change."""
    executor = planner.companion.executors[kind.condition.type]
    assert isinstance(executor, kind)
    return executor
