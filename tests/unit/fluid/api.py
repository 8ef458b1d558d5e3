"""What the API server of a model cluster holds: raw jobs and pods, and who is shown each change."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jsonpatch

from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.new_pod import mutate_pod
from kfext.core.admission.review import Facts
from kfext.core.patches.json_patch import Operation
from kfext.model.job import TrainingJob, template_of
from kfext.model.namespace import Namespace
from kfext.model.pod import Pod, PodDemand, ReplicaKey, parse_demand, parse_pod
from kfext.names import JOB_NAME, MANAGED, REPLICA_INDEX, REPLICA_TYPE
from kfext.state.planner import Planner
from tests.builders import moment
from tests.unit.fluid.clock import Clock
from tests.unit.fluid.jobs import JobSpec
from tests.unit.fluid.live import LiveJob, LivePod
from tests.unit.fluid.training import Training

Raw = dict[str, Any]

TEAM = Namespace("team", labels={MANAGED: "true"})
_FACTS = Facts(namespace_labels={MANAGED: "true"}, controller_alive=True)


class Api:
    """Jobs and pods; kfext's mirror is shown each change at once.

    `on_job`, `on_pod`, `on_gone`: who else is.
    """

    def __init__(self, planner: Planner, clock: Clock) -> None:
        self.jobs: dict[str, LiveJob] = {}
        self.on_job: list[Callable[[LiveJob], None]] = []
        self.on_pod: list[Callable[[LivePod], None]] = []
        self.on_gone: list[Callable[[LivePod], None]] = []
        self._planner = planner
        self._clock = clock
        self._version = 0
        self._priorities: Mapping[str, int] = {}

    def show_to(self, planner: Planner) -> None:
        """Show all that follows to another planner."""
        self._planner = planner

    def set_priorities(self, priorities: Mapping[str, int]) -> None:
        """Set the value of each PriorityClass."""
        self._priorities = priorities

    # --- jobs -----------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, training: Training) -> LiveJob:
        """Have a job admitted; the operator has seen that it is suspended."""
        raw = spec.manifest()
        admitted = mutate_job(raw, _FACTS)
        assert not admitted.refusal, admitted.refusal
        raw = _patched(raw, list(admitted.ops))
        if raw["spec"]["runPolicy"].get("suspend"):
            raw["status"] = {"conditions": [self._condition("Suspended", "True")]}
        self._stamp(raw)
        job = self._shown(raw)
        live = self.jobs[spec.uid] = LiveJob(spec, raw, job, training, {})
        self._tell(live)
        return live

    def patch_job(self, uid: str, operations: list[Operation]) -> None:
        """Raises JsonPatchException if a test fails, and then changes nothing."""
        live = self.jobs[uid]
        self._put_job(live, _patched(live.raw, operations))

    def set_condition(self, live: LiveJob, type_: str, status: str) -> None:
        known = live.raw.get("status", {}).get("conditions", [])
        conditions = [one for one in known if one["type"] != type_]
        status_now = {"conditions": [*conditions, self._condition(type_, status)]}
        metadata = dict(live.raw["metadata"])
        self._put_job(live, {**live.raw, "metadata": metadata, "status": status_now})

    def _condition(self, type_: str, status: str) -> Raw:
        return {"type": type_, "status": status, "lastTransitionTime": moment(self._clock.wall)}

    def _put_job(self, live: LiveJob, raw: Raw) -> None:
        live.raw = self._stamp(raw)
        live.job = self._shown(raw)
        self._tell(live)

    def _shown(self, raw: Raw) -> TrainingJob:
        """Show kfext a job, and return what it reads: parsed once."""
        self._planner.cluster.observe_job(raw)
        return self._planner.cluster.jobs[raw["metadata"]["uid"]].job

    def _tell(self, live: LiveJob) -> None:
        for told in self.on_job:
            told(live)

    # --- pods -----------------------------------------------------------------------------------

    def create_pod(self, live: LiveJob, key: ReplicaKey) -> None:
        """Create a pod from the job's template as it is, and have it admitted."""
        group = next(one for one in live.job.groups if one.type.lower() == key.type)
        template = json.loads(json.dumps(template_of(live.job, live.raw, group)))
        spec = template["spec"]
        if name := spec.get("priorityClassName"):
            spec["priority"] = self._priorities[name]
        metadata = template.get("metadata", {})
        self._version += 1
        owner = {"apiVersion": "kubeflow.org/v1", "kind": live.job.kind.name, "uid": live.uid}
        index = str(key.index)
        labels = {JOB_NAME: live.job.name, REPLICA_TYPE: key.type, REPLICA_INDEX: index}
        metadata |= {
            "namespace": live.job.namespace,
            "name": f"{live.job.name}-{key.type}-{index}",
            "uid": f"pod-{self._version}",
            "creationTimestamp": moment(self._clock.wall),
            "labels": metadata.get("labels", {}) | labels,
            "ownerReferences": [{**owner, "controller": True}],
        }
        raw = {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        raw = _patched(raw, list(mutate_pod(raw, controller_alive=True).ops))
        self._stamp(raw)
        demand = _demand(json.dumps(raw["spec"]))
        pod = parse_pod(raw, demand=demand)
        made = live.pods[key] = LivePod(raw, pod, demand, live, key, self._version)
        self._planner.cluster.observe_pod(None, pod)
        for told in self.on_pod:
            told(made)

    def patch_pod(self, pod: Pod, operations: list[Operation]) -> bool:
        """Return whether the pod was still there, and as the patch tests. Only kfext patches."""
        live = self._find(pod)
        if live is None:
            return False
        try:
            raw = _patched(live.raw, operations)
        except jsonpatch.JsonPatchException:
            return False
        live.demand = _demand(json.dumps(raw["spec"]))
        self._put_pod(live, raw)
        return True

    def bind(self, live: LivePod, node: str) -> None:
        live.raw["spec"]["nodeName"] = node
        self._put_pod(live, live.raw)

    def set_phase(self, live: LivePod, phase: str, **status: Any) -> None:
        live.raw["status"] = {"phase": phase, **status}
        self._put_pod(live, live.raw)

    def mark_deleted(self, live: LivePod) -> None:
        live.raw["metadata"]["deletionTimestamp"] = moment(self._clock.wall)
        self._put_pod(live, live.raw)

    def remove_pod(self, live: LivePod) -> None:
        if live.job.pods.get(live.key) is not live:
            return
        del live.job.pods[live.key]
        self._planner.cluster.observe_pod(live.pod, None)
        for told in self.on_gone:
            told(live)

    def find(self, pod: Pod, *, unchanged: bool = False) -> LivePod | None:
        """Return a pod that kfext has seen, None if it is gone; `unchanged`: or has changed."""
        live = self._find(pod)
        same = live is not None and live.pod.resource_version == pod.resource_version
        return live if same or not unchanged else None

    def _find(self, pod: Pod) -> LivePod | None:
        job = self.jobs.get(pod.owner_uid)
        live = job.pods.get(pod.replica) if job and pod.replica else None
        return live if live and live.pod.uid == pod.uid else None

    def _put_pod(self, live: LivePod, raw: Raw) -> None:
        old = live.pod
        live.raw = self._stamp(raw)
        live.pod = parse_pod(raw, demand=live.demand)
        self._planner.cluster.observe_pod(old, live.pod)
        for told in self.on_pod:
            told(live)

    def _stamp(self, raw: Raw) -> Raw:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        return raw


@lru_cache(maxsize=4096)
def _demand(spec: str) -> PodDemand:
    """Return what a pod of a spec in JSON requires: most pods of a template agree in it."""
    return parse_demand(json.loads(spec), {})


def _patched(raw: Raw, operations: list[Operation]) -> Raw:
    copied: Raw = json.loads(json.dumps(raw))  # much faster than copy.deepcopy
    found: Raw = jsonpatch.apply_patch(copied, operations, in_place=True)
    return found
