"""The CPU usage of a real pod, read from metrics-server with the permissions of the controller."""

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
"""The CPU limit of the pod, in cores; it would use more, and gets less on a busy machine."""
_NAMESPACE = "usage"
_POD = "busy-master-0"
_SERVICE = f"system:serviceaccount:{names.NAMESPACE}"
_SECONDS = 150
_EVERY_SECONDS = 3


@pytest.fixture(scope="module")
def busy(bed: Testbed) -> Iterator[Pod]:
    """A pod that trains, and uses all of its 200m of CPU."""
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
class Readings:
    """Readings of the CPU usage of a pod and its node.

    `times` and `seconds`: when its cgroup was read, and the CPU seconds used by then.
    """

    nodes: list[CpuUse] = field(default_factory=list)
    uses: list[CpuUse | Verdict] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def complete(self) -> list[CpuUse]:
        """Return the readings with a window within the readings of the cgroup."""
        uses = [item for item in self.uses if isinstance(item, CpuUse)]
        return [
            use for use in uses if self.times[0] <= use.at - use.window and use.at <= self.times[-1]
        ]

    def cgroup_cores(self, use: CpuUse) -> float:
        """Return the cores that the pod used in the window of a reading, from its cgroup."""
        began, ended = np.interp([use.at - use.window, use.at], self.times, self.seconds)
        return float(ended - began) / use.window


def read(bed: Testbed, pod: Pod, enough: Callable[[Readings], object]) -> Readings:
    """Read the CPU usage of a pod with the controller's identity until `enough` returns true."""
    config = bed.pki.kubeconfig(
        bed.folder / "kubeconfigs" / "usage.yaml",
        server=bed.server,
        user=f"{_SERVICE}:kfext-controller",
        groups=("system:serviceaccounts", f"system:serviceaccounts:{names.NAMESPACE}"),
    )
    (node,) = (node for node in nodes(bed) if node.name == pod.node_name)
    cgroup = f"{node.sandbox.pods_cgroup}/kubepods/pod{pod.uid}"

    async def follow() -> Readings:
        async with await Client.connect(config) as client:
            usage, readings = Usage(client), Readings()
            deadline = time.monotonic() + _SECONDS
            while time.monotonic() < deadline:
                readings.times.append(time.time())
                readings.seconds.append(cgroups.cpu_seconds(cgroup))
                used = await usage.read([pod], nodes={pod.node_name})
                readings.uses.append(used.pods[pod.uid])
                readings.nodes += used.nodes.values()
                if enough(readings):
                    break
                await asyncio.sleep(_EVERY_SECONDS)
            return readings

    return asyncio.run(follow())


def judge(readings: Readings) -> None:
    """Check that the last reading matches the cgroup within 20 %, and that the pod was busy."""
    assert readings.complete(), readings.uses
    use = readings.complete()[-1]
    assert use.cores == pytest.approx(readings.cgroup_cores(use), rel=0.2), readings
    assert 0.1 * LIMIT < use.cores < 1.2 * LIMIT
    # Each kubelet reports the usage of the whole machine as its node's.
    assert use.cores < readings.nodes[-1].cores < 1.1 * (os.cpu_count() or 1)


@contextmanager
def without(bed: Testbed, component_name: str, kind: str) -> Iterator[None]:
    """Delete the binding of a component during a `with` block, and so its permission."""
    (binding,) = (
        manifest for manifest in component(component_name) if manifest["kind"] == f"{kind}Binding"
    )
    bed.api.delete(bed.api.path(binding))
    try:
        yield
    finally:
        bed.api.apply(binding)


def refusal(bed: Testbed, pod: Pod) -> Verdict:
    """Wait until the API server denies the permission; return the verdict."""

    def refused() -> Verdict | None:
        (use,) = read(bed, pod, lambda _: True).uses
        if isinstance(use, CpuUse) or use.reason == names.REASON_CPU_USE_PENDING:
            return None
        return use

    return until(refused, what="the permission is denied")


def test_without_a_metrics_api_the_verdict_names_the_remedy(bed: Testbed, busy: Pod) -> None:
    (use,) = read(bed, busy, lambda _: True).uses
    assert isinstance(use, Verdict)
    assert use.reason == names.REASON_CPU_USE_UNAVAILABLE
    assert "install metrics-server" in use.message


@pytest.mark.long
@pytest.mark.usefixtures("metrics_api")
def test_readings_match_the_cgroup_until_the_permission_is_gone(bed: Testbed, busy: Pod) -> None:
    judge(read(bed, busy, Readings.complete))
    with without(bed, "pod-metrics", "ClusterRole"):
        verdict = refusal(bed, busy)
    assert verdict.reason == names.REASON_CPU_USE_FORBIDDEN
    assert 'cannot list resource "pods" in API group "metrics.k8s.io"' in verdict.message
