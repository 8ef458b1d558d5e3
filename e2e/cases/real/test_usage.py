"""CPU use of a real pod, read with the rights of the controller from metrics-server."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from e2e.harness.install import component, create_namespace, kubectl
from e2e.harness.training import TRAINED_SECONDS, pods_of, pytorch_job, submit
from e2e.harness.wait import until
from e2e.testbed import cgroups
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import nodes
from kfext import names
from kfext.kube.client import Client
from kfext.kube.usage import Usage
from kfext.model.cpu_use import CpuUse
from kfext.model.pod import Pod, parse_pod
from kfext.model.verdict import Verdict

LIMIT = 0.2
"""CPU limit of the pod in cores; it would use more, and gets less on a busy machine."""
_NAMESPACE = "usage"
_POD = "busy-master-0"
_SERVICE = f"system:serviceaccount:{names.NAMESPACE}"
_SECONDS = 150
_EVERY_SECONDS = 3


@pytest.fixture(scope="module")
def busy(bed: Testbed) -> Iterator[Pod]:
    """A pod that trains, and uses all of its 200m."""
    job = pytorch_job("busy", cpu="200m", arguments=("--steps", "1000000"))
    del job.spec.pytorch_replica_specs["Worker"]
    create_namespace(bed, _NAMESPACE, managed=False)
    try:
        submit(bed, job, _NAMESPACE)
        log = f"/api/v1/namespaces/{_NAMESPACE}/pods/{_POD}/log"
        bed.wait_for(
            lambda: "loss" in bed.api.get(log), what="the pod to train", seconds=TRAINED_SECONDS
        )
        yield parse_pod(pods_of(bed, _NAMESPACE)[_POD])
    finally:
        kubectl(bed, "delete", "namespace", _NAMESPACE, "--timeout=180s")


@dataclass
class Seen:
    """The readings of the CPU use of a pod and its node, beside the usage of the pod's cgroup."""

    nodes: list[CpuUse] = field(default_factory=list)
    uses: list[CpuUse | Verdict] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def whole(self) -> list[CpuUse]:
        """Return the readings with windows between the first look and the last."""
        uses = [item for item in self.uses if isinstance(item, CpuUse)]
        return [
            use for use in uses if self.times[0] <= use.at - use.window and use.at <= self.times[-1]
        ]

    def true(self, use: CpuUse) -> float:
        """Return the cores that the pod used in a window, by its cgroup."""
        began, ended = np.interp([use.at - use.window, use.at], self.times, self.seconds)
        return float(ended - began) / use.window


def looked(bed: Testbed, pod: Pod, enough: Callable[[Seen], object]) -> Seen:
    """Read the CPU use of a pod with the controller's identity until `enough` is true."""
    config = bed.pki.kubeconfig(
        bed.folder / "kubeconfigs" / "usage.yaml",
        server=bed.server,
        user=f"{_SERVICE}:kfext-controller",
        groups=("system:serviceaccounts", f"system:serviceaccounts:{names.NAMESPACE}"),
    )
    (node,) = (node for node in nodes(bed) if node.name == pod.node_name)
    cgroup = f"{node.sandbox.pods_cgroup}/kubepods/pod{pod.uid}"

    async def follow() -> Seen:
        async with await Client.connect(config) as client:
            usage, seen = Usage(client), Seen()
            deadline = time.monotonic() + _SECONDS
            while time.monotonic() < deadline:
                seen.times.append(time.time())
                seen.seconds.append(cgroups.cpu_seconds(cgroup))
                used = await usage.read([pod], nodes={pod.node_name})
                seen.uses.append(used.pods[pod.uid])
                seen.nodes += used.nodes.values()
                if enough(seen):
                    break
                await asyncio.sleep(_EVERY_SECONDS)
            return seen

    return asyncio.run(follow())


def judge(seen: Seen) -> None:
    """Require that the readings match the pod's usage within a fifth, and that the pod was busy."""
    assert seen.whole(), seen.uses
    use = seen.whole()[-1]
    assert use.cores == pytest.approx(seen.true(use), rel=0.2), seen
    assert 0.1 * LIMIT < use.cores < 1.2 * LIMIT
    # To their kubelets, all nodes of the testbed are this machine.
    assert use.cores < seen.nodes[-1].cores < 1.1 * (os.cpu_count() or 1)


@contextmanager
def without(bed: Testbed, component_name: str, kind: str) -> Iterator[None]:
    """Remove for a while the right that a binding of a component grants."""
    (binding,) = (
        manifest for manifest in component(component_name) if manifest["kind"] == f"{kind}Binding"
    )
    bed.api.delete(bed.api.path(binding))
    try:
        yield
    finally:
        bed.api.apply(binding)


def refusal(bed: Testbed, pod: Pod) -> Verdict:
    """Return the reason, once the API server denies the right."""

    def refused() -> Verdict | None:
        (use,) = looked(bed, pod, lambda _: True).uses
        if isinstance(use, CpuUse) or use.reason == names.REASON_CPU_USE_PENDING:
            return None
        return use

    return until(refused, what="the right is gone")


def test_without_a_metrics_api_the_reason_is_seen(bed: Testbed, busy: Pod) -> None:
    (use,) = looked(bed, busy, lambda _: True).uses
    assert isinstance(use, Verdict)
    assert use.reason == names.REASON_CPU_USE_UNAVAILABLE
    assert "install metrics-server" in use.message


@pytest.mark.long
@pytest.mark.usefixtures("metrics_api")
def test_metrics_server_shows_what_a_pod_uses(bed: Testbed, busy: Pod) -> None:
    judge(looked(bed, busy, Seen.whole))
    with without(bed, "pod-metrics", "ClusterRole"):
        verdict = refusal(bed, busy)
    assert verdict.reason == names.REASON_CPU_USE_FORBIDDEN
    assert 'cannot list resource "pods" in API group "metrics.k8s.io"' in verdict.message
