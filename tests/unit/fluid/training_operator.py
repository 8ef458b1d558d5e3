"""The training-operator of a model cluster: pods as the spec says, and what becomes of a job."""

from kfext.model.pod import ReplicaKey
from tests.unit.fluid.api import Api
from tests.unit.fluid.clock import Clock
from tests.unit.fluid.jobs import Style
from tests.unit.fluid.kubelets import Kubelets
from tests.unit.fluid.live import LiveJob

_LATE = 1.0
"""Seconds until it looks at a job that changed."""
_PODS_A_SECOND = 10


class TrainingOperator:
    """Looks at one job after another; `failed`: the jobs that it has failed, with the reason."""

    def __init__(self, api: Api, kubelets: Kubelets, clock: Clock) -> None:
        self.failed: dict[str, str] = {}
        self._api = api
        self._kubelets = kubelets
        self._clock = clock
        self._noted: set[str] = set()
        self._second = -1.0
        self._created = 0
        api.on_job.append(self._note)
        api.on_pod.append(lambda one: self._note(one.job) if one.pod.deleting else None)
        api.on_gone.append(lambda one: self._note(one.job))

    def end(self, live: LiveJob) -> None:
        """Take in that the training is done: its workers end by themselves, servers are ended."""
        for one in list(live.pods.values()):
            if one.key.type == "ps" or not one.pod.node_name or one.pod.deleting:
                self._kubelets.delete(one)
            else:
                self._api.set_phase(one, "Succeeded")
        live.ended = self._clock.now
        self._api.set_condition(live, "Succeeded", "True")

    def _note(self, live: LiveJob) -> None:
        if live.uid not in self._noted and not live.job.finished:
            self._noted.add(live.uid)
            self._clock.after(_LATE, lambda: self._look(live))

    def _look(self, live: LiveJob) -> None:
        self._noted.discard(live.uid)
        job = live.job
        if job.finished:
            return
        if job.suspend:
            for one in list(live.pods.values()):
                self._kubelets.delete(one)
            if not job.has("Suspended"):
                self._api.set_condition(live, "Suspended", "True")
            return
        if job.has("Suspended"):
            self._api.set_condition(live, "Suspended", "False")
        wanted = [key for key, _ in job.replicas()]
        ending = [one.key for one in live.pods.values() if one.pod.deleting]
        if live.spec.kind == "TFJob" and live.spec.style is Style.GANG and ending:
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
                self._note(live)
                return
            self._created += 1
            self._api.create_pod(live, key)
