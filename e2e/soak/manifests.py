"""Random training jobs, and the other objects that the soak creates.

`Sizes` records the sizes of jobs, the sizes that people wanted, and the changes by kfext.
"""

import random
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.harness.jobs import job, specs
from e2e.soak.facts import PREEMPT, Gang, Replica
from e2e.soak.train_jobs import train_job

ELASTIC = "kfext.dev/elastic"
BY_HAND = "soak.example.com/workers"
"""The soak's own annotation on a job: the last number of workers that a person set."""
HEEDED_SECONDS = 10.0
"""The time until kfext heeds an edit of an annotation: its next check is within 5 s; the other 5 s
are for a write in progress and for a busy machine."""
_WORKER = "worker"
_MASTERS = ("master", "chief")
_MAX_CHANGES = 64
Object = dict[str, Any]
FOREIGN_GATE = "soak.example.com/gate"
PRIORITIES = {"soak-low": -10, "soak-high": 10, "soak-urgent": 100}
_PREEMPTS = "soak-urgent"
ZONE = "soak.example.com/zone"
ZONES = ("a", "b", "c")
_JOB_NAME = "training.kubeflow.org/job-name"
_SHAPES: tuple[tuple[int, dict[str, str]], ...] = (
    (10, {"nvidia.com/gpu": "1", "cpu": "1", "memory": "4Gi"}),
    (3, {"nvidia.com/gpu": "2", "cpu": "2", "memory": "8Gi"}),
    (3, {"cpu": "4", "memory": "8Gi"}),
    (1, {"cpu": "500m", "memory": "100Gi"}),
    (2, {}),  # the defaults of its namespace's LimitRange, if it has one
)
_SEVERAL_PODS = 2
_TRAIN_JOB_PROBABILITY = 0.15
_PREEMPT_PROBABILITY = 0.35
_SIZES = {1: 4, 2: 4, 3: 2, 4: 6, 6: 3, 8: 6, 10: 1, 12: 2, 20: 1}
_SERVER_REQUESTS = {"cpu": "2", "memory": "4Gi"}
_MAX_EXTRA_WORKERS = 3
"""How many workers the range of an elastic job may exceed its requested size by."""
_ODDITIES: dict[str, Object] = {
    "gated": {"schedulingGates": [{"name": FOREIGN_GATE}]},
    "scheduler": {"schedulerName": "absent"},
    "selector": {"nodeSelector": {ZONE: "nowhere"}},
}
PINNED = ("plain", "huge", *_ODDITIES)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the number of workers of a running job by kfext, first seen at `at`.

    `wished`: the numbers that people wanted then. `largest`: the highest number seen before.
    `unasked`: whether the job had opted out for so long that kfext had to know. `overruled`:
    whether kfext had to leave the job alone after a person's edit. `unsaved`: the least number of
    seconds since the job's programs last saved their work. `interrupts`: whether its programs
    restart for the change, and kfext could have waited for a checkpoint; where kfext releases a
    job, it does not wait. `undoes`: whether it reverts some of the growth before it.
    """

    at: float
    before: int
    after: int
    wished: frozenset[int]
    largest: int
    unasked: bool
    overruled: bool
    unsaved: float
    interrupts: bool
    undoes: bool


@dataclass(frozen=True, slots=True)
class _State:
    at: float
    workers: int
    by_hand: str
    suspended: bool
    opted_in: bool


@dataclass
class Sizes:
    """The sizes of jobs and their changes, by uid of the job.

    `wished`: the numbers of workers that people want, as submitted or as last set. kfext cannot see
    an edit to the current number, so the earlier wish may hold as well. `changes`: changes by
    kfext, in the clusters' time; `done` counts them. `staying`: the pods, by uid, that the last
    such change did not touch. `servers`: the number of pods of each other type since the job runs.
    `largest`: the most workers seen. `out_since`: since when the job is opted out. `left_alone`:
    jobs that kfext had resized when a person set a different size; kfext must not scale them until
    they opt out or are suspended.
    """

    wished: dict[str, frozenset[int]] = field(default_factory=dict)
    changes: dict[str, deque[Change]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_MAX_CHANGES))
    )
    staying: dict[str, dict[str, Replica]] = field(default_factory=dict)
    servers: dict[str, Mapping[str, int]] = field(default_factory=dict)
    largest: dict[str, int] = field(default_factory=dict)
    out_since: dict[str, float] = field(default_factory=dict)
    left_alone: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    _last: dict[str, _State] = field(default_factory=dict)

    def record(self, gang: Gang, at: float, *, saved_at: float = 0.0) -> None:
        """Record the state of a job, and when its programs last saved their work."""
        by_hand = gang.annotations.get(BY_HAND, "")
        now = _State(at, workers_of(gang), by_hand, gang.suspended, has_opted_in(gang))
        before = self._last.get(gang.uid, now)
        self._last[gang.uid] = now
        self._record_choice(gang.uid, now, at)
        self._record_wish(gang, before, now)
        if gang.suspended or gang.over or gang.ending:
            self.staying.pop(gang.uid, None)
            self.servers.pop(gang.uid, None)
            # kfext may read the edit only after the suspension.
            self.left_alone.discard(gang.uid)
        else:
            self.servers.setdefault(gang.uid, servers_of(gang))
            by_others = _edited(before, now) or _capped(gang, before, now)
            if now.workers != before.workers and not (by_others or before.suspended):
                # It may date from any time since the last check: under load, a long time.
                self._record_change(gang, before, now, at, unsaved=before.at - saved_at)
        self.largest[gang.uid] = max(now.workers, self.largest.get(gang.uid, 0))
        if gang.uid in self.staying:
            self.staying[gang.uid] = self._still_wanted(gang)

    def _record_choice(self, uid: str, now: _State, at: float) -> None:
        if now.opted_in:
            self.out_since.pop(uid, None)
        else:
            self.out_since.setdefault(uid, at)
            self.left_alone.discard(uid)

    def _record_wish(self, gang: Gang, before: _State, now: _State) -> None:
        """Record the size that people want, and whether kfext must leave the job alone.

        It must do so only if it had changed the size. A merely planned change cannot be seen.
        """
        uid, wish = gang.uid, int(now.by_hand or now.workers)
        # Where no webhook ran, the Master of a PyTorchJob is no worker.
        alone = {now.workers} if gang.kind == "PyTorchJob" and gang.sizes.get("master") else set()
        known = self.wished.setdefault(uid, frozenset({wish} | alone))
        if now.by_hand == before.by_hand:
            return
        if before.workers == wish:
            self.wished[uid] = known | {wish}
            return
        self.wished[uid] = frozenset({wish})
        runs = not (before.suspended or now.suspended)
        scaled = before.opted_in and now.opted_in and before.workers not in known
        if _edited(before, now) and runs and scaled:
            self.left_alone.add(uid)

    def _record_change(
        self, gang: Gang, before: _State, now: _State, at: float, *, unsaved: float
    ) -> None:
        last = next(reversed(self.changes[gang.uid]), None)
        change = Change(
            at,
            before.workers,
            now.workers,
            wished=self.wished[gang.uid],
            largest=self.largest[gang.uid],
            unasked=at - self.out_since.get(gang.uid, at) > HEEDED_SECONDS,
            overruled=gang.uid in self.left_alone,
            unsaved=unsaved,
            interrupts=gang.kind == "PyTorchJob" and not gang.released,
            undoes=last is not None
            and last.after == before.workers
            and last.before <= now.workers < last.after,
        )
        self.changes[gang.uid].append(change)
        self.done["grown" if now.workers > before.workers else "shrunk"] += 1
        bound = (pod for pod in gang.live if pod.node and not pod.over)
        self.staying[gang.uid] = {pod.uid: pod.replica for pod in bound}

    def _still_wanted(self, gang: Gang) -> dict[str, Replica]:
        """Return the pods that stay, except pods beyond the job's current size."""
        return {
            uid: (kind, index)
            for uid, (kind, index) in self.staying[gang.uid].items()
            if index < gang.sizes.get(kind, 0)
        }


def workers_of(gang: Gang) -> int:
    return gang.sizes.get(_WORKER, 0)


def servers_of(gang: Gang) -> dict[str, int]:
    """Return the number of pods of each replica type that is never scaled."""
    return {kind: count for kind, count in gang.sizes.items() if kind != _WORKER}


def size_range(gang: Gang) -> tuple[int, int] | None:
    """Return the fewest and the most workers that a job allows; None means that it has no range.

    The annotation counts Master and Chief as workers; the result does not.
    """
    least, dash, most = gang.annotations.get(ELASTIC, "").partition("-")
    if not dash:
        return None
    masters = sum(gang.sizes.get(kind, 0) for kind in _MASTERS)
    return max(1, int(least) - masters), int(most) - masters


def has_opted_in(gang: Gang) -> bool:
    """Return whether kfext may scale a running job: it opted in, and nothing else scales it."""
    scaled_by_others = gang.kueue or gang.autoscaled or gang.released
    return gang.managed and gang.operated and not scaled_by_others and size_range(gang) is not None


def _capped(gang: Gang, before: _State, now: _State) -> bool:
    """Return whether a HorizontalPodAutoscaler reduced a job to its maximum."""
    return gang.autoscaled and now.workers == gang.most_autoscaled < before.workers


def _edited(before: _State, now: _State) -> bool:
    """Return whether a person has just set the current size of a job."""
    return now.by_hand != before.by_hand and now.by_hand == str(now.workers)


def random_job(dice: random.Random, name: str) -> Object:
    """Return a job of any kind and size, with any request or oddity of a real cluster."""
    (size,) = dice.choices(list(_SIZES), weights=list(_SIZES.values()))
    (requests,) = dice.choices(
        [shape for _, shape in _SHAPES], weights=[weight for weight, _ in _SHAPES]
    )
    annotations = {}
    if (dice.random() < 0.35 and size <= 8) or dice.random() < 0.02:
        annotations["kfext.dev/colocation"] = "required"
    if dice.random() < _PREEMPT_PROBABILITY:
        annotations[PREEMPT] = dice.choice(("checkpoint", "always"))
    if dice.random() < _TRAIN_JOB_PROBABILITY:
        zone = {ZONE: dice.choice(ZONES)}
        return train_job(dice, name, size=size, each=requests, annotations=annotations, zone=zone)
    manifest = _kubeflow_job(dice, name, size=size, requests=requests, annotations=annotations)
    policy = manifest["spec"]["runPolicy"]
    if dice.random() < 0.15:
        policy["activeDeadlineSeconds"] = dice.randint(20, 300)
    if dice.random() < 0.1:
        policy["schedulingPolicy"] = {"priorityClass": dice.choice(list(PRIORITIES))}
    if dice.random() < 0.2:
        _set_in_each_pod(manifest, priorityClassName=dice.choice(list(PRIORITIES)))
    if dice.random() < 0.08:
        _set_in_each_pod(manifest, schedulingGates=[{"name": FOREIGN_GATE}])
    if dice.random() < 0.1:
        _set_in_each_pod(manifest, affinity=_zones(dice.sample(ZONES, 2)))
    elif dice.random() < 0.08:
        term = "podAffinity" if dice.random() < 0.5 else "podAntiAffinity"
        _set_in_each_pod(
            manifest, affinity=_refusing_affinity(term, "" if size <= _SEVERAL_PODS else name)
        )
    elif dice.random() < 0.1:
        _set_in_each_pod(manifest, nodeSelector={ZONE: dice.choice(ZONES)})
    return manifest


def _kubeflow_job(
    dice: random.Random, name: str, *, size: int, requests: Object, annotations: Object
) -> Object:
    if dice.random() < 0.7:
        replicas = {"Master": 1, "Worker": size - 1} if size > 1 else {"Master": 1}
        manifest = job(name, replicas, each=requests, annotations=annotations)
        _perhaps_elastic(dice, manifest, size, probability=0.15)
        return manifest
    other_types = {"PS": dice.randint(1, 2), "Chief": 1} if size > 3 else {}
    replicas = {**other_types, "Worker": max(1, size - sum(other_types.values()))}
    manifest = job(name, replicas, kind="TFJob", each=requests, annotations=annotations)
    manifest["spec"]["enableDynamicWorker"] = dice.random() < 0.7
    _perhaps_elastic(dice, manifest, size, probability=0.8)
    if "PS" in other_types:
        container = specs(manifest)["PS"]["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": dict(_SERVER_REQUESTS)}
    return manifest


def _perhaps_elastic(
    dice: random.Random, manifest: Object, size: int, *, probability: float
) -> None:
    """Opt a job of several pods in to be scaled, with a probability; PyTorchJobs then use torchrun.

    Elastic jobs may start smaller, so the requested size is recorded; admission makes a Master a
    worker.
    """
    if size < _SEVERAL_PODS or dice.random() >= probability:
        return
    least, most = dice.randint(1, size), size + dice.randint(0, _MAX_EXTRA_WORKERS)
    manifest["metadata"]["annotations"][ELASTIC] = f"{least}-{most}"
    if manifest["kind"] == "PyTorchJob":
        for replica in specs(manifest).values():
            (container,) = replica["template"]["spec"]["containers"]
            container["command"] = ["torchrun", "train.py"]
    workers = size if manifest["kind"] == "PyTorchJob" else specs(manifest)["Worker"]["replicas"]
    manifest["metadata"]["annotations"][BY_HAND] = str(workers)


def _set_in_each_pod(manifest: Object, **fields: Any) -> None:
    for replica in specs(manifest).values():
        replica["template"]["spec"].update(fields)


def _zones(zones: list[str]) -> Object:
    """Return a required node affinity of alternative terms, so that a pin must be added to each."""
    terms = [
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]} for zone in zones
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def _refusing_affinity(kind: str, job: str) -> Object:
    """Return an affinity that makes kube-scheduler refuse pods. `job`: empty means any job.

    With podAffinity it refuses all pods, as no pod has that label. With podAntiAffinity it accepts
    one pod of the job on each node. Without a job, such a pod keeps the pods of all jobs off its
    node, so large jobs must name themselves.
    """
    if kind == "podAffinity":
        expression: Object = {"key": "soak.example.com/absent", "operator": "Exists"}
    elif job:
        expression = {"key": _JOB_NAME, "operator": "In", "values": [job]}
    else:
        expression = {"key": _JOB_NAME, "operator": "Exists"}
    selector = {"matchExpressions": [expression]}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def thief(name: str, node: str, gpus: int) -> Object:
    """Return a pod without a job that uses GPUs. `node`: empty means any node."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec: Object = {"containers": [{"name": "main", "image": "none", "resources": resources}]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def pinned_pod(name: str, node: str, how: str) -> Object:
    """Return a pod that a person pins as kfext would; only a `plain` pod can be bound."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    cpu = "1000" if how == "huge" else "1"
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    spec: Object = {"containers": [container], "affinity": affinity, **_ODDITIES.get(how, {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def limit_range(cpu: str, memory: str) -> Object:
    """Return a LimitRange with the default request and limit of containers."""
    amounts = {"cpu": cpu, "memory": memory}
    limit = {"type": "Container", "default": amounts, "defaultRequest": amounts}
    metadata = {"name": "soak"}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata,
        "spec": {"limits": [limit]},
    }


def priority_class(name: str) -> Object:
    """Return a PriorityClass; only the pods of the urgent class preempt others."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": PRIORITIES[name],
        "preemptionPolicy": "PreemptLowerPriority" if name == _PREEMPTS else "Never",
    }
