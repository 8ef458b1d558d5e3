"""A run of the stream: what it asks of the API server."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.bench.stream.arms import Arm
from e2e.bench.stream.run import run
from e2e.bench.stream.workload import JOBS, Arrival
from e2e.testbed.api import ApiError
from kfext import names

Object = dict[str, Any]
RIGID = next(job for job in JOBS if not job.elastic)


class Cluster:
    """An API server, in place of the `Pods` that use it: the jobs end one at each look.

    Of each there is a pod, which stays for one more look when it is deleted; the first request to
    delete any is refused. `asked`: what was to be deleted, and how many jobs had ended then.
    """

    namespace, path = "any", "/api/v1/namespaces/any/pods"

    def __init__(self, folder: Path) -> None:
        self.bed = self.api = self
        self.folder = folder
        self.asked = list[tuple[str, int]]()
        self._jobs, self._pods = list[Object](), dict[str, Object]()

    def apply(self, body: Object) -> None:
        """Take the policy."""

    def create(self, path: str, body: Object) -> None:
        self._jobs.append(body)
        labels = {names.JOB_NAME: body["metadata"]["name"]}
        self._pods[body["metadata"]["name"]] = {"metadata": {"labels": labels}, "status": {}}

    def get(self, path: str) -> Object:
        if not path.endswith("/pytorchjobs"):
            return {"items": []}
        going = next(job for job in self._jobs if "status" not in job)
        going["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
        return {"items": self._jobs}

    def bodies(self) -> list[Object]:
        found = [{**pod, "metadata": dict(pod["metadata"])} for pod in self._pods.values()]
        for name in [name for name, pod in self._pods.items() if _is_ending(pod)]:
            del self._pods[name]
        return found

    def delete(self, path: str) -> None:
        self.asked.append((path, sum("status" in job for job in self._jobs)))
        if len(self.asked) == 1:
            raise ApiError(500, "refused")
        for name, pod in self._pods.items():
            if path.endswith(f"=training.kubeflow.org%2Fjob-name%3D{name}"):
                pod["metadata"]["deletionTimestamp"] = "now"


def _is_ending(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def test_the_pods_that_a_job_leaves_are_deleted_once_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("e2e.bench.stream.run._LOOK_SECONDS", 0.0)
    cluster = Cluster(tmp_path)
    coming = [Arrival(0.0, replace(RIGID, name=name)) for name in ("a", "b", "c", "d")]
    found = run(cluster, Arm(), coming, [], minutes=1)  # type: ignore[arg-type]
    assert [one.outcome for one in found.jobs.values()] == ["Succeeded"] * 4
    *deleted, (policy, _) = cluster.asked
    assert "trainingpolicies" in policy
    # The first request is refused, and made again.
    selector = f"{Cluster.path}?labelSelector=training.kubeflow.org%2Fjob-name%3D"
    expected = [("a", 1), ("a", 2), ("b", 2), ("c", 3), ("d", 4)]
    assert deleted == [(f"{selector}{name}", ended) for name, ended in expected]
