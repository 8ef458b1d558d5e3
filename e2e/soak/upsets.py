"""Trouble for jobs whose size kfext is changing: what people, nodes and programs do just then."""

from e2e.harness.jobs import jobs_path, specs
from e2e.harness.kube import Object
from e2e.soak.asking import Asking, pods_path
from e2e.soak.facts import RUNNING_CHANGES

HOW = ("edit", "evict", "finish", "autoscale")
_PLANS = "/apis/kfext.dev/v1alpha1/trainingplans"
_METRICS = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization",
             "averageUtilization": 80}}}]  # fmt: skip


class Upsets(Asking):
    """`took` counts what was done in the middle of a change, by what it was."""

    def upset(self, how: str, share: float, count: int) -> None:
        """Do something to one of the jobs whose size is being changed; nothing if there is none."""
        changing = [one for one in self._kube.items(_PLANS) if _is_changing(one)]
        if not changing:
            return
        plan = changing[int(share * len(changing))]
        of, namespace = plan["spec"]["job"], plan["metadata"]["namespace"]
        path = jobs_path(namespace, of["kind"], of["name"])
        job = self._kube.find(path)
        if job is None:
            return
        done = {
            "edit": lambda: self._edit(path, job, count),
            "evict": lambda: self._evict(namespace, of["name"], share),
            "finish": lambda: self._finish(namespace, of["name"]),
            "autoscale": lambda: self._autoscale(path, job),
        }[how]()
        self.took["upset"] += done
        self.took[f"upset: {how}"] += done

    def _edit(self, path: str, job: Object, count: int) -> bool:
        """Set the number of workers by hand."""
        key = f"{job['kind'].removesuffix('Job').lower()}ReplicaSpecs"
        return "Worker" in specs(job) and self._give_workers(path, key, count)

    def _evict(self, namespace: str, name: str, share: float) -> bool:
        """Evict one of its pods, as `kubectl drain` does."""
        if not (pods := self._pods(namespace, name)):
            return False
        pod = pods[int(share * len(pods))]["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        return self._ask("POST", f"{pods_path(namespace, pod)}/eviction", body)

    def _finish(self, namespace: str, name: str) -> bool:
        """Have all of its pods succeed."""
        bound = [one for one in self._pods(namespace, name) if one["spec"].get("nodeName")]
        done = [self._succeed(pod) for pod in bound]
        return bool(done) and all(done)

    def _autoscale(self, path: str, job: Object) -> bool:
        """Have a HorizontalPodAutoscaler scale it from now on."""
        if "elasticPolicy" not in job["spec"]:
            return False
        return self._patch(path, {"spec": {"elasticPolicy": {"metrics": _METRICS}}})


def _is_changing(plan: Object) -> bool:
    """Say whether kfext waits for a checkpoint of a job, or has just given it another size."""
    told = plan.get("status", {}).get("conditions", ())
    return any(one["type"] == "Scaled" and one.get("reason") in RUNNING_CHANGES for one in told)
