"""A real node: starts, stops and kills it, limits its link, and reads its usage."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import yaml

from e2e.testbed import cgroups
from e2e.testbed.api import is_ready
from e2e.testbed.realnodes import containerd, network
from e2e.testbed.realnodes.containerd import SOCKET
from e2e.testbed.realnodes.sandbox import Sandbox
from kfext.model.quantity import CPU, amount

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

Value = TypeVar("Value")
NODE_LABEL = "testbed.kfext.dev/node=real"
_EVICTION_MEMORY = 100 * 2**20
_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
# The kernel sends up to 64 KiB at once; with a smaller burst such a packet would never pass.
_SMALLEST_BURST = 128 * 1024
_TICK_SECONDS = 0.004  # the kernel's tick at 250 Hz; a burst must last for one tick
_LATENCY = "50ms"


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
    # kubelet reports the whole machine as capacity; the reservation leaves the node's share.
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
        # Ask the API server who may read logs and metrics, without a cache: changes apply at once.
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
        # All nodes share the machine's disk: evicting pods or images would not free enough of it.
        "evictionHard": {
            "memory.available": str(_EVICTION_MEMORY),
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        # kubelet's iptables rules are for kube-proxy, which this cluster lacks.
        "makeIPTablesUtilChains": False,
    }


@dataclass(frozen=True)
class Node:
    """A real node; all its pods together may use `millicores` of CPU and `memory` bytes."""

    name: str
    address: str
    millicores: int
    memory: int
    namespace: str
    link: str
    sandbox: Sandbox = field(repr=False)

    @classmethod
    def of(cls, testbed: Testbed, index: int, *, millicores: int, memory: int) -> Node:
        """Return node `index` of a testbed; it need not exist yet."""
        return cls(
            name=network.node_name(index),
            address=testbed.addresses.node(index),
            millicores=millicores,
            memory=memory,
            namespace=network.namespace(testbed, index),
            link=network.link(testbed, index),
            sandbox=Sandbox(testbed, index),
        )

    def make(self, template: Path) -> None:
        """Make the node's folders and cgroups, with the images in `template`; start nothing."""
        self.sandbox.make(millicores=self.millicores)
        containerd.fill_from_template(template, self.sandbox.folder / "containerd")

    def start(self) -> None:
        """Switch the node on; `wait` waits until it is ready."""
        self.sandbox.start()
        containerd.start(self.sandbox)
        self.start_kubelet()

    def start_kubelet(self) -> None:
        start(self.sandbox, millicores=self.millicores, memory=self.memory)

    def stop_kubelet(self) -> None:
        """End only kubelet: the node stops reporting, but its containers continue."""
        self.sandbox.testbed.stop_process(self.sandbox.process("kubelet"))

    def kill(self) -> None:
        """Switch the node off, as a power cut does; `start` switches it on again."""
        self.sandbox.kill()

    def wait(self) -> None:
        """Wait until the node is ready."""
        self.sandbox.testbed.wait_for(
            self.is_ready,
            what=f"{self.name} to be ready",
            needs=[self.sandbox.process(name) for name in ("containerd", "kubelet")],
        )

    def is_ready(self) -> bool:
        """Return whether the API server shows the node as ready."""
        nodes = self.sandbox.testbed.api.get("/api/v1/nodes")["items"]
        return any(is_ready(node) for node in nodes if node["metadata"]["name"] == self.name)

    def with_one_cpu(self) -> Node:
        """Give the node's pods the first CPU exclusively; return the node with its new size.

        The kernel does not divide several CPUs evenly: of three busy threads on two CPUs, the
        thread that is alone on its CPU gets half. On one CPU, other load does not slow the pods.
        """
        cgroups.put_first(self.sandbox.pods_cgroup)
        return self.on_cpu(0, millicores=1000)

    def on_cpu(self, number: int, *, millicores: int) -> Node:
        """Pin the node's pods to CPU `number`, and make kubelet advertise `millicores`.

        Returns the node with its new size.
        """
        changed = replace(self, millicores=millicores)
        self.stop_kubelet()
        cgroups.pin(self.sandbox.pods_cgroup, cpu=number)
        changed.start_kubelet()
        self.sandbox.testbed.wait_for(
            lambda: amount(CPU, changed.advertised()) == millicores,
            what=f"{self.name} to advertise {millicores}m of CPU",
            needs=[self.sandbox.process("kubelet")],
        )
        changed.wait()
        return changed

    def advertised(self) -> str:
        """Return the node's allocatable CPU as the API server shows it."""
        node = self.sandbox.testbed.api.get(f"/api/v1/nodes/{self.name}")
        cpu: str = node["status"]["allocatable"]["cpu"]
        return cpu

    def cpu_seconds(self) -> float:
        """Return the CPU time that the node's pods have used so far, in seconds."""
        return cgroups.cpu_seconds(self.sandbox.pods_cgroup)

    def pod_cpu_seconds(self, uid: str) -> float | None:
        """Return the CPU seconds that a pod has used so far, or None, if it has no cgroup."""
        for cgroup in self._cgroups(uid):
            try:
                return cgroups.cpu_seconds(cgroup)
            except FileNotFoundError:
                continue
        return None

    def pod_millicores(self, uid: str) -> int | None:
        """Return the CPU limit of a running pod in millicores; None means no limit."""
        return self._read(uid, cgroups.millicores)

    def pod_weight(self, uid: str) -> int:
        return self._read(uid, cgroups.weight)

    def _read(self, uid: str, read: Callable[[str], Value]) -> Value:
        for cgroup in self._cgroups(uid):
            try:
                return read(cgroup)
            except FileNotFoundError:
                continue
        raise FileNotFoundError(f"pod {uid} has no cgroup on {self.name}")

    def pod_processes(self, uid: str, *, running: str) -> list[int]:
        """Return the ids of a pod's processes with the word `running` in their command line."""
        pids = {pid for cgroup in self._cgroups(uid) for pid in cgroups.members(cgroup)}
        return sorted(pid for pid in pids if running.encode() in _command_line(pid))

    def processes(self, *, running: str) -> list[int]:
        """Return the ids of such processes in all pods of the node."""
        pids = cgroups.members(self.sandbox.pods_cgroup)
        return sorted(pid for pid in pids if running.encode() in _command_line(pid))

    def _cgroups(self, uid: str) -> list[str]:
        """Return the possible cgroups of a pod: of a guaranteed and of a burstable pod."""
        return [
            f"{self.sandbox.pods_cgroup}/kubepods/{tier}pod{uid}" for tier in ("", "burstable/")
        ]

    def bytes_on_wire(self) -> int:
        """Return the bytes that passed the link both ways; kubelet sends a few kB per second."""
        counters = Path("/sys/class/net") / self.link / "statistics"
        return sum(int((counters / name).read_text()) for name in ("rx_bytes", "tx_bytes"))

    def bytes_in_overlay(self) -> int:
        """Return the bytes between pods that have passed the node's tunnel so far."""
        return network.bytes_in_tunnel(self.namespace)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it has ended meanwhile


def shape(node: Node, rate: str) -> None:
    """Limit the node's link to `rate` in each direction, for instance "1gbit"."""
    limit = ["root", "tbf", "rate", rate, "burst", str(burst(rate)), "latency", _LATENCY]
    for inside, device in _ends(node):
        _tc(*inside, "qdisc", "replace", "dev", device, *limit)


def burst(rate: str) -> int:
    """Return the smallest burst, in bytes, that lets a link reach `rate`."""
    match = re.fullmatch(r"(\d+)(kbit|mbit|gbit)", rate)
    if not match:
        raise ValueError(f"{rate!r} is not a rate; use for instance 100mbit or 1gbit")
    bits = int(match[1]) * _UNITS[match[2]]
    return max(_SMALLEST_BURST, int(bits / 8 * _TICK_SECONDS))


def unshape(node: Node) -> None:
    """Remove the limit of a node's link; a link without a limit stays unchanged."""
    for inside, device in _ends(node):
        shown = _tc(*inside, "qdisc", "show", "dev", device, "root")
        if "tbf" in shown:
            _tc(*inside, "qdisc", "delete", "dev", device, "root")


def _ends(node: Node) -> tuple[tuple[list[str], str], ...]:
    """Return both ends of the link: the node's (outgoing traffic) and the bridge's (incoming)."""
    return ((["-netns", node.namespace], "eth0"), ([], node.link))


def _tc(*arguments: str) -> str:
    ended = subprocess.run(["tc", *arguments], check=False, capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(f"`tc {' '.join(arguments)}` failed: {ended.stderr.strip()}")
    return ended.stdout
