"""Reads nodes, pods and jobs from the API server's JSON, for the checker."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from e2e.soak.facts import (
    DRAIN,
    NEW_NODES,
    OVER,
    PLACEHOLDER_OF,
    REFUSES,
    Cluster,
    Gang,
    Node,
    Object,
    Pod,
    amounts,
    granted,
    requests,
)

_LABEL = "training.kubeflow.org/replica-"
_OPERATOR = "kubeflow.org/training-operator"
_QUEUE = "kueue.x-k8s.io/queue-name"
_MANAGED = "kfext.dev/managed"


def node_of(raw: Object) -> Node:
    spec, metadata = raw.get("spec") or {}, raw["metadata"]
    taints = spec.get("taints") or ()
    closed = spec.get("unschedulable", False) or any(
        taint["effect"] != "PreferNoSchedule" for taint in taints
    )
    drains = (taint.get("value", "") for taint in taints if taint["key"] == DRAIN)
    created = metadata.get("creationTimestamp")
    status = raw.get("status", {})
    conditions = {
        condition["type"]: condition["status"] for condition in status.get("conditions", ())
    }
    return Node(
        name=metadata["name"],
        offers=amounts(status.get("allocatable")),
        labels=metadata.get("labels") or {},
        open=not closed,
        ready=conditions.get("Ready") == "True",
        drained=next(drains, None),
        created=datetime.fromisoformat(created).timestamp() if created else 0.0,
    )


def pod_of(raw: Object) -> Pod:
    metadata, spec = raw["metadata"], raw["spec"]
    owners = [
        owner["uid"] for owner in metadata.get("ownerReferences", ()) if owner.get("controller")
    ]
    labels = metadata.get("labels") or {}
    kind, index = labels.get(_LABEL + "type", ""), labels.get(_LABEL + "index", "")
    return Pod(
        uid=metadata["uid"],
        name=metadata["name"],
        namespace=metadata["namespace"],
        owner=owners[0] if owners else "",
        replica=(kind, int(index)) if index.isdigit() else ("", -1),
        node=spec.get("nodeName", ""),
        pins=_pins(spec),
        gates=frozenset(gate["name"] for gate in spec.get("schedulingGates", ())),
        ending="deletionTimestamp" in metadata,
        over=raw.get("status", {}).get("phase") in OVER,
        requested=requests(spec, raw.get("status")),
        granted=granted(spec, raw.get("status")),
        selector=spec.get("nodeSelector") or {},
        placeholder_of=labels.get(PLACEHOLDER_OF, "") if metadata["namespace"] == NEW_NODES else "",
    )


def preempted(event: Object) -> tuple[str, str]:
    """Return the uid of a preempted pod, and the uid of its preemptor."""
    return event["involvedObject"].get("uid", ""), (event.get("related") or {}).get("uid", "")


def gang_of(
    raw: Object, kind: str, pods: Iterable[Pod], view: Object | None, *, managed: bool
) -> Gang:
    """Return a job with its pods. `view`: the TrainingPlan; an earlier job's does not count."""
    metadata, spec = raw["metadata"], raw["spec"]
    policy, elastic = spec.get("runPolicy", {}), spec.get("elasticPolicy") or {}
    replicas = spec.get("pytorchReplicaSpecs") or spec.get("tfReplicaSpecs") or {}
    conditions = (raw.get("status") or {}).get("conditions") or ()
    is_current = view and view.get("spec", {}).get("job", {}).get("uid") == metadata["uid"]
    return Gang(
        uid=metadata["uid"],
        name=metadata["name"],
        namespace=metadata["namespace"],
        kind=kind,
        sizes={name.lower(): replica.get("replicas", 1) for name, replica in replicas.items()},
        templates={name.lower(): replica["template"]["spec"] for name, replica in replicas.items()},
        annotations=metadata.get("annotations") or {},
        suspended=policy.get("suspend") is True,
        ending="deletionTimestamp" in metadata,
        conditions={c["type"]: c.get("message", "") for c in conditions if c["status"] == "True"},
        pods=tuple(pods),
        view=(view or {}).get("status", {}) if is_current else {},
        managed=managed,
        operated=policy.get("managedBy", _OPERATOR) == _OPERATOR,
        kueue=_QUEUE in (metadata.get("labels") or {}),
        autoscaled=bool(elastic.get("metrics")),
        most_autoscaled=int(elastic.get("maxReplicas") or 0) if elastic.get("metrics") else 0,
        fewest=_fewest(spec, replicas),
    )


def _fewest(spec: Object, replicas: Object) -> int:
    """Return the fewest workers that can train; 0 means that all are needed."""
    if spec.get("elasticPolicy") is not None and "Master" not in replicas:
        return int(spec["elasticPolicy"].get("minReplicas", 1))
    return int(spec.get("enableDynamicWorker") is True and "PS" in replicas)


def cluster_of(
    *,
    at: float,
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    jobs: Iterable[tuple[str, Object]],
    views: Iterable[Object] = (),
    quotas: Iterable[Object] = (),
    namespaces: Iterable[Object] = (),
    preempted: Iterable[tuple[str, str]] = (),
) -> Cluster:
    """Combine nodes and pods with jobs (each with its kind) and other raw objects.

    A pod belongs to a job only in the job's namespace, whatever its owner reference says.
    """
    members = defaultdict(list)
    all_pods = tuple(pods)
    for pod in all_pods:
        members[pod.namespace, pod.owner].append(pod)
    labels = {
        namespace["metadata"]["name"]: namespace["metadata"].get("labels", {})
        for namespace in namespaces
    }
    managed = {name for name, known in labels.items() if known.get(_MANAGED) == "true"}
    by_name = {(view["metadata"]["namespace"], view["metadata"]["name"]): view for view in views}
    gangs = {}
    for kind, raw in jobs:
        metadata = raw["metadata"]
        view = by_name.get((metadata["namespace"], f"{kind.lower()}-{metadata['name']}"))
        pods_of_job = members[metadata["namespace"], metadata["uid"]]
        placed = metadata["namespace"] in managed
        gangs[metadata["uid"]] = gang_of(raw, kind, pods_of_job, view, managed=placed)
    return Cluster(
        at=at,
        nodes={node.name: node for node in nodes},
        pods=all_pods,
        gangs=gangs,
        limited=frozenset(quota["metadata"]["namespace"] for quota in quotas),
        refusing={name: known[REFUSES] for name, known in labels.items() if REFUSES in known},
        preempted=tuple(preempted),
    )


def _pins(spec: Object) -> frozenset[str]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    fields = [field for term in required.get("nodeSelectorTerms", ()) for field in _fields(term)]
    return frozenset(name for field in fields for name in field["values"])


def _fields(term: Object) -> list[Object]:
    return [field for field in term.get("matchFields", ()) if field["key"] == "metadata.name"]
