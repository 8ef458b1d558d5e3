"""`kubectl kfext release --all` continues after a job that it could not release."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from kfext import names
from kfext.cli.release import release_jobs
from kfext.errors import ApiError, Forbidden, Invalid, NotFound, Unavailable, UserError
from tests.builders import Raw, discovery, job

DENIED = Forbidden(status=403, reason="Forbidden", message="b is denied")
GONE = NotFound(status=404, reason="NotFound", message="b not found")
UNREACHABLE = Unavailable(status=0, reason="", message="away")
BROKEN = Unavailable(status=500, reason="InternalError", message="failed calling webhook")
INVALID = Invalid(status=422, reason="Invalid", message="denied by a policy")


class FakeCluster:
    """Three jobs that kfext holds; the API server answers with `error` for the second.

    `pods`: the pods in the namespace. `refuses`: how often the patch of a pod is refused.
    `held`: whether kfext still holds the second job when it is read again.
    """

    def __init__(
        self,
        error: ApiError | None = None,
        *,
        pods: Sequence[Raw] = (),
        refuses: int = 0,
        held: bool = True,
    ) -> None:
        self.error = error
        self.pods = list(pods)
        self.refuses = refuses
        self.held = held
        self.patched: list[str] = []
        self.deleted: list[str] = []

    def in_namespace(self) -> str:
        return "team"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["FakeCluster"]:
        yield self

    async def get(self, path: str) -> Raw:
        if path.endswith("/b"):
            builder = job(name="b", uid="b").worker(1)
            return (builder.held() if self.held else builder.resumed()).raw
        return discovery("pytorchjobs", "tfjobs")

    async def list_all(self, path: str, **_: str) -> list[Raw]:
        if path.endswith("/pods"):
            return list(self.pods)
        if not path.endswith("/pytorchjobs"):
            return []
        return [job(name=name, uid=name).worker(1).held().raw for name in "abc"]

    async def json_patch(self, path: str, _: object) -> None:
        name = path.rpartition("/")[2]
        if name == "b" and self.error:
            raise self.error
        if "/pods/" in path:
            if self.refuses:
                self.refuses -= 1
                raise INVALID
            self.pods = [pod for pod in self.pods if pod["metadata"]["name"] != name]
        self.patched.append(name)

    async def delete(self, path: str, *, uid: str) -> None:
        self.deleted.append(path.rpartition("/")[2])
        self.pods = [pod for pod in self.pods if pod["metadata"]["name"] != self.deleted[-1]]


async def lines(cluster: FakeCluster) -> list[str]:
    done = release_jobs(None, kind=None, all_namespaces=False, cluster=cluster)  # type: ignore[arg-type]
    return [line async for line in done]


async def test_after_a_job_deleted_meanwhile_the_others_are_released() -> None:
    cluster = FakeCluster(GONE)
    said = await lines(cluster)
    assert cluster.patched == ["a", "c"]
    assert said[1] == "PyTorchJob team/b: gone meanwhile"


@pytest.mark.parametrize("error", [DENIED, BROKEN, INVALID], ids=["denied", "broken", "invalid"])
async def test_failed_releases_are_reported_after_all_were_tried(error: ApiError) -> None:
    cluster = FakeCluster(error)
    with pytest.raises(
        UserError, match=rf"not all jobs were released: PyTorchJob team/b: .*{error.message}"
    ):
        await lines(cluster)
    assert cluster.patched == ["a", "c"]


async def test_an_unreachable_api_server_is_not_called_for_each_job() -> None:
    cluster = FakeCluster(UNREACHABLE)
    with pytest.raises(UserError, match="API server is unreachable: no other job was tried"):
        await lines(cluster)
    assert cluster.patched == ["a"]


async def test_all_does_not_release_a_job_that_was_started_meanwhile() -> None:
    cluster = FakeCluster(INVALID, held=False)
    said = await lines(cluster)
    assert said[1] == "PyTorchJob team/b: started meanwhile"


@pytest.mark.parametrize("refuses", [1, 100], ids=["once", "always"])
async def test_a_pod_that_cannot_be_ungated_is_retried_and_then_reported(refuses: int) -> None:
    cluster = FakeCluster(pods=[gated("whole", names.NATIVE_GPU)], refuses=refuses)
    if refuses == 1:
        assert (await lines(cluster))[0].endswith("pods ungated: 1")
    else:
        said = (
            r"a: unsuspended and marked as released, but not all pods were ungated: .*by a policy"
        )
        with pytest.raises(UserError, match=said):
            await lines(cluster)
        assert cluster.patched == ["a", "b", "c"]


def gated(name: str, resource: str) -> Raw:
    """A pod of job a behind the gate."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "uid": "a", "controller": True}
    limits = {"limits": {resource: "1"}}
    return {
        "metadata": {"namespace": "team", "name": name, "uid": name, "ownerReferences": [owner]},
        "spec": {
            "schedulingGates": [{"name": names.GATE}],
            "containers": [{"name": "x", "resources": limits}],
        },
    }


async def test_gated_pods_with_gpu_shares_are_deleted() -> None:
    pods = [gated("whole", names.NATIVE_GPU), gated("share", "kfext.dev/gpu-0")]
    cluster = FakeCluster(pods=pods)
    said = await lines(cluster)
    assert cluster.patched == ["a", "whole", "b", "c"]
    assert cluster.deleted == ["share"]
    assert said[0].endswith("pods ungated: 1, pods with GPU shares deleted: 1")
