"""Fake nodes: kwok acts as their kubelet, so that hundreds of nodes cost very little."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from e2e.testbed import binaries
from e2e.testbed.api import is_ready

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

BINARIES = ("kwok",)
LABEL = "kfext.dev/testbed"
TAINT = {"key": "kfext.dev/fake", "value": "true", "effect": "NoSchedule"}
CAPACITY = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
_ANNOTATION = "kwok.x-k8s.io/node"
_LEASE_SECONDS = 40
# If 200 nodes renewed their leases every 10 s, this would disturb benchmarks.
_FAST_LEASE_SECONDS = 1200
_DECLARED = ["InPlacePodVerticalScalingInitContainers"]
"""The declared features of the nodes. Without this feature, which kubelet 1.37 has, the API server
refuses to resize workers, because the operator adds an init container to them."""
_IN_FLIGHT = 16


def start(
    testbed: Testbed,
    count: int,
    *,
    capacity: Mapping[str, str] = CAPACITY,
    labels: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> None:
    """Start kwok and create nodes fake-000, fake-001, ...; `wait_ready` waits for them.

    If there are also real nodes, the fake nodes have a taint, so that no pod is bound to them by
    accident. `log`: a file in containerd's format with the log of every pod on these nodes.
    """
    port = testbed.new_port()
    lease = _FAST_LEASE_SECONDS if testbed.fast else _LEASE_SECONDS
    kubeconfig = testbed.pki.kubeconfig(
        testbed.folder / "kubeconfigs" / "kwok.yaml",
        server=testbed.server,
        user="kwok",
        groups=("system:masters",),
    )
    testbed.start_process(
        [
            str(testbed.binary("kwok")),
            f"--kubeconfig={kubeconfig}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={_ANNOTATION}=fake",
            f"--node-lease-duration-seconds={lease}",
            f"--server-address=127.0.0.1:{port}",
            *(f"--config={stage}" for stage in binaries.kwok_stages()),
            *(_kubelet(testbed, port, log) if log else ()),
        ],
        name="kwok",
    )
    taints = [TAINT] if testbed.real_nodes else []
    manifests = [
        node(f"fake-{index:03}", capacity=capacity, labels=labels or {}, taints=taints)
        for index in range(count)
    ]
    with ThreadPoolExecutor(_IN_FLIGHT) as pool:
        list(pool.map(lambda body: testbed.api.create("/api/v1/nodes", body), manifests))


def _kubelet(testbed: Testbed, port: int, log: Path) -> list[str]:
    """Return the options that make kwok answer log requests with a file (self-signed TLS)."""
    rule = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterLogs",
        "metadata": {"name": "all"},
        "spec": {"logs": [{"logsFile": str(log)}]},
    }
    path = testbed.folder / "kwok-logs.yaml"
    path.write_text(yaml.safe_dump(rule))
    return ["--node-ip=127.0.0.1", f"--node-port={port}", f"--config={path}"]


def wait_ready(testbed: Testbed, count: int) -> None:
    testbed.wait_for(
        lambda: _open_nodes(testbed) >= count,
        what=f"{count} fake nodes to be ready",
        needs=("kwok", "kube-controller-manager"),
    )


def node(
    name: str,
    *,
    capacity: Mapping[str, str],
    labels: Mapping[str, str],
    taints: list[dict[str, str]],
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {_ANNOTATION: "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                LABEL: "fake",
                **labels,
            },
        },
        "spec": {"taints": taints} if taints else {},
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "declaredFeatures": _DECLARED,
        },
    }


def _open_nodes(testbed: Testbed) -> int:
    """Return the number of fake nodes that are ready and lack the taint of a new node."""
    nodes = testbed.api.get(f"/api/v1/nodes?labelSelector={LABEL}%3Dfake")["items"]
    return sum(is_ready(node) for node in nodes)
