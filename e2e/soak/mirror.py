"""A copy of the cluster for the checker, kept current by its own watches."""

import json
import threading
from collections.abc import Callable
from typing import Any

import urllib3

from e2e.soak import facts, reading
from e2e.soak.train_jobs import as_pod_of_train_job, as_pytorch_job, owner_of
from e2e.testbed.cluster import Testbed

Object = dict[str, Any]
_PATHS = {
    # JobSets come first, since pods refer to them.
    "jobsets": "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "PyTorchJob": "/apis/kubeflow.org/v1/pytorchjobs",
    "TFJob": "/apis/kubeflow.org/v1/tfjobs",
    "TrainJob": "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
    "views": "/apis/kfext.dev/v1alpha1/trainingplans",
    "quotas": "/api/v1/resourcequotas",
    "namespaces": "/api/v1/namespaces",
    "preempted": "/api/v1/events?fieldSelector=reason%3DPreempted",
}
_READ: dict[str, Callable[[Object], Any]] = {
    "jobsets": owner_of,
    "nodes": reading.node_of,
    "pods": reading.pod_of,
    "TrainJob": as_pytorch_job,
    "preempted": reading.preempted,
}
_SERVER_SECONDS = 300
_PAUSE_SECONDS = 1.0


class Mirror:
    """Objects by kind and uid. `on_pod` gets each state of a pod, in order, in one thread."""

    def __init__(self, testbed: Testbed, *, on_pod: Callable[[Object], None]) -> None:
        user = testbed.pki.client("soak", groups=("system:masters",))
        self._server = testbed.server
        self._pool = urllib3.PoolManager(
            maxsize=2 * len(_PATHS),
            ca_certs=str(testbed.pki.authority.certificate),
            cert_file=str(user.certificate),
            key_file=str(user.key),
            timeout=urllib3.Timeout(connect=5, read=_SERVER_SECONDS + 30),
            retries=False,
        )
        self._on_pod = on_pod
        self._objects: dict[str, dict[str, Any]] = {kind: {} for kind in _PATHS}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self) -> None:
        """List everything, then follow it in the background until `stop`."""
        for kind in _PATHS:
            version = self._list(kind)
            follow = threading.Thread(target=self._follow, args=(kind, version), daemon=True)
            follow.start()

    def stop(self) -> None:
        self._ended.set()

    def cluster(self, at: float) -> facts.Cluster:
        with self._lock:
            by_kind = {kind: list(objects.values()) for kind, objects in self._objects.items()}
        jobs = [
            (kind, raw) for kind in ("PyTorchJob", "TFJob", "TrainJob") for raw in by_kind[kind]
        ]
        return reading.cluster_of(
            at=at,
            nodes=by_kind["nodes"],
            pods=by_kind["pods"],
            jobs=jobs,
            views=by_kind["views"],
            quotas=by_kind["quotas"],
            namespaces=by_kind["namespaces"],
            preempted=by_kind["preempted"],
        )

    # --- the threads ------------------------------------------------------------------------------

    def _list(self, kind: str) -> str:
        answer = self._pool.request("GET", self._server + _PATHS[kind])
        listed = json.loads(answer.data)
        if answer.status != 200:
            raise RuntimeError(f"list of {kind}: {answer.status} {listed.get('message')}")
        listed_objects = {raw["metadata"]["uid"]: self._read(kind, raw) for raw in listed["items"]}
        with self._lock:
            self._objects[kind] = listed_objects
        return str(listed["metadata"]["resourceVersion"])

    def _follow(self, kind: str, version: str) -> None:
        while not self._ended.is_set():
            try:
                version = self._watch(kind, version) or self._list(kind)
            except (urllib3.exceptions.HTTPError, ValueError):
                self._ended.wait(_PAUSE_SECONDS)  # the connection was cut; the copy stays as it is

    def _watch(self, kind: str, version: str) -> str:
        """Follow a watch to its end; return the last version, or empty if a new list is needed."""
        path = self._server + _PATHS[kind]
        query = f"watch=true&resourceVersion={version}&timeoutSeconds={_SERVER_SECONDS}"
        answer = self._pool.request(
            "GET", f"{path}{'&' if '?' in path else '?'}{query}", preload_content=False
        )
        try:
            if answer.status != 200:
                return ""
            for line in answer:
                change = json.loads(line)
                if self._ended.is_set() or change["type"] == "ERROR":
                    return ""
                self._apply(kind, change["type"], change["object"])
                version = change["object"]["metadata"]["resourceVersion"]
        finally:
            answer.release_conn()
        return version

    def _apply(self, kind: str, change: str, raw: Object) -> None:
        object_ = self._read(kind, raw)
        uid = raw["metadata"]["uid"]
        with self._lock:
            if change == "DELETED":
                self._objects[kind].pop(uid, None)
            else:
                self._objects[kind][uid] = object_

    def _read(self, kind: str, raw: Object) -> Any:
        if kind == "pods":
            with self._lock:
                raw = as_pod_of_train_job(raw, self._objects["jobsets"])
            self._on_pod(raw)
        read = _READ.get(kind)
        return read(raw) if read else raw
