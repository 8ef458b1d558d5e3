"""Objects sent on trial (dry run): what the API server and our webhooks make of them now."""

import json
from typing import Any

from e2e.harness.jobs import workers
from e2e.harness.kube import Kube
from kfext import names

NAMESPACE = "kfext-probe"


class Trial:
    """A managed namespace in which nothing is ever stored."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def create(self) -> None:
        labels = {names.MANAGED: "true"}
        metadata = {"name": NAMESPACE, "labels": labels}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self._kube.create("/api/v1/namespaces", body)

    def job(self) -> str:
        """Submit a job on trial; return what became of it: untouched, seen, or held."""
        path = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs?dryRun=All"
        answer = self._kube.ask("POST", path, workers("probe", 1))
        if not answer.ok:
            return answer.message
        if answer.body["spec"]["runPolicy"].get("suspend"):
            return "held"
        return "seen" if names.COLOCATION in json.dumps(answer.body["spec"]) else "untouched"

    def pod(self) -> str:
        """Submit a pod on trial that looks like the operator's; return untouched or gated."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
        answer = self._kube.ask("POST", path, _pod_of_a_job())
        if not answer.ok:
            return answer.message
        return "gated" if answer.body["spec"].get("schedulingGates") else "untouched"


def _pod_of_a_job() -> dict[str, Any]:
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "probe",
        "uid": "probe",
        "controller": True,
    }
    metadata = {
        "name": "probe",
        "labels": {names.OPERATOR_NAME: "pytorchjob-controller"},
        "ownerReferences": [owner],
    }
    spec = {"containers": [{"name": "pytorch", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
