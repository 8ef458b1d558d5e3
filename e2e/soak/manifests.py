"""A random training job, and the other objects that the soak creates.

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
"""An edit of an annotation takes effect at kfext's next look, within 5 s; the other 5 s are for a
write in progress, and for a busy machine."""
_WORKER = "worker"
_MASTERS = ("master", "chief")
_MOST_CHANGES = 64
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
_FEW = 2
_SHARE_TRAIN_JOBS = 0.15
_SHARE_CONSENTING = 0.35
_SIZES = {1: 4, 2: 4, 3: 2, 4: 6, 6: 3, 8: 6, 10: 1, 12: 2, 20: 1}
_PART = {"cpu": "2", "memory": "4Gi"}
_MORE_WORKERS = 3
"""The range of an elastic job exceeds its requested size by at most this number."""
_ODDITIES: dict[str, Object] = {
    "gated": {"schedulingGates": [{"name": FOREIGN_GATE}]},
    "scheduler": {"schedulerName": "absent"},
    "selector": {"nodeSelector": {ZONE: "nowhere"}},
}
PINNED = ("plain", "huge", *_ODDITIES)


@dataclass(frozen=True, slots=True)
class Change:
    """kfext changed the number of workers of a running job, seen at `at`.

    `wished`: the numbers that people wanted then. `largest`: the highest number seen before.
    `unasked`: whether the job had opted out for long enough that kfext had to know. `overruled`:
    whether kfext had to leave the job alone since a person's edit. `unsaved`: the minimum time
    since its programs last saved their work, in seconds. `interrupts`: whether its programs restart
    for it, although kfext might wait for a checkpoint; it does not wait where it releases a job.
    `undoes`: whether it reverts part of the growth before it.
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
class _Seen:
    at: float
    workers: int
    by_hand: str
    suspended: bool
    opted_in: bool


@dataclass
class Sizes:
    """The sizes of jobs, and their changes, by uid of the job.

    `wished`: the numbers of workers that people want, as submitted or as last set. kfext cannot see
    an edit to the present number, so the earlier wish may hold as well. `changes`: changes by
    kfext, in the clusters' time; `done` counts them. `staying`: the pods, by their own uids, that
    such a change did not touch. `servers`: the number of pods of each other type since the job
    runs. `largest`: the most workers seen. `out_since`: since when the job is opted out.
    `left_alone`: jobs that kfext had resized when a person set another size: kfext must not touch
    them until they opt out or are suspended.
    """

    wished: dict[str, frozenset[int]] = field(default_factory=dict)
    changes: dict[str, deque[Change]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_MOST_CHANGES))
    )
    staying: dict[str, dict[str, Replica]] = field(default_factory=dict)
    servers: dict[str, Mapping[str, int]] = field(default_factory=dict)
    largest: dict[str, int] = field(default_factory=dict)
    out_since: dict[str, float] = field(default_factory=dict)
    left_alone: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    _last: dict[str, _Seen] = field(default_factory=dict)

    def see(self, gang: Gang, at: float, *, saved_at: float = 0.0) -> None:
        """Record the state of a job, and when its programs last saved their work."""
        by_hand = gang.annotations.get(BY_HAND, "")
        now = _Seen(at, workers_of(gang), by_hand, gang.suspended, has_opted_in(gang))
        before = self._last.get(gang.uid, now)
        self._last[gang.uid] = now
        self._take_choice(gang.uid, now, at)
        self._take_wish(gang, before, now)
        if gang.suspended or gang.over or gang.ending:
            self.staying.pop(gang.uid, None)
            self.servers.pop(gang.uid, None)
            # kfext may look only after the suspension, and reads the edit then.
            self.left_alone.discard(gang.uid)
        else:
            self.servers.setdefault(gang.uid, servers_of(gang))
            by_others = _edited(before, now) or _capped(gang, before, now)
            if now.workers != before.workers and not (by_others or before.suspended):
                # It may date from any time since the last look: under load, a long time.
                self._take_change(gang, before, now, at, unsaved=before.at - saved_at)
        self.largest[gang.uid] = max(now.workers, self.largest.get(gang.uid, 0))
        if gang.uid in self.staying:
            self.staying[gang.uid] = self._still_wanted(gang)

    def _take_choice(self, uid: str, now: _Seen, at: float) -> None:
        """Record whether a job has opted in."""
        if now.opted_in:
            self.out_since.pop(uid, None)
        else:
            self.out_since.setdefault(uid, at)
            self.left_alone.discard(uid)

    def _take_wish(self, gang: Gang, before: _Seen, now: _Seen) -> None:
        """Record the size that people want, and whether kfext must stop scaling the job.

        It must stop only if it had changed the size. A change that is merely planned is not seen.
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

    def _take_change(
        self, gang: Gang, before: _Seen, now: _Seen, at: float, *, unsaved: float
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
        """Return the pods that stay, without those beyond the job's present size."""
        return {
            uid: (kind, index)
            for uid, (kind, index) in self.staying[gang.uid].items()
            if index < gang.sizes.get(kind, 0)
        }


def workers_of(gang: Gang) -> int:
    """Return the number of workers of a job."""
    return gang.sizes.get(_WORKER, 0)


def servers_of(gang: Gang) -> dict[str, int]:
    """Return the number of pods of each type that is never scaled."""
    return {kind: count for kind, count in gang.sizes.items() if kind != _WORKER}


def allowed(gang: Gang) -> tuple[int, int] | None:
    """Return the fewest and the most workers that a job allows; None without a range.

    The annotation counts Master and Chief as well.
    """
    least, dash, most = gang.annotations.get(ELASTIC, "").partition("-")
    if not dash:
        return None
    masters = sum(gang.sizes.get(kind, 0) for kind in _MASTERS)
    return max(1, int(least) - masters), int(most) - masters


def has_opted_in(gang: Gang) -> bool:
    """Say whether kfext may scale a running job: it opted in, and nothing else scales it."""
    elsewhere = gang.kueue or gang.autoscaled or gang.released
    return gang.managed and gang.operated and not elsewhere and allowed(gang) is not None


def _capped(gang: Gang, before: _Seen, now: _Seen) -> bool:
    """Say whether a HorizontalPodAutoscaler reduced a job to its maximum."""
    return gang.autoscaled and now.workers == gang.most_autoscaled < before.workers


def _edited(before: _Seen, now: _Seen) -> bool:
    """Say whether a person has just set the present size of a job."""
    return now.by_hand != before.by_hand and now.by_hand == str(now.workers)


def random_job(dice: random.Random, name: str) -> Object:
    """Return a job of any kind and size, with any request or oddity of a real cluster."""
    (size,) = dice.choices(list(_SIZES), weights=list(_SIZES.values()))
    (each,) = dice.choices([shape for _, shape in _SHAPES], weights=[much for much, _ in _SHAPES])
    annotations = {}
    if (dice.random() < 0.35 and size <= 8) or dice.random() < 0.02:
        annotations["kfext.dev/colocation"] = "required"
    if dice.random() < _SHARE_CONSENTING:
        annotations[PREEMPT] = dice.choice(("checkpoint", "always"))
    if dice.random() < _SHARE_TRAIN_JOBS:
        zone = {ZONE: dice.choice(ZONES)}
        return train_job(dice, name, size=size, each=each, annotations=annotations, zone=zone)
    made = _kind(dice, name, size=size, each=each, annotations=annotations)
    policy = made["spec"]["runPolicy"]
    if dice.random() < 0.15:
        policy["activeDeadlineSeconds"] = dice.randint(20, 300)
    if dice.random() < 0.1:
        policy["schedulingPolicy"] = {"priorityClass": dice.choice(list(PRIORITIES))}
    if dice.random() < 0.2:
        _each_pod(made, priorityClassName=dice.choice(list(PRIORITIES)))
    if dice.random() < 0.08:
        _each_pod(made, schedulingGates=[{"name": FOREIGN_GATE}])
    if dice.random() < 0.1:
        _each_pod(made, affinity=_zones(dice.sample(ZONES, 2)))
    elif dice.random() < 0.08:
        term = "podAffinity" if dice.random() < 0.5 else "podAntiAffinity"
        _each_pod(made, affinity=_refused(term, "" if size <= _FEW else name))
    elif dice.random() < 0.1:
        _each_pod(made, nodeSelector={ZONE: dice.choice(ZONES)})
    return made


def _kind(
    dice: random.Random, name: str, *, size: int, each: Object, annotations: Object
) -> Object:
    if dice.random() < 0.7:
        replicas = {"Master": 1, "Worker": size - 1} if size > 1 else {"Master": 1}
        made = job(name, replicas, each=each, annotations=annotations)
        _perhaps_elastic(dice, made, size, share=0.15)
        return made
    parts = {"PS": dice.randint(1, 2), "Chief": 1} if size > 3 else {}
    replicas = {**parts, "Worker": max(1, size - sum(parts.values()))}
    made = job(name, replicas, kind="TFJob", each=each, annotations=annotations)
    made["spec"]["enableDynamicWorker"] = dice.random() < 0.7
    _perhaps_elastic(dice, made, size, share=0.8)
    if "PS" in parts:
        container = specs(made)["PS"]["template"]["spec"]["containers"][0]
        container["resources"] = {"requests": dict(_PART)}
    return made


def _perhaps_elastic(dice: random.Random, made: Object, size: int, *, share: float) -> None:
    """Have some jobs of several pods opt in to be scaled; PyTorchJobs then use torchrun.

    All may start smaller, so the requested size is recorded; admission makes a Master a worker.
    """
    if size < _FEW or dice.random() >= share:
        return
    least, most = dice.randint(1, size), size + dice.randint(0, _MORE_WORKERS)
    made["metadata"]["annotations"][ELASTIC] = f"{least}-{most}"
    if made["kind"] == "PyTorchJob":
        for replica in specs(made).values():
            (container,) = replica["template"]["spec"]["containers"]
            container["command"] = ["torchrun", "train.py"]
    workers = size if made["kind"] == "PyTorchJob" else specs(made)["Worker"]["replicas"]
    made["metadata"]["annotations"][BY_HAND] = str(workers)


def _each_pod(made: Object, **fields: Any) -> None:
    for replica in specs(made).values():
        replica["template"]["spec"].update(fields)


def _zones(zones: list[str]) -> Object:
    """Return two alternative terms; a pin must be added to both."""
    terms = [
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]} for zone in zones
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def _refused(kind: str, job: str) -> Object:
    """Return terms that make kube-scheduler refuse pods.

    With podAffinity it refuses all of them, as no pod has that label. With podAntiAffinity it
    accepts one on each node: one of the job, or one of any job if none is named. Such a pod keeps
    the pods of all jobs off its node, so large jobs must not have that term.
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
    """Return a pod without a job, for one node or for any; kube-scheduler places it."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec: Object = {"containers": [{"name": "main", "image": "none", "resources": resources}]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def pinned(name: str, node: str, how: str) -> Object:
    """Return a pod that a person pins as kfext does; only a `plain` pod can be bound."""
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
