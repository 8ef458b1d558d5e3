"""CPU use of a real pod, with the rights of the controller: from metrics-server, or its kubelet."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from e2e.harness.installed import component
from e2e.harness.sdk_jobs import pytorch_job
from e2e.harness.training import TRAINED_SECONDS, pods_of, submit
from e2e.harness.wait import until
from e2e.testbed import metrics_server
from e2e.testbed.cluster import Testbed
from kfext import names
from kfext.kube.client import Client
from kfext.kube.usage import Usage
from kfext.model.cpu_use import CpuUse
from kfext.model.pod import Pod, parse_pod
from kfext.model.verdict import Verdict

Found = CpuUse | Verdict
LIMIT = 0.2
"""Cores that the pod may use; it would use more."""
_POD = "busy-master-0"
_SERVICE = f"system:serviceaccount:{names.NAMESPACE}"
_SECONDS = 150


@pytest.fixture
def busy(bed: Testbed, plain: str) -> Pod:
    """A pod that trains, and uses all of its 200m."""
    job = pytorch_job("busy", workers=0, cpu="200m", arguments=("--steps", "1000000"))
    del job.spec.pytorch_replica_specs["Worker"]
    submit(bed, job, plain)

    log = f"/api/v1/namespaces/{plain}/pods/{_POD}/log"
    bed.wait_for(
        lambda: "loss" in bed.api.get(log), what="the pod to train", seconds=TRAINED_SECONDS
    )
    return parse_pod(pods_of(bed, plain)[_POD])


def watched(
    bed: Testbed, pod: Pod, enough: Callable[[list[Found]], bool], *, every: float = 6.0
) -> list[Found]:
    """Read the use of a pod as the controller would, until that is enough; return all of it."""
    config = bed.pki.kubeconfig(
        bed.folder / "kubeconfigs" / "usage.yaml",
        server=bed.server,
        user=f"{_SERVICE}:kfext-controller",
        groups=("system:serviceaccounts", f"system:serviceaccounts:{names.NAMESPACE}"),
    )

    async def follow() -> list[Found]:
        async with await Client.connect(config) as client:
            usage = Usage(client)
            found: list[Found] = []
            deadline = time.monotonic() + _SECONDS
            while not (found and enough(found)) and time.monotonic() < deadline:
                found.append((await usage.read([pod]))[pod.uid])
                await asyncio.sleep(every)
            await usage.close()
            return found

    return asyncio.run(follow())


def used(found: list[Found]) -> list[CpuUse]:
    """Return the distinct uses of whole windows in which the pod trained."""
    return sorted({one for one in found if isinstance(one, CpuUse)}, key=lambda one: one.at)


def three(found: list[Found]) -> bool:
    return len(used(found)) >= 3


def judge(found: list[Found]) -> None:
    """Require that what was seen last is what the pod can use, within a fifth."""
    uses = used(found)
    assert len(uses) >= 3, found
    assert uses[-1].cores == pytest.approx(LIMIT, rel=0.2), uses
    assert uses[-1].window >= 5


@contextmanager
def without(bed: Testbed, *components: str) -> Iterator[None]:
    """Take the rights of components away for a while."""
    objects = [one for name in components for one in component(name)]
    bindings = [one for one in objects if one["kind"].endswith("Binding")]
    for one in bindings:
        bed.api.delete(bed.api.path(one))
    try:
        yield
    finally:
        for one in bindings:
            bed.api.apply(one)


def test_without_a_metrics_api_the_kubelet_shows_what_a_pod_uses(bed: Testbed, busy: Pod) -> None:
    judge(watched(bed, busy, three))


@pytest.mark.parametrize("missing", ["the token", "the metrics of nodes"])
def test_without_the_right_to_ask_kubelets_the_reason_is_seen(
    bed: Testbed, busy: Pod, missing: str
) -> None:
    kind = "Role" if missing == "the token" else "ClusterRole"
    (binding,) = (one for one in component("node-metrics") if one["kind"] == f"{kind}Binding")
    bed.api.delete(bed.api.path(binding))
    try:

        def refused() -> Verdict | None:
            (found,) = watched(bed, busy, lambda _: True, every=0)
            is_refusal = isinstance(found, Verdict) and found.reason != names.REASON_CPU_USE_PENDING
            return found if is_refusal else None  # type: ignore[return-value]

        verdict = until(refused, what="the right is gone")
    finally:
        bed.api.apply(binding)
    assert verdict.reason == names.REASON_CPU_USE_FORBIDDEN
    assert verdict.message.startswith("metrics API: ")


def test_metrics_server_shows_what_a_pod_uses_and_no_kubelet_is_asked(
    bed: Testbed, busy: Pod
) -> None:
    metrics_server.start(bed)
    try:
        with without(bed, "node-metrics"):
            judge(watched(bed, busy, three))
        with without(bed, "pod-metrics", "node-metrics"):
            found = watched(bed, busy, lambda seen: isinstance(seen[-1], Verdict))
        last = found[-1]
        assert isinstance(last, Verdict)
        assert last.reason == names.REASON_CPU_USE_FORBIDDEN
        assert 'cannot list resource "pods" in API group "metrics.k8s.io"' in last.message
    finally:
        metrics_server.stop(bed)
