"""The five compared arms. The processes and webhooks of an arm exist only while it is measured.

plain     plain Kubernetes with the training-operator.
affinity  plain Kubernetes; both templates prefer (weight 100) nodes with pods of their job. With
          required affinity, a gang of 64 could never start on nodes of 8 GPUs.
native    kube-scheduler's own gangs, which ignore the distance between pods.
kueue     Kueue's topology-aware scheduling; the preferred topology is one node.
kfext     webhook and controller, as in the other benchmarks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.bench.bed import Bench
from e2e.bench.peers import kueue, native
from e2e.bench.peers.jobs import with_templates
from e2e.bench.peers.kueue import Kueue
from e2e.testbed.cluster import Testbed
from kfext.kube import paths
from kfext.names import HOSTNAME, JOB_NAME, MANAGED, QUEUED

Object = dict[str, Any]
_LAST_LINES = 25


class Arm:
    """A way to place gangs, with a namespace of its own; this class is plain Kubernetes."""

    name = "plain"
    program = ""
    """The name of the arm's own processes; empty if it has none."""

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        labels = {MANAGED: "true"} if self.name == "kfext" else {}
        metadata = {"name": self.namespace, "labels": labels}
        testbed.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    @property
    def namespace(self) -> str:
        return f"peers-{self.name}"

    @property
    def groups(self) -> str:
        """The URL path of the group objects that users submit with each job; empty if none."""
        return ""

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            self.start()
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """Start the processes and webhooks, and wait until they work."""

    def stop(self) -> None:
        """Stop the processes and webhooks, even after a failed start."""

    def job(self, job: Object) -> Object:
        return job

    def group(self, job: Object) -> Object:
        raise NotImplementedError

    def tail(self) -> str:
        return ""

    @property
    def explains(self) -> str:
        """The URL path of the objects that show why jobs wait."""
        return paths.pods(self.namespace)

    def reason(self, object_: Object) -> str:
        """Return why the job of an object of that path waits; empty if the object does not say."""
        return _message(object_, "PodScheduled", {"Unschedulable"})


class Affinity(Arm):
    """Plain Kubernetes; pods prefer the nodes of their job's other pods."""

    name = "affinity"

    def job(self, job: Object) -> Object:
        same_job = {"matchLabels": {JOB_NAME: job["metadata"]["name"]}}
        term = {
            "weight": 100,
            "podAffinityTerm": {"labelSelector": same_job, "topologyKey": HOSTNAME},
        }
        affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
        return with_templates(
            job, lambda template: {**template, "spec": {**template["spec"], "affinity": affinity}}
        )


class Native(Arm):
    """kube-scheduler's own gangs: it binds all pods of a PodGroup or none."""

    name = "native"

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        for manifest in native.admission(self.namespace):
            testbed.api.apply(manifest)

    @property
    def groups(self) -> str:
        return f"/apis/{native.API}/namespaces/{self.namespace}/podgroups"

    def group(self, job: Object) -> Object:
        return native.group(job)


class ByKueue(Arm):
    """Kueue."""

    name = program = "kueue"

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        self._kueue = Kueue(testbed, namespace=self.namespace)
        self._kueue.install()

    def start(self) -> None:
        self._kueue.start()

    def stop(self) -> None:
        self._kueue.stop()

    def tail(self) -> str:
        return "\n".join(self.testbed.log("kueue").read_text().splitlines()[-_LAST_LINES:])

    def job(self, job: Object) -> Object:
        return kueue.with_queue(job)

    @property
    def explains(self) -> str:
        return f"/apis/{kueue.API}/namespaces/{self.namespace}/workloads"

    def reason(self, object_: Object) -> str:
        return _message(object_, "QuotaReserved", {"Pending"})


class ByKfext(Arm):
    """kfext."""

    name = program = "kfext"

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        self._bench = Bench(testbed)
        self._installed = False

    def start(self) -> None:
        if self._installed:
            self._bench.ensure()
        else:
            self._installed = True
            self._bench.install()

    def stop(self) -> None:
        if self._installed:
            self._bench.remove_everything()

    def tail(self) -> str:
        return self._bench.tail(_LAST_LINES)

    @property
    def explains(self) -> str:
        return paths.plans(self.namespace)

    def reason(self, object_: Object) -> str:
        status = object_.get("status") or {}
        return str(status.get("message") or "") if status.get("phase") == QUEUED else ""


def all_of(testbed: Testbed) -> list[Arm]:
    return [arm(testbed) for arm in (Arm, Affinity, Native, ByKueue, ByKfext)]


def _message(object_: Object, type_: str, reasons: set[str]) -> str:
    """Return the message of the condition `type_` if it is False for one of these reasons."""
    for condition in (object_.get("status") or {}).get("conditions") or []:
        if condition["type"] == type_ and condition["status"] == "False":
            return str(condition["message"]) if condition["reason"] in reasons else ""
    return ""
