"""How the soak asks the API server: as people do, who find that things have changed meanwhile."""

from collections import Counter
from typing import Any

from e2e.harness.kube import Answer, Kube, Object
from e2e.soak.sizes import BY_HAND

REFUSAL = "the soak refuses it"
"""What the API server says where the soak's own policies are in force."""
_GONE = {404, 409, 422}
_MEDIA = {"merge": "merge-patch", "json": "json-patch", "strategic": "strategic-merge-patch"}


class Asking:
    """`took` counts what was done and took effect, by its name."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self.took: Counter[str] = Counter()

    def _patch(self, path: str, body: Any, *, kind: str = "merge") -> bool:
        media = f"application/{_MEDIA[kind]}+json"
        return self._expect(self._kube.ask("PATCH", path, body, kind=media), path)

    def _ask(self, method: str, path: str, body: Any = None) -> bool:
        return self._expect(self._kube.ask(method, path, body), path)

    def _pods(self, namespace: str, job: str) -> list[Object]:
        selector = f"?labelSelector=training.kubeflow.org/job-name%3D{job}"
        return self._kube.items(pods_path(namespace) + selector)

    def _succeed(self, pod: Object) -> bool:
        """Have a pod end as its containers would."""
        metadata = pod["metadata"]
        path = pods_path(metadata["namespace"], metadata["name"]) + "/status"
        return self._patch(path, {"status": {"phase": "Succeeded"}})

    def _give_workers(self, path: str, key: str, count: int) -> bool:
        """Set the number of workers of a job by hand; `key`: of its replica specs."""
        patch = {"metadata": {"annotations": {BY_HAND: str(count)}},
                 "spec": {key: {"Worker": {"replicas": count}}}}  # fmt: skip
        return self._patch(path, patch)

    @staticmethod
    def _expect(answer: Answer, path: str) -> bool:
        """Take a refusal because something changed meanwhile; no other. Return whether it was ok.

        Raises AssertionError.
        """
        known = ("exceeded quota", REFUSAL)
        quota = answer.status == 403 and any(one in answer.message for one in known)
        if not answer.ok and answer.status not in _GONE and not quota:
            raise AssertionError(f"{path}: {answer.status} {answer.message}")
        return answer.ok


def pods_path(namespace: str, name: str = "") -> str:
    """Return the path of pods, or of one."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    return f"{path}/{name}" if name else path
