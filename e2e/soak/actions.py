"""Carries out the script's actions on jobs, pods and nodes, as people and machines would.

An action may find that its object has changed meanwhile. `Disturbances` come from people, nodes and
programs, while kfext changes the size of a job.
"""

from collections import Counter
from typing import Any

from e2e.harness.jobs import jobs_path, specs
from e2e.harness.kube import Answer, Kube, Object
from e2e.soak import manifests
from e2e.soak.facts import BY_PERSON, COLOCATION, DRAIN, RESUMED, RUNNING_CHANGES, SUSPENDED
from e2e.soak.manifests import BY_HAND, ELASTIC
from e2e.testbed import fakenodes
from kfext.model.kinds.registered import KINDS
from kfext.model.tolerant import member

REFUSAL = "the soak refuses it"
"""The message of the soak's own admission policies."""
_CHANGED_STATUSES = {404, 409, 422}
_MEDIA = {"merge": "merge-patch", "json": "json-patch", "strategic": "strategic-merge-patch"}
CAPACITY = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "110"}
_NO_EXECUTE_TAINT = {"key": "soak.example.com/out", "effect": "NoExecute"}
_KWOK = "kwok.x-k8s.io/node"
DISTURBANCES = ("edit", "evict", "finish", "autoscale")
_PLANS = "/apis/kfext.dev/v1alpha1/trainingplans"
_METRICS = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization",
             "averageUtilization": 80}}}]  # fmt: skip


class Actor:
    """The base of the classes that carry out actions. `effects`: how many took effect, by name."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self.effects: Counter[str] = Counter()

    def _patch(self, path: str, body: Any, *, kind: str = "merge") -> bool:
        media = f"application/{_MEDIA[kind]}+json"
        return self._expect(self._kube.ask("PATCH", path, body, kind=media), path)

    def _ask(self, method: str, path: str, body: Any = None) -> bool:
        return self._expect(self._kube.ask(method, path, body), path)

    def _pods(self, namespace: str, kind: str, job: str) -> list[Object]:
        selector = f"?labelSelector={KINDS[kind].job_label}%3D{job}"
        return self._kube.items(pods_path(namespace) + selector)

    def _succeed(self, pod: Object) -> bool:
        metadata = pod["metadata"]
        path = pods_path(metadata["namespace"], metadata["name"]) + "/status"
        return self._patch(path, {"status": {"phase": "Succeeded"}})

    def _give_workers(self, path: str, key: str, count: int) -> bool:
        """Set the number of workers of a job as a person; `key`: the field of its replica specs."""
        patch = {"metadata": {"annotations": {BY_HAND: str(count)}},
                 "spec": {key: {"Worker": {"replicas": count}}}}  # fmt: skip
        return self._patch(path, patch)

    @staticmethod
    def _expect(answer: Answer, path: str) -> bool:
        """Return whether a request succeeded.

        Raises AssertionError if it failed for other reasons than a change of the object meanwhile.
        """
        # A resize fails on a removed node, and on a node of Karpenter, which declares no features.
        known = ("exceeded quota", REFUSAL, "not found", "not available on node")
        refused = answer.status == 403 and any(phrase in answer.message for phrase in known)
        if not answer.ok and answer.status not in _CHANGED_STATUSES and not refused:
            raise AssertionError(f"{path}: {answer.status} {answer.message}")
        return answer.ok


def pods_path(namespace: str, name: str = "") -> str:
    path = f"/api/v1/namespaces/{namespace}/pods"
    return f"{path}/{name}" if name else path


class ClusterActions(Actor):
    """Actions on jobs and nodes: one method per action, which does nothing if it is too late."""

    def __init__(self, kube: Kube) -> None:
        super().__init__(kube)
        self._unlocked: set[tuple[str, str, str]] = set()
        self._to_resume: set[tuple[str, str, str]] = set()
        self._arrived = 0

    # --- jobs -------------------------------------------------------------------------------------

    def submit(self, namespace: str, manifest: Object) -> None:
        self._ask("POST", jobs_path(namespace, manifest["kind"]), manifest)

    def delete(self, namespace: str, kind: str, name: str) -> None:
        self._unlocked.discard((namespace, kind, name))
        self._to_resume.discard((namespace, kind, name))
        self._ask("DELETE", jobs_path(namespace, kind, name))

    sweep = delete

    def resubmit(self, kind: str, namespace: str, manifest: Object) -> None:
        self.delete(namespace, kind, manifest["metadata"]["name"])
        self.submit(namespace, manifest)

    def finish(self, namespace: str, kind: str, name: str, all_pods: bool) -> None:
        for pod in self._pods(namespace, kind, name):
            labels = pod["metadata"]["labels"]
            first = labels.get("training.kubeflow.org/job-role") == "master"
            first |= kind == "TrainJob" and labels[KINDS[kind].index_label] == "0"
            if _runs(pod) and (all_pods or first):
                self._succeed(pod)

    def suspend(self, namespace: str, kind: str, name: str) -> None:
        path = jobs_path(namespace, kind, name)
        job = self._kube.find(path)
        if job is not None and member(job["spec"], KINDS[kind].suspend_path) is not True:
            patch = {"metadata": {"annotations": {BY_PERSON: SUSPENDED},
                                  "resourceVersion": job["metadata"]["resourceVersion"]},
                     "spec": KINDS[kind].suspend(True)}  # fmt: skip
            self._patch(path, patch)

    def resume(self, namespace: str, kind: str, name: str) -> None:
        """Have `tend` resume a job once its pods are gone; before, the operator would fail it."""
        self._to_resume.add((namespace, kind, name))

    def colocation(self, namespace: str, kind: str, name: str, value: str) -> None:
        patch = {"metadata": {"annotations": {COLOCATION: value}}}
        self._patch(jobs_path(namespace, kind, name), patch)

    def set_workers(self, namespace: str, kind: str, name: str, count: int) -> None:
        """Set the number of workers of a TFJob, whether it runs or waits."""
        path = jobs_path(namespace, kind, name)
        self.effects["set_workers"] += self._give_workers(path, "tfReplicaSpecs", count)

    def opt(self, namespace: str, kind: str, name: str, sizes: str) -> None:
        patch = {"metadata": {"annotations": {ELASTIC: sizes}}}
        self.effects["opt"] += self._patch(jobs_path(namespace, kind, name), patch)

    def lift_gate(self, namespace: str, kind: str, name: str) -> None:
        self._unlocked.add((namespace, kind, name))

    def tend(self) -> None:
        """Continue actions of several steps: remove gates of new pods, resume jobs without pods."""
        for namespace, kind, name in sorted(self._unlocked):
            for pod in self._pods(namespace, kind, name):
                self._remove_foreign_gate(pod)
        for namespace, kind, name in sorted(self._to_resume):
            path = jobs_path(namespace, kind, name)
            job = self._kube.find(path)
            marks = job["metadata"].get("annotations", {}) if job else {}
            suspended = marks.get(BY_PERSON) == SUSPENDED
            if suspended and (self._pods(namespace, kind, name) or not _is_suspended(job)):
                continue
            self._to_resume.discard((namespace, kind, name))
            if suspended:
                annotations = {BY_PERSON: RESUMED}
                patch = {"metadata": {"annotations": annotations},
                         "spec": KINDS[kind].suspend(False)}  # fmt: skip
                self._patch(path, patch)

    def unlock(self, jobs: dict[str, tuple[str, str]]) -> None:
        """Have `tend` remove the foreign gates of jobs. `jobs`: namespace and kind by name."""
        self._unlocked |= {(namespace, kind, name) for name, (namespace, kind) in jobs.items()}

    def _remove_foreign_gate(self, pod: Object) -> None:
        gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
        if manifests.FOREIGN_GATE in gates:
            position = f"/spec/schedulingGates/{gates.index(manifests.FOREIGN_GATE)}"
            tests = [{"op": "test", "path": f"{position}/name", "value": manifests.FOREIGN_GATE}]
            metadata = pod["metadata"]
            path = pods_path(metadata["namespace"], metadata["name"])
            self._patch(path, [*tests, {"op": "remove", "path": position}], kind="json")

    # --- nodes, and pods without a job on them ----------------------------------------------------

    def thief(self, namespace: str, name: str, node: str, gpus: int) -> None:
        self._ask("POST", pods_path(namespace), manifests.thief(name, node, gpus))

    def catch_thief(self, namespace: str, name: str) -> None:
        self._ask("DELETE", pods_path(namespace, name))

    def add_node(self, name: str) -> None:
        self._arrived += 1
        zone = manifests.ZONES[self._arrived % len(manifests.ZONES)]
        labels = {manifests.ZONE: zone}
        body = fakenodes.node(name, capacity=CAPACITY, labels=labels, taints=[])
        self._ask("POST", "/api/v1/nodes", body)

    def lose_node(self, name: str) -> None:
        self._ask("DELETE", f"/api/v1/nodes/{name}")

    def trouble_node(self, name: str, how: str) -> None:
        path = f"/api/v1/nodes/{name}"
        if how == "cordon":
            self._patch(path, {"spec": {"unschedulable": True}})
        elif how == "taint":
            self._patch(path, {"spec": {"taints": [_NO_EXECUTE_TAINT]}})
        else:
            self._patch(path, {"metadata": {"annotations": {_KWOK: None}}})
            ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
            body = {"status": {"conditions": [ready]}}
            self._patch(f"{path}/status", body, kind="strategic")

    def heal_node(self, name: str, how: str) -> None:
        path = f"/api/v1/nodes/{name}"
        if how == "cordon":
            self._patch(path, {"spec": {"unschedulable": None}})
        elif how == "taint":
            self._patch(path, {"spec": {"taints": None}})
        else:
            self._patch(path, {"metadata": {"annotations": {_KWOK: "fake"}}})

    def drain_node(self, name: str, value: str) -> None:
        """Drain a node as `kubectl kfext drain` does; `value` is the taint's."""
        taint = {"key": DRAIN, "value": value, "effect": "PreferNoSchedule"}
        self._patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True, "taints": [taint]}})

    def uncordon(self, name: str) -> None:
        self._patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None, "taints": None}})


def _is_suspended(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(
        condition["type"] == "Suspended" and condition["status"] == "True"
        for condition in conditions
    )


class Disturbances(Actor):
    """Disturbances of a change of size; `effects` also counts them by kind."""

    def upset(self, how: str, share: float, count: int) -> None:
        """Disturb a job while its size changes; do nothing if there is no such job."""
        changing = [item for item in self._kube.items(_PLANS) if _is_changing(item)]
        if not changing:
            return
        plan = changing[int(share * len(changing))]
        job_ref, namespace = plan["spec"]["job"], plan["metadata"]["namespace"]
        path = jobs_path(namespace, job_ref["kind"], job_ref["name"])
        job = self._kube.find(path)
        if job is None:
            return
        done = {
            "edit": lambda: self._edit(path, job, count),
            "evict": lambda: self._evict(namespace, job_ref, share),
            "finish": lambda: self._finish(namespace, job_ref),
            "autoscale": lambda: self._autoscale(path, job),
        }[how]()
        self.effects["upset"] += done
        self.effects[f"upset: {how}"] += done

    def _edit(self, path: str, job: Object, count: int) -> bool:
        """Set the number of workers as a person.

        TFJobs without dynamic workers are left out: they fail if a running worker is deleted.
        """
        if job["kind"] == "TFJob" and not job["spec"].get("enableDynamicWorker"):
            return False
        key = f"{job['kind'].removesuffix('Job').lower()}ReplicaSpecs"
        return "Worker" in specs(job) and self._give_workers(path, key, count)

    def _evict(self, namespace: str, job_ref: Object, share: float) -> bool:
        if not (pods := self._pods(namespace, job_ref["kind"], job_ref["name"])):
            return False
        pod = pods[int(share * len(pods))]["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        return self._ask("POST", f"{pods_path(namespace, pod)}/eviction", body)

    def _finish(self, namespace: str, job_ref: Object) -> bool:
        pods = self._pods(namespace, job_ref["kind"], job_ref["name"])
        done = [self._succeed(pod) for pod in pods if _runs(pod)]
        return bool(done) and all(done)

    def _autoscale(self, path: str, job: Object) -> bool:
        if "elasticPolicy" not in job["spec"]:
            return False
        return self._patch(path, {"spec": {"elasticPolicy": {"metrics": _METRICS}}})


def _runs(pod: Object) -> bool:
    """Return whether a pod is Running; under load, kwok would set an ended pod to Running again."""
    return bool(pod.get("status", {}).get("phase") == "Running")


def _is_changing(plan: Object) -> bool:
    """Return whether kfext waits for a checkpoint of a job, or has just changed its size."""
    conditions = plan.get("status", {}).get("conditions", ())
    return any(
        condition["type"] == "Scaled" and condition.get("reason") in RUNNING_CHANGES
        for condition in conditions
    )
