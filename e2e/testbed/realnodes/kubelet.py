"""kubelet, one on each real node, with a truthful idea of how large its node is."""

from __future__ import annotations

import os

import yaml

from e2e.testbed import cgroups
from e2e.testbed.realnodes.containerd import SOCKET
from e2e.testbed.realnodes.sandbox import Sandbox

NODE_LABEL = "testbed.kfext.dev/node=real"
_EVICTION_MEMORY = 100 * 2**20


def start(sandbox: Sandbox, *, millicores: int, memory: int) -> None:
    """Start the node's kubelet; it advertises `millicores` and `memory` bytes as allocatable."""
    testbed = sandbox.testbed
    kubeconfig = testbed.pki.kubeconfig(
        sandbox.folder / "kubelet.kubeconfig",
        server=f"https://{testbed.addresses.bridge}:{testbed.apiserver_port}",
        user=f"system:node:{sandbox.name}",
        groups=("system:nodes",),
    )
    address = testbed.addresses.node(sandbox.index)
    serving = testbed.pki.server(f"kubelet-{sandbox.name}", hosts=[sandbox.name, address])
    config = sandbox.folder / "kubelet.yaml"
    config.write_text(yaml.safe_dump(_config(sandbox, millicores, memory), sort_keys=False))
    sandbox.start_process(
        [
            str(testbed.binary("kubelet")),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--hostname-override={sandbox.name}",
            f"--node-ip={address}",
            f"--node-labels={NODE_LABEL}",
        ],
        name="kubelet",
    )


def machine_memory() -> int:
    """Return this machine's memory in bytes, as kubelet counts it."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _config(sandbox: Sandbox, millicores: int, memory: int) -> dict[str, object]:
    # A node's capacity is always the whole machine's; what is reserved leaves it its share.
    reserved = {
        "cpu": f"{(os.cpu_count() or 1) * 1000 - millicores}m",
        "memory": str(machine_memory() - memory - _EVICTION_MEMORY),
    }
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": sandbox.testbed.addresses.node(sandbox.index),
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": str(sandbox.testbed.pki.authority.certificate)},
            "webhook": {"enabled": True, "cacheTTL": "0s"},
        },
        # The API server decides who may read logs and metrics, and at once when that changes.
        "authorization": {
            "mode": "Webhook",
            "webhook": {"cacheAuthorizedTTL": "0s", "cacheUnauthorizedTTL": "0s"},
        },
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": sandbox.pods_cgroup,
        "failCgroupV1": cgroups.unified(),
        "failSwapOn": False,
        "clusterDNS": [sandbox.testbed.addresses.dns],
        "clusterDomain": "cluster.local",
        "resolvConf": str(sandbox.folder / "resolv.conf"),
        "systemReserved": reserved,
        # The disk is the machine's: however full it is, evicting pods or images does not help.
        "evictionHard": {
            "memory.available": str(_EVICTION_MEMORY),
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        # kubelet's own rules are for a kube-proxy, which this cluster does without.
        "makeIPTablesUtilChains": False,
    }
