"""The training-operator of a simulated cluster, which creates and deletes the pods of jobs."""

from kfext.model.pod import ReplicaKey
from kfext.sim.api import ApiServer
from kfext.sim.clock import Clock
from kfext.sim.kubelets import Kubelets
from kfext.sim.objects import LiveJob, LivePod

_LATE = 1.0
"""Seconds from a change of a job to its reconciliation."""
_PODS_A_SECOND = 10
"""The most pods that it creates in a second, over all jobs."""


class TrainingOperator:
    """Reconciles one job after another. `failed`: name of a job that it failed -> the reason."""

    def __init__(self, api: ApiServer, kubelets: Kubelets, clock: Clock) -> None:
        self.failed: dict[str, str] = {}
        self._api = api
        self._kubelets = kubelets
        self._clock = clock
        self._queued: set[str] = set()
        self._second = -1.0
        self._created = 0
        api.on_job.append(self._enqueue)
        api.on_pod.append(lambda live: self._enqueue(live.job) if live.pod.deleting else None)
        api.on_deletion.append(self._lose)
        api.on_gone.append(lambda live: self._enqueue(live.job))

    def end(self, live: LiveJob) -> None:
        """End a job after its last step: pods that may be rank zero succeed, others are deleted."""
        ending = [type_.lower() for type_ in live.job.kind.rank_zero]
        for pod in list(live.pods.values()):
            if pod.key.type not in ending or not pod.pod.node_name or pod.pod.deleting:
                self._kubelets.delete(pod)
            else:
                self._api.set_phase(pod, "Succeeded")
        live.ended = self._clock.now
        self._api.set_condition(live, "Succeeded", "True")

    def _lose(self, live: LivePod) -> None:
        """Fail the job of a pod that kfext deletes, if its operator counts that as a failure."""
        if not (live.job.spec.may_lose_pods or live.job.job.finished):
            self.failed[live.job.job.name] = f"kfext deleted {live.pod.name}"
            self._api.set_condition(live.job, "Failed", "True")

    def _enqueue(self, live: LiveJob) -> None:
        if live.uid not in self._queued and not live.job.finished:
            self._queued.add(live.uid)
            self._clock.after(_LATE, lambda: self._reconcile(live))

    def _reconcile(self, live: LiveJob) -> None:
        self._queued.discard(live.uid)
        job = live.job
        if job.finished:
            return
        if job.suspend:
            for pod in list(live.pods.values()):
                self._kubelets.delete(pod)
            if not job.has("Suspended"):
                self._api.set_condition(live, "Suspended", "True")
            return
        if job.has("Suspended"):
            self._api.set_condition(live, "Suspended", "False")
        wanted = [key for key, _ in job.replicas()]
        ending = [pod.key for pod in live.pods.values() if pod.pod.deleting]
        if ending and live.spec.fails_with_ending_pods:
            self.failed[job.name] = f"{ending[0]} was ending while the job was to run"
            self._api.set_condition(live, "Failed", "True")
            return
        for key in live.pods.keys() - set(wanted):
            self._kubelets.delete(live.pods[key])
        self._create(live, [key for key in wanted if key not in live.pods])

    def _create(self, live: LiveJob, missing: list[ReplicaKey]) -> None:
        if self._second != self._clock.now:
            self._second, self._created = self._clock.now, 0
        for key in missing:
            if self._created == _PODS_A_SECOND:
                self._enqueue(live)
                return
            self._created += 1
            self._api.create_pod(live, key)
