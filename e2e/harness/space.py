"""A test's namespace, with nodes of its own if needed: creates, observes and waits."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from e2e.harness.faults import Delay, pod_patch, unsuspend_patch
from e2e.harness.jobs import PLURAL, describe_job, describe_pod, pinned_to, suspended, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Answer, Object
from e2e.harness.nodes import delete_and_wait, wait_received
from e2e.harness.wait import until
from e2e.testbed import fakenodes
from e2e.testbed.api import is_ready
from kfext import names

CASE = "kfext.dev/case"


class Space:
    """A namespace. If the test creates nodes, a nodeSelector steers its jobs to them."""

    def __init__(self, kfext: Kfext, name: str) -> None:
        self.kfext, self.kube, self.name = kfext, kfext.kube, name
        self._nodes: list[str] = []
        self._lost: set[str] = set()
        self._policies: list[str] = []
        self._born_pinned = True

    # --- changes ----------------------------------------------------------------------------------

    def create(
        self,
        *,
        managed: bool = True,
        annotations: Mapping[str, str] | None = None,
        born_pinned: bool = False,
    ) -> None:
        """Create the namespace. `born_pinned`: whether gangs may be born pinned."""
        labels = {CASE: self.name, **({names.MANAGED: "true"} if managed else {})}
        metadata = {"name": self.name, "labels": labels, "annotations": dict(annotations or {})}
        self.kube.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        )
        # Before the service account exists, the API server refuses every pod.
        account = f"/api/v1/namespaces/{self.name}/serviceaccounts/default"
        until(lambda: self.kube.find(account), what="the service account exists")
        self._born_pinned = born_pinned
        if managed and not born_pinned:
            self.policy()

    def nodes(self, count: int, **capacity: str) -> list[str]:
        """Create `count` more fake nodes for this test alone; `gpu` stands for nvidia.com/gpu."""
        named = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in capacity.items()}
        full = {"pods": "110", **named}
        first = len(self._nodes)
        created = [f"{self.name}-{number}" for number in range(first, first + count)]
        labels = {CASE: self.name}
        bodies = (fakenodes.node(n, capacity=full, labels=labels, taints=[]) for n in created)
        self.create_nodes(bodies)
        return created

    def create_nodes(self, bodies: Iterable[Object]) -> None:
        """Create nodes with the label of this test, and wait until they are ready."""
        created = []
        for body in bodies:
            self.kube.create("/api/v1/nodes", body)
            created.append(body["metadata"]["name"])
        self._nodes += created
        paths = [f"/api/v1/nodes/{name}" for name in created]
        until(
            lambda: all(is_ready(self.kube.get(path)) for path in paths),
            what=f"nodes {created} are ready",
        )
        for path in paths:
            wait_received(self.kfext, path)

    def lose_node(self, name: str) -> None:
        """Delete a node, as when its machine is removed."""
        delete_and_wait(self.kfext, f"/api/v1/nodes/{name}")
        self._lost.add(name)

    @property
    def standing_nodes(self) -> list[str]:
        """The nodes of this test that were not lost."""
        return [name for name in self._nodes if name not in self._lost]

    def policy(self, **spec: Any) -> None:
        """Create a TrainingPolicy for this namespace only; it replaces its earlier policies.

        Returns once the controller has received it.
        """
        placement = {"bornPinned": self._born_pinned, **spec.pop("placement", {})}
        name = f"{self.name}-{len(self._policies)}"
        selector = {"matchLabels": {CASE: self.name}}
        body = {
            "apiVersion": "kfext.dev/v1alpha1",
            "kind": "TrainingPolicy",
            "metadata": {"name": name},
            "spec": {
                "namespaceSelector": selector,
                "weight": len(self._policies),
                "placement": placement,
                **spec,
            },
        }
        path = "/apis/kfext.dev/v1alpha1/trainingpolicies"
        self.kube.create(path, body)
        self._policies.append(name)
        wait_received(self.kfext, f"{path}/{name}")

    def label(self, labels: Mapping[str, str | None]) -> None:
        """Set or remove labels of the namespace; wait until the controller has received them."""
        path = f"/api/v1/namespaces/{self.name}"
        self.kube.patch(path, {"metadata": {"labels": labels}})
        wait_received(self.kfext, path)

    def take_gpus(self, name: str, node: str, gpus: int) -> None:
        """Create a pod without a job that uses GPUs of a node; no scheduler binds it."""
        limits = {"nvidia.com/gpu": str(gpus)}
        container = {"name": "thief", "image": "none", "resources": {"limits": limits}}
        spec = {"nodeName": node, "containers": [container]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.kube.create(self.path("pods"), body)

    def steer(self, manifest: Object) -> Object:
        """Steer a job's pods to the nodes of this test."""
        if self._nodes:
            for spec in manifest["spec"].values():
                for replica in spec.values() if isinstance(spec, dict) else ():
                    if isinstance(replica, dict) and "template" in replica:
                        selector = replica["template"]["spec"].setdefault("nodeSelector", {})
                        selector.setdefault(CASE, self.name)
        return manifest

    def try_submit(self, manifest: Object, *, query: str = "") -> Answer:
        """Submit a job; return the API server's answer, even a refusal."""
        path = self.path(PLURAL[manifest["kind"]]) + query
        return self.kube.ask("POST", path, self.steer(manifest))

    def submit(self, manifest: Object) -> Object:
        """Submit a job that must be accepted; return it as stored."""
        answer = self.try_submit(manifest)
        assert answer.ok, f"{manifest['metadata']['name']}: {answer.status} {answer.message}"
        stored: Object = answer.body
        return stored

    def clean(self) -> None:
        """Delete everything; the namespace itself terminates in the background."""
        for plural in PLURAL.values():
            self.kube.delete(self.path(plural))
        self.kube.delete(f"/api/v1/namespaces/{self.name}/pods", grace=0)
        self.kube.delete(f"/api/v1/namespaces/{self.name}")
        for policy in self._policies:
            self.kube.delete(f"/apis/kfext.dev/v1alpha1/trainingpolicies/{policy}")
        for node in self._nodes:
            self.kube.delete(f"/api/v1/nodes/{node}")

    # --- observations -----------------------------------------------------------------------------

    def path(self, plural: str, name: str = "") -> str:
        """Return the path of jobs, TrainingPlans or pods of this namespace."""
        root = {"pods": "/api/v1", "trainingplans": "/apis/kfext.dev/v1alpha1"}
        base = f"{root.get(plural, '/apis/kubeflow.org/v1')}/namespaces/{self.name}/{plural}"
        return f"{base}/{name}" if name else base

    def job(self, name: str, kind: str = "PyTorchJob") -> Object:
        job: Object = self.kube.get(self.path(PLURAL[kind], name))
        return job

    def patch_job(self, name: str, patch: Object, kind: str = "PyTorchJob") -> Object:
        job: Object = self.kube.patch(self.path(PLURAL[kind], name), patch)
        return job

    def pods(self, job: str = "", *, ending: bool = False) -> list[Object]:
        """Return the pods of a job, or of all jobs; with `ending` also terminating pods."""
        selector = f"?labelSelector={names.JOB_NAME}%3D{job}" if job else ""
        pods = self.kube.items(self.path("pods") + selector)
        return [pod for pod in pods if ending or not pod["metadata"].get("deletionTimestamp")]

    def view(self, job: str, kind: str = "PyTorchJob") -> Object:
        """Return the status of a job's TrainingPlan; empty without a TrainingPlan."""
        plan = self.kube.find(self.path("trainingplans", f"{kind.lower()}-{job}"))
        status: Object = (plan or {}).get("status", {})
        return status

    def plan(self, job: str, kind: str = "PyTorchJob") -> Object | None:
        """Return the plan in a job's annotation, or None."""
        written = self.job(job, kind)["metadata"].get("annotations", {}).get(names.PLAN)
        return json.loads(written) if written else None

    def events(self, job: str) -> list[Object]:
        return self._events_by_name()[job]

    def _events_by_name(self) -> defaultdict[str, list[Object]]:
        by_name: defaultdict[str, list[Object]] = defaultdict(list)
        for event in self.kube.items(f"/apis/events.k8s.io/v1/namespaces/{self.name}/events"):
            by_name[event.get("regarding", {}).get("name", "")].append(event)
        return by_name

    def pins(self) -> Counter[str]:
        """Return the number of the controllers' successful patches, by pod."""
        writes = self.kfext.writes(pod_patch(self.name))
        return Counter(exchange.path.rsplit("/", 1)[-1] for exchange in writes)

    def check_pins(self) -> None:
        """Check that each pod is pinned to one node, at its creation or by a single patch."""
        pods, pins = self.pods(), self.pins()
        assert [len(pinned_to(pod)) for pod in pods] == [1] * len(pods)
        assert set(pins.values()) <= {1}
        assert pins.keys() <= {pod["metadata"]["name"] for pod in pods}

    def starts(self) -> int:
        """Return how often a job of the namespace was unsuspended under a plan."""
        return len(self.kfext.writes(unsuspend_patch(self.name)))

    def submit_with_pins_held(self, manifest: Object, count: int) -> tuple[Delay, str]:
        """Submit a job for one node, and delay its pins; return the fault and the planned node."""
        pins = Delay(pod_patch(self.name))
        self.kfext.proxy.arm(pins)
        self.submit(manifest)
        self.until(lambda: pins.seen == count, "the pins are on their way")
        plan = self.plan(manifest["metadata"]["name"])
        assert plan is not None
        (node,) = plan["nodes"]
        return pins, node

    # --- waits ------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        return until(condition, what=what, account=self.account)

    def phase(self, job: str, phase: str, kind: str = "PyTorchJob") -> Object:
        """Wait until the TrainingPlan of a job has a phase; return its status."""

        def reached() -> Object | None:
            view = self.view(job, kind)
            return view if view.get("phase") == phase else None

        status: Object = self.until(reached, f"job {job} is {phase}")
        return status

    def bound(self, job: str, count: int) -> dict[str, str]:
        """Wait until `count` pods of a job are bound and no more exist; return their nodes."""

        def nodes() -> dict[str, str] | None:
            pods = self.pods(job, ending=True)
            node_of = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}
            fresh = not any(pod["metadata"].get("deletionTimestamp") for pod in pods)
            return node_of if fresh and len(node_of) == count and all(node_of.values()) else None

        bound: dict[str, str] = self.until(nodes, f"{count} pods of {job} are bound")
        return bound

    def patiently(self, condition: Callable[[], Any], *, seconds: float) -> Any:
        """Wait for a condition with a deadline other than the default."""
        return until(condition, what="a condition holds", account=self.account, seconds=seconds)

    def nodes_by_pod(self, job: str) -> dict[str, str]:
        """Return the node of each pod of a job; empty for a pod that is not bound."""
        return {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in self.pods(job)}

    def account(self) -> str:
        """Describe the objects of the namespace, for the message of a failed test."""
        lines, events = [f"=== namespace {self.name}"], self._events_by_name()
        for kind, plural in PLURAL.items():
            for job in self.kube.items(self.path(plural)):
                name = job["metadata"]["name"]
                lines += describe_job(job, view=self.view(name, kind), events=events[name])
        lines += [describe_pod(pod) for pod in self.pods(ending=True)[:24]]
        lines += [
            f"write {exchange.method} {exchange.path} {exchange.status}"
            for exchange in self.kfext.proxy.log[-200:]
            if exchange.is_write and f"/{self.name}/" in exchange.path
        ][-20:]
        return "\n".join([*lines, self.kfext.tail()])


def set_managed(space: Space, value: str | None) -> None:
    """Set or remove the label `managed` of the namespace; wait until the webhooks follow it."""
    space.label({names.MANAGED: value})
    trial = workers("trial", 1, each={"cpu": "1"})
    space.until(
        lambda: suspended(space.try_submit(trial, query="?dryRun=All").body) is (value is not None),
        "the webhooks know the label",
    )
