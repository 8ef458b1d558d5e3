"""The API server of a simulated cluster: jobs, pods, and the listeners for changes."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.new_pod import mutate_pod
from kfext.core.admission.review import ReviewContext
from kfext.core.patches.json_patch import Operation, patched
from kfext.core.patches.pod import Body
from kfext.errors import Conflict, NotFound
from kfext.model.job import TrainingJob, parse_job, pod_labels, pod_name, template_of
from kfext.model.namespace import Namespace
from kfext.model.pod import Pod, PodDemand, ReplicaKey, controller_of, parse_demand, parse_pod
from kfext.model.rendered import parse_rendered
from kfext.model.timestamps import written_time
from kfext.names import MANAGED
from kfext.sim.clock import EPOCH, Clock
from kfext.sim.jobs import JobSpec
from kfext.sim.objects import LiveJob, LivePod, Raw, copied
from kfext.sim.training import Training
from kfext.state.planner.planner import Planner

TEAM = Namespace("team", labels={MANAGED: "true"})
"""The usual namespace of jobs; all others are copies of it."""
_CONTEXT = ReviewContext(namespace=TEAM, controller_alive=True)


def by_kfext(raw: Raw) -> Raw:
    """Return a job or pod as kfext's webhooks admit it."""
    if raw["kind"] == "Pod":
        admitted = mutate_pod(raw, controller_alive=True)
    else:
        admitted = mutate_job(raw, _CONTEXT)
    assert not admitted.refusal, admitted.refusal
    after: Raw = patched(raw, admitted.ops)
    return after


class ApiServer:
    """Jobs and pods; the mirror of `planner` sees each change at once.

    `on_job`, `on_pod`: called after a job or pod has changed. `on_gone`: after a pod was removed.
    `on_deletion`: called before kfext deletes a pod.
    `on_resize`: called after the resources of a pod have changed.
    `priorities`: PriorityClass -> its value.
    `admit`: returns a job or pod after admission. `version`: grows with each change.
    """

    def __init__(self, planner: Planner, clock: Clock) -> None:
        self.jobs: dict[str, LiveJob] = {}
        self.on_job: list[Callable[[LiveJob], None]] = []
        self.on_pod: list[Callable[[LivePod], None]] = []
        self.on_gone: list[Callable[[LivePod], None]] = []
        self.on_deletion: list[Callable[[LivePod], None]] = []
        self.on_resize: list[Callable[[LivePod], None]] = []
        self.priorities: Mapping[str, int] = {}
        self.admit: Callable[[Raw], Raw] = by_kfext
        self.version = 0
        self._planner = planner
        self._clock = clock

    def show_to(self, planner: Planner) -> None:
        """Show all objects, and all changes from now on, to another planner."""
        self._planner = planner
        for live in self.jobs.values():
            for pod in live.pods.values():
                planner.cluster.observe_pod(None, pod.pod)
            planner.cluster.observe_job(live.raw)
            self._render(live)

    # --- jobs -------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, training: Training) -> LiveJob:
        """Admit and create a job; if it is suspended, its operator has already confirmed that."""
        raw = self.admit(spec.manifest(created=written_time(EPOCH + spec.arrives)))
        if (admitted := parse_job(raw)) is not None and admitted.suspend:
            raw["status"] = {"conditions": [self._condition("Suspended", "True")]}
        else:
            raw["status"] = {"startTime": written_time(self._clock.wall)}
        rendered = spec.rendered(raw)
        if rendered is not None:
            self._planner.cluster.observe_rendered(None, parse_rendered(rendered))
        job = self._show(self._stamp(raw))
        live = self.jobs[spec.uid] = LiveJob(spec, raw, job, training, rendered=rendered)
        self._notify(live)
        return live

    def patch_job(self, uid: str, operations: list[Operation]) -> None:
        """Patch a job. Raises Conflict if a test fails; then nothing is changed."""
        live = self.jobs[uid]
        self._put_job(live, patched(live.raw, operations))

    def delete_job(self, live: LiveJob) -> None:
        """Delete a job and, at once, its pods."""
        for pod in list(live.pods.values()):
            self.remove_pod(pod)
        del self.jobs[live.uid]
        self._planner.cluster.forget_job(live.uid)

    def set_condition(self, live: LiveJob, type_: str, status: str) -> None:
        """Set a condition in the status of a job; a resumed job gets a new startTime."""
        before = live.raw.get("status", {})
        others = [item for item in before.get("conditions", []) if item["type"] != type_]
        after = {**before, "conditions": [*others, self._condition(type_, status)]}
        if (type_, status) == ("Suspended", "False"):
            after["startTime"] = written_time(self._clock.wall)
        self._put_job(live, {**live.raw, "metadata": {**live.raw["metadata"]}, "status": after})

    def _condition(self, type_: str, status: str) -> Raw:
        return {
            "type": type_,
            "status": status,
            "lastTransitionTime": written_time(self._clock.wall),
        }

    def _put_job(self, live: LiveJob, raw: Raw) -> None:
        before, live.raw = live.job, self._stamp(raw)
        live.job = self._show(raw)
        if live.rendered and (before.suspend or live.job.suspend):
            live.rendered = live.spec.rendered(raw)
            self._render(live)
            live.job = self._planner.cluster.jobs[live.uid].job
        self._notify(live)

    def _render(self, live: LiveJob) -> None:
        """Show kfext the object that is rendered from a job."""
        if live.rendered:
            self._planner.cluster.observe_rendered(None, parse_rendered(live.rendered))

    def _show(self, raw: Raw) -> TrainingJob:
        """Show kfext a job, and return it as kfext has parsed it."""
        self._planner.cluster.observe_job(raw)
        return self._planner.cluster.jobs[raw["metadata"]["uid"]].job

    def _notify(self, live: LiveJob) -> None:
        for listener in self.on_job:
            listener(live)

    # --- pods -------------------------------------------------------------------------------------

    def create_pod(self, live: LiveJob, key: ReplicaKey) -> None:
        """Create a pod from the job's current template, and admit it."""
        group = next(group for group in live.job.groups if group.type.lower() == key.type)
        source = live.rendered or live.raw
        template = copied(dict(template_of(live.job, source, group)))
        specs = live.job.kind.templates(source["spec"])
        spec = dict(live.job.kind.as_created(group.type, template["spec"], specs=specs))
        if name := spec.get("priorityClassName"):
            spec["priority"] = self.priorities[name]
        metadata = template.get("metadata", {})
        self.version += 1
        ownership = live.spec.pod_metadata()
        metadata |= {
            "namespace": live.job.namespace,
            "name": pod_name(live.job, key),
            "uid": f"pod-{self.version}",
            "creationTimestamp": written_time(self._clock.wall),
            "labels": {
                **metadata.get("labels", {}),
                **pod_labels(live.job, key),
                **ownership["labels"],
            },
            "ownerReferences": ownership["ownerReferences"],
        }
        raw = {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        raw = self._stamp(self.admit(raw))
        demand = _demand_of(raw)
        pod = parse_pod(raw, demand=demand)
        created = live.pods[key] = LivePod(raw, pod, demand, live, key, self.version)
        self._planner.cluster.observe_pod(None, pod)
        for listener in self.on_pod:
            listener(created)

    def patch_pod(self, pod: Pod, operations: list[Operation]) -> None:
        """Patch a pod that kfext has seen. Raises NotFound or Conflict; then nothing is changed."""
        live = self._present(pod)
        self._put_pod(live, patched(live.raw, operations), new_demand=True)

    def resize_pod(self, pod: Pod, body: Body) -> None:
        """Resize a container of a pod by a strategic merge patch of `resize`.

        Raises NotFound, or Conflict if the pod has changed.
        """
        live = self.unchanged(pod)
        raw = copied(live.raw)
        (change,) = body["spec"]["containers"]
        for container in raw["spec"]["containers"]:
            if container["name"] == change["name"]:
                for kind, amounts in change["resources"].items():
                    container["resources"].setdefault(kind, {}).update(amounts)
        self._put_pod(live, raw, new_demand=True)
        for listener in self.on_resize:
            listener(live)

    def bind(self, live: LivePod, node: str) -> None:
        """Bind a pod to a node."""
        live.raw["spec"]["nodeName"] = node
        self._put_pod(live, live.raw)

    def set_phase(self, live: LivePod, phase: str, **status: Any) -> None:
        """Set the status of a pod."""
        live.raw["status"] = {"phase": phase, **status}
        self._put_pod(live, live.raw, new_demand="containerStatuses" in status)

    def mark_deleted(self, live: LivePod) -> None:
        """Set the deletionTimestamp of a pod."""
        live.raw["metadata"]["deletionTimestamp"] = written_time(self._clock.wall)
        self._put_pod(live, live.raw)

    def remove_pod(self, live: LivePod) -> None:
        """Remove a pod, if it still exists."""
        if not self.stores(live):
            return
        del live.job.pods[live.key]
        self._planner.cluster.observe_pod(live.pod, None)
        for listener in self.on_gone:
            listener(live)

    def stores(self, live: LivePod) -> bool:
        """Return whether a pod still exists."""
        return live.job.pods.get(live.key) is live

    def find(self, pod: Pod) -> LivePod | None:
        """Return a pod that kfext has seen; None means that it was removed."""
        job = self.jobs.get(pod.owner_uid)
        live = job.pods.get(pod.replica) if job and pod.replica else None
        return live if live and live.pod.uid == pod.uid else None

    def unchanged(self, pod: Pod) -> LivePod:
        """Return a pod that kfext has seen. Raises NotFound if it is gone, Conflict if changed."""
        live = self._present(pod)
        if live.pod.resource_version != pod.resource_version:
            raise Conflict(status=409, reason="Conflict", message=f"pod {pod.name} has changed")
        return live

    def _present(self, pod: Pod) -> LivePod:
        live = self.find(pod)
        if live is None:
            raise NotFound(status=404, reason="NotFound", message=f"no pod {pod.name}")
        return live

    def _put_pod(self, live: LivePod, raw: Raw, *, new_demand: bool = False) -> None:
        old = live.pod
        if new_demand:
            live.demand = _demand_of(raw)
        live.raw = self._stamp(raw)
        live.pod = parse_pod(raw, demand=live.demand)
        self._planner.cluster.observe_pod(old, live.pod)
        for listener in self.on_pod:
            listener(live)

    def _stamp(self, raw: Raw) -> Raw:
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        return raw


def _demand_of(raw: Raw) -> PodDemand:
    kind, _ = controller_of(raw["metadata"])
    statuses = raw["status"].get("containerStatuses", [])
    return _demand(json.dumps(raw["spec"]), json.dumps(statuses), kind.container if kind else "")


@lru_cache(maxsize=4096)
def _demand(spec: str, statuses: str, trainer: str) -> PodDemand:
    """Return the demand of a pod; `spec` and `statuses` are JSON, as keys of the cache."""
    status = {"containerStatuses": json.loads(statuses)}
    return parse_demand(json.loads(spec), status, trainer=trainer)
