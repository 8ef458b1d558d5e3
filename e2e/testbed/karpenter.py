"""Karpenter with its kwok provider, as a process beside the cluster, started on demand.

It adds nodes of one machine type, with 8 GPUs. The nodes have kwok's annotation, so that the kwok
of a testbed with fake nodes acts as their kubelet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import urllib3
import yaml

from e2e.testbed import binaries, fakenodes
from e2e.testbed.progress import Planned, step

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

NAME = "karpenter"
START = Planned("start Karpenter, which adds nodes", 5)
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
POOL = "karpenter.sh/nodepool"
"""The label of nodes and NodeClaims with the name of their NodePool."""
GPU = "nvidia.com/gpu"
NEVER = "24h"
"""A delay of machines that never join, because Karpenter gives up after 15 minutes."""
_POOLS = "/apis/karpenter.sh/v1/nodepools"
_CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
_CAPACITY_TYPE = "karpenter.sh/capacity-type"
_ZONE = "topology.kubernetes.io/zone"
_ZONES = ("zone-a", "zone-b")
_GPUS = int(fakenodes.CAPACITY[GPU])


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool.

    `delay`: from the launch of a machine until its node joins. `most`: the maximum number of nodes;
    None means no limit. `consolidate`: how long a node is underused before it is removed.
    `weight`: Karpenter tries the pool with the largest weight first. `labels`: labels of its nodes.
    """

    name: str = "gpu"
    delay: str = "20s"
    most: int | None = None
    consolidate: str = "10s"
    weight: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)


def start(testbed: Testbed) -> None:
    """Install the CRDs and start Karpenter; it adds no node before there is a pool."""
    with step(START):
        crds = list(_crds())
        for manifest in crds:
            testbed.api.apply(manifest)
        testbed.wait_for(
            lambda: all(testbed.api.get(f"{path}?limit=1") for path in (CLAIMS, _POOLS, _CLASSES)),
            what="Karpenter's APIs to be served",
        )
        _start(testbed)


def _start(testbed: Testbed) -> None:
    file = testbed.folder / "instance-types.json"
    file.write_text(json.dumps([_machine()]))
    kubeconfig = testbed.pki.kubeconfig(
        testbed.folder / "kubeconfigs" / f"{NAME}.yaml",
        server=testbed.server,
        user=NAME,
        groups=("system:masters",),
    )
    health = testbed.new_port()
    testbed.start_process(
        [str(testbed.binary(NAME))],
        name=NAME,
        environment={
            "KUBECONFIG": str(kubeconfig),
            "SYSTEM_NAMESPACE": "kube-system",
            "KARPENTER_SERVICE": NAME,
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": str(testbed.new_port()),
            "HEALTH_PROBE_PORT": str(health),
            "INSTANCE_TYPES_FILE_PATH": str(file),
        },
    )
    url = f"http://127.0.0.1:{health}/readyz"
    testbed.wait_for(
        lambda: urllib3.request("GET", url, retries=False).status == 200,
        what="Karpenter to be ready",
        needs=(NAME,),
    )


def stop(testbed: Testbed) -> None:
    """Let Karpenter remove its nodes, end it, and delete its CRDs."""
    for pool in testbed.api.get(_POOLS)["items"]:
        remove(testbed, pool["metadata"]["name"])
    testbed.stop_process(NAME)
    for manifest in _crds():
        testbed.api.delete(testbed.api.path(manifest))


def add(testbed: Testbed, pool: Pool) -> None:
    """Create a NodePool with its own node class; return once Karpenter can add nodes for it."""
    for manifest in _objects(pool):
        testbed.api.apply(manifest)
    testbed.wait_for(
        partial(_is_ready, testbed, pool.name), what=f"pool {pool.name} to be ready", needs=(NAME,)
    )


def remove(testbed: Testbed, pool: str) -> None:
    """Delete a NodePool; return once Karpenter has removed all its nodes."""
    testbed.api.delete(f"{_POOLS}/{pool}")
    selector = f"labelSelector={POOL}%3D{pool}"
    for claim in testbed.api.get(f"{CLAIMS}?{selector}")["items"]:
        testbed.api.delete(f"{CLAIMS}/{claim['metadata']['name']}")
    testbed.wait_for(
        lambda: (
            not any(
                testbed.api.get(f"{path}?{selector}")["items"] for path in (CLAIMS, "/api/v1/nodes")
            )
        ),
        what=f"the nodes of pool {pool} to be gone",
        needs=(NAME,),
    )
    testbed.api.delete(f"{_CLASSES}/{pool}")


def _is_ready(testbed: Testbed, pool: str) -> bool:
    status = testbed.api.get(f"{_POOLS}/{pool}").get("status", {})
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in status.get("conditions", [])
    )


def _objects(pool: Pool) -> Iterator[dict[str, Any]]:
    node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": pool.name}
    yield {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": pool.name},
        "spec": {"nodeRegistrationDelay": pool.delay},
    }
    limits = {} if pool.most is None else {"limits": {GPU: str(pool.most * _GPUS)}}
    on_demand = {"key": _CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}
    yield {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": pool.name},
        "spec": {
            "template": {
                "metadata": {"labels": dict(pool.labels)},
                "spec": {
                    "requirements": [on_demand],
                    "nodeClassRef": node_class,
                    "expireAfter": "Never",
                },
            },
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": pool.consolidate,
                # The default, a tenth of the nodes at once, would remove the last nodes one by one.
                "budgets": [{"nodes": "100%"}],
            },
            "weight": pool.weight,
            **limits,
        },
    }


def _machine() -> dict[str, Any]:
    """Return the machine type in the provider's format: available in two zones at one price."""

    def offer(zone: str) -> dict[str, Any]:
        terms = {_CAPACITY_TYPE: "on-demand", _ZONE: zone}
        return {
            "Price": 10.0,
            "Available": True,
            "Requirements": [
                {"key": key, "operator": "In", "values": [value]} for key, value in terms.items()
            ],
        }

    return {
        "name": "gpu-8x",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": fakenodes.CAPACITY,
        "offerings": [offer(zone) for zone in _ZONES],
    }


def _crds() -> Iterator[dict[str, Any]]:
    for path in binaries.karpenter_manifests():
        yield from filter(None, yaml.safe_load_all(path.read_text()))
