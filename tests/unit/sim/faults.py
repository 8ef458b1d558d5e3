"""Faults that a test sets in a simulated cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfext.core.lifecycle.steps import Change
from kfext.errors import ApiError
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.verdict import Verdict
from kfext.sim.api import ApiServer
from kfext.sim.cluster import Cluster
from kfext.sim.objects import LiveJob, LivePod


@dataclass(slots=True)
class Faults:
    """The present faults; by default there are none.

    `refusal`: returns the error that the API server answers to a write of kfext, or None; its
        arguments are the uid of the job or pod, and the change.
    `creates`: returns whether the operator can create a pod of a job.
    `resize`: returns why a kubelet does not resize a pod (Deferred, Infeasible or Error), or None.
        The kubelet tries again every 10 s.
    `loses`: returns whether the response to a patch of a job is lost; arguments as of `refusal`.
    `dies`: whether the controller dies after the next patch of a job, before it writes to pods.
    `closed`: the nodes that kube-scheduler skips, although nothing shows why.
    """

    refusal: Callable[[str, Change], ApiError | None] = lambda _uid, _change: None
    creates: Callable[[LiveJob, ReplicaKey], bool] = lambda _job, _key: True
    resize: Callable[[LivePod], Verdict | None] = lambda _pod: None
    loses: Callable[[str, Change], bool] = lambda _uid, _change: False
    dies: bool = False
    closed: set[str] = field(default_factory=set)


def inject(cluster: Cluster, *, restart: Callable[[], None]) -> Faults:
    """Return the faults of a cluster for the test to set; `restart` replaces its controller."""
    faults, kubelets, create = Faults(), cluster.kubelets, cluster.api.create_pod
    choose, lack = kubelets.choose, kubelets.lack

    def open_nodes(live: LivePod, fits: Sequence[str]) -> str | None:
        return choose(live, [node for node in fits if node not in faults.closed])

    def create_or_fail(live: LiveJob, key: ReplicaKey) -> None:
        if faults.creates(live, key):
            create(live, key)

    kubelets.choose = open_nodes
    kubelets.lack = lambda live: faults.resize(live) or lack(live)
    cluster.api.create_pod = create_or_fail  # type: ignore[method-assign]
    cluster.driver.api = _FaultyApi(cluster.api, faults, restart)  # type: ignore[assignment]
    return faults


class _FaultyApi:
    """The API server with the faults that the controller sees."""

    def __init__(self, api: ApiServer, faults: Faults, restart: Callable[[], None]) -> None:
        self._api = api
        self._faults = faults
        self._restart = restart

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def patch_job(self, uid: str, operations: Any) -> None:
        self._check(uid, operations)
        self._api.patch_job(uid, operations)
        if self._faults.loses(uid, operations):
            raise ApiError(status=500, reason="Timeout", message="the answer is lost")
        if self._faults.dies:
            self._faults.dies = False
            self._restart()

    def patch_pod(self, pod: Pod, operations: Any) -> None:
        self._check(pod.uid, operations)
        self._api.patch_pod(pod, operations)

    def resize_pod(self, pod: Pod, body: Any) -> None:
        self._check(pod.uid, body)
        self._api.resize_pod(pod, body)

    def unchanged(self, pod: Pod) -> LivePod:
        """Return a pod that is to be deleted, as `ApiServer.unchanged` does."""
        self._check(pod.uid, None)
        return self._api.unchanged(pod)

    def _check(self, uid: str, change: Change) -> None:
        if error := self._faults.refusal(uid, change):
            raise error
