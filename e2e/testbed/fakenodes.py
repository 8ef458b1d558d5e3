"""Fake nodes: kwok answers in place of their kubelets, so hundreds of them cost very little."""

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
# Two hundred nodes that renew every ten seconds would disturb the measurements of a benchmark.
_FAST_LEASE_SECONDS = 1200
_DECLARED = ["InPlacePodVerticalScalingInitContainers"]
"""Part of the features of a 1.37 kubelet: without it the API server resizes no worker, since the
operator gives workers an init container."""
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

    Where there are real nodes too, the fake nodes have a taint: only pods that tolerate it land on
    a node that runs nothing. With `log`, a file in containerd's format, kwok answers `pods/log` for
    all nodes: every pod has printed the present content of the file.
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
    """Return kwok's options for answering log requests, at the address of its nodes.

    It presents a self-signed certificate, which the API server accepts from any kubelet.
    """
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
    """Wait until `count` fake nodes are ready and open to pods."""
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
    """Return the manifest of one fake node."""
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
    """Count the fake nodes that are ready and no longer have the taint of a new node."""
    nodes = testbed.api.get(f"/api/v1/nodes?labelSelector={LABEL}%3Dfake")["items"]
    return sum(is_ready(node) for node in nodes)
