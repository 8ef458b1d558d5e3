"""A model of the cluster around the decision function, small enough for thousands of runs.

It has only the rules that matter for correctness: who creates, deletes and binds pods, and in which
single writes. The e2e tests have the real components; here every interleaving is tried.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from kfext import names
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Clocks, Situation
from kfext.core.lifecycle.steps import Change, Pin, Step, job_operations, pod_writes
from kfext.core.patches.json_patch import patched
from kfext.model.job import TrainingJob, parse_job
from kfext.model.node import Node
from kfext.model.plan import decode_plan
from kfext.model.pod import Pod, parse_pod
from kfext.sim.objects import copied
from kfext.state.mirror.cluster import Cluster
from tests.builders import Raw, moment, raw_pod

Write = Callable[[], None]
Parsed = TypeVar("Parsed")


class FakeApi:
    """One job, its pods, the nodes, and a clock. Writes are JSON patches, as in the real API.

    `pinned`: the uid of each pinned pod, in order. `started`: the plan of each start, in order.
    """

    def __init__(self, job: Raw, nodes: list[Node]) -> None:
        self.job = job
        self.pods: dict[str, Raw] = {}
        self.nodes = nodes
        self.now = 1000.0
        self.version = 1
        self.pod_created_at = 0.0
        self.pinned: list[str] = []
        self.started: list[str] = []
        self._known: dict[str, tuple[str | None, Any]] = {}

    def parsed_job(self) -> TrainingJob:
        parsed = self._parse_once(self.job, parse_job)
        assert parsed is not None
        return parsed

    def parsed_pods(self) -> list[Pod]:
        return [self._parse_once(raw, parse_pod) for raw in self.pods.values()]

    def _parse_once(self, raw: Raw, parse: Callable[[Raw], Parsed]) -> Parsed:
        """Return the parsed object; each version is parsed once."""
        version, uid = raw["metadata"].get("resourceVersion"), raw["metadata"]["uid"]
        if uid not in self._known or self._known[uid][0] != version:
            self._known[uid] = version, parse(copied(raw))
        result: Parsed = self._known[uid][1]
        return result

    def stamp(self, raw: Raw) -> Raw:
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        return raw

    def patch_job(self, operations: list[dict[str, Any]]) -> None:
        was_suspended = self.parsed_job().suspend
        self.job = self.stamp(patched(self.job, operations))
        if was_suspended and not self.parsed_job().suspend:
            self.started.append(self.parsed_job().annotations.get(names.PLAN, ""))
            self.pod_created_at = self.now  # kfext counts the wait for the next pod from here

    def patch_pod(self, uid: str, change: Change) -> None:
        assert isinstance(change, list), "this model resizes no pods"
        if uid in self.pods:
            self.pods[uid] = self.stamp(patched(self.pods[uid], change))

    def delete_unbound(self, pod: Pod) -> None:
        """Delete a pod with the preconditions of StepExecutor."""
        raw = self.pods.get(pod.uid)
        if raw and raw["metadata"]["resourceVersion"] == pod.resource_version:
            self.delete(pod.uid)

    def delete(self, uid: str) -> None:
        """Delete a pod: a bound pod takes time to end, any other pod is removed at once."""
        if self.pods[uid]["spec"].get("nodeName"):
            self.stamp(self.pods[uid])["metadata"]["deletionTimestamp"] = moment(self.now)
        else:
            del self.pods[uid]

    def load(self, node: str) -> int:
        """Return the millicores of the pods that are bound or pinned to a node."""
        return sum(pod.requests.get("cpu", 0) for pod in self.parsed_pods() if pod.home == node)


class FakeOperator:
    """The training-operator: it creates one pod at a time, and deletes all when suspended.

    `failed`: whether it has counted a terminating pod as failed.
    """

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self._created = 0
        self.failed = False

    def step(self) -> bool:
        """Take one action; return whether there was any."""
        api, job = self._api, self._api.parsed_job()
        if job.finished:
            return False
        if job.suspend:
            return self._suspend(job)
        if job.has("Suspended"):
            self._condition("False")
            return True
        if any(pod.deleting for pod in api.parsed_pods() if pod.owner_uid == job.uid):
            self.failed = True  # it counts terminating pods as failed
        present = {pod.replica for pod in api.parsed_pods()}
        for key, group in job.replicas():
            if key not in present:
                self._created += 1
                template = api.job["spec"][job.kind.replica_specs][group.key]["template"]
                marks = template.get("metadata", {}).get("annotations", {})
                uid = f"pod-{self._created}"
                gated = names.RELEASED not in marks
                raw = raw_pod(job, key.type, key.index, gated=gated, uid=uid)
                api.pods[uid] = api.stamp(raw)
                api.pod_created_at = api.now
                return True
        return False

    def _suspend(self, job: TrainingJob) -> bool:
        api = self._api
        for pod in api.parsed_pods():
            if pod.owner_uid == job.uid and not pod.deleting:
                api.delete(pod.uid)
                return True
        if not job.has("Suspended"):
            self._condition("True")
            return True
        return False

    def _condition(self, status: str) -> None:
        condition = {"type": "Suspended", "status": status}
        condition["lastTransitionTime"] = moment(self._api.now)
        self._api.job["status"] = {"conditions": [condition]}
        self._api.stamp(self._api.job)


class FakeKubelets:
    """kube-scheduler and kubelets: bind a pod without a gate that fits; end a deleted pod."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    def bind(self) -> bool:
        api = self._api
        for pod in api.parsed_pods():
            if pod.gates or pod.node_name or pod.deleting:
                continue
            for node in api.nodes:
                free = node.allocatable["cpu"] - api.load(node.name)
                free += pod.requests["cpu"] if pod.home == node.name else 0
                if pod.pinned_to in {None, node.name} and free >= pod.requests["cpu"]:
                    api.stamp(api.pods[pod.uid])["spec"]["nodeName"] = node.name
                    return True
        return False

    def end(self) -> bool:
        for uid, raw in self._api.pods.items():
            if raw["metadata"].get("deletionTimestamp"):
                del self._api.pods[uid]
                return True
        return False

    def bind_foreign(self, node: Node, cpu: str) -> bool:
        """Bind a foreign pod to a node; return whether the node had the capacity."""
        api = self._api
        millicores = int(cpu) * 1000
        if node.allocatable["cpu"] - api.load(node.name) < millicores:
            return False
        uid = f"foreign-{len(api.pods)}-{api.version}"
        api.pods[uid] = api.stamp(
            {
                "metadata": {"name": uid, "uid": uid},
                "spec": {
                    "nodeName": node.name,
                    "containers": [{"resources": {"requests": {"cpu": cpu}}}],
                },
            }
        )
        return True


class ForgetfulController:
    """The decisions of a controller that dies after every write, from the API objects alone.

    `started_at`: when it last started; it knows nothing of the time before. `last_step`: its last
    decision.
    """

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self.started_at = api.now
        self.last_step: Step | None = None

    def die(self) -> None:
        self.started_at = self._api.now

    def rebuild(self) -> Cluster:
        cluster = Cluster()
        for node in self._api.nodes:
            cluster.observe_node(None, node)
        for pod in self._api.parsed_pods():
            cluster.observe_pod(None, pod)
        cluster.observe_job(copied(self._api.job))
        cluster.settle(self.started_at)
        return cluster

    def writes(self) -> Iterator[Write]:
        """Yield the single writes of the next step."""
        api, cluster = self._api, self.rebuild()
        entry = next(iter(cluster.jobs.values()))
        idle = api.now - self.started_at
        situation = Situation(
            job=entry.job,
            pods=cluster.pods(entry.job.uid),
            plan=entry.plan,
            state=entry.state,
            now=api.now,
            clocks=Clocks(
                waited=idle,
                unbound={pod.uid: idle for pod in cluster.pods(entry.job.uid)},
                quiet=min(idle, api.now - api.pod_created_at),
                settled=idle,
                never_fits=idle,
            ),
        )
        step = next_step(situation, cluster.ledger)
        self.last_step = step
        yield from self._writes(step, entry.raw, entry.job)

    def _writes(self, step: Step, raw: Any, job: TrainingJob) -> Iterator[Write]:
        api = self._api
        operations = job_operations(step, raw, job)
        if operations is not None:
            yield lambda: api.patch_job(operations)
        for pod, change in pod_writes(step, job):
            if change is None:
                yield partial(api.delete_unbound, pod)
            elif isinstance(step, Pin):
                yield partial(self._pin, pod, change)
            else:
                yield partial(api.patch_pod, pod.uid, change)

    def _pin(self, pod: Pod, change: Change) -> None:
        api = self._api
        plan = decode_plan(api.parsed_job().annotations.get(names.PLAN), job_uid=pod.owner_uid)
        assert plan is not None, "a pin without a plan on the job"
        assert pod.replica is not None
        if pod.uid in api.pods:
            assert pod.uid not in api.pinned, "a pod was pinned twice"
            api.pinned.append(pod.uid)
            api.patch_pod(pod.uid, change)
            pinned_to = parse_pod(api.pods[pod.uid]).pinned_to
            assert pinned_to == plan.assignment[pod.replica], (
                "a pin that the job's plan does not say"
            )
