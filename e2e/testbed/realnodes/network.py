"""The network of the real nodes: a bridge, a namespace for each node, an overlay for their pods.

The bridge is the switch between the nodes. Pods on different nodes communicate through VXLAN
tunnels, as in a cluster with flannel, so that their traffic has the same overhead. The cluster's
DNS server listens on the machine's address on the bridge.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

_VXLAN = ["type", "vxlan", "id", "42", "dstport", "4789", "dev", "eth0", "nolearning"]
_TUNNEL = "vx0"
DNS_PROCESS = "coredns"
# The TTL is only 5 s because the pods of a resumed job have the same names on different nodes.
_CONFIG = """\
.:53 {{
    bind {address}
    errors
    hosts {{
{nodes}
        fallthrough
    }}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        ttl 5
    }}
}}
"""


def node_name(index: int) -> str:
    """Return the name of a real node in the cluster."""
    return f"node-{index}"


def namespace(testbed: Testbed, index: int) -> str:
    """Return the name of a node's network namespace on this machine."""
    return f"{testbed.addresses.prefix}-{node_name(index)}"


def link(testbed: Testbed, index: int) -> str:
    """Return the name of a node's link at the end of the bridge; the node's end is eth0."""
    return f"{testbed.addresses.prefix}n{index}"


def make_network(testbed: Testbed, count: int) -> None:
    """Make the bridge and the namespaces of all nodes, and connect them."""
    _make_bridge(testbed)
    for index in range(count):
        _make_namespace(testbed, index)
        _make_tunnel(testbed, index, count)
        _reach_api_server(testbed, index)
        # The API server must reach webhooks, and observers must reach pods.
        _ip("route", "add", testbed.addresses.pod_cidr(index), "via", testbed.addresses.node(index))


def bytes_in_tunnel(namespace: str) -> int:
    """Return the bytes that have passed a node's tunnel, as the sum of both directions."""
    (shown,) = json.loads(_ip("-json", "-statistics", "link", "show", _TUNNEL, inside=namespace))
    return sum(int(shown["stats64"][direction]["bytes"]) for direction in ("rx", "tx"))


def _make_bridge(testbed: Testbed) -> None:
    bridge = testbed.addresses.prefix
    testbed.record.add("link", bridge)
    _ip("link", "add", bridge, "type", "bridge")
    _ip("address", "add", f"{testbed.addresses.bridge}/24", "dev", bridge)
    _ip("link", "set", bridge, "up")
    # A firewall on this machine (Docker's, ufw's) drops unknown traffic.
    for rule in (("INPUT", "-i", bridge), ("FORWARD", "-i", bridge), ("FORWARD", "-o", bridge)):
        chain, *matches = (*rule, "-j", "ACCEPT")
        testbed.record.add("iptables", "-D", chain, *matches)
        _run("iptables", "-w", "-I", chain, *matches)


def _make_namespace(testbed: Testbed, index: int) -> None:
    addresses, name, veth = testbed.addresses, namespace(testbed, index), link(testbed, index)
    testbed.record.add("netns", name)
    _ip("netns", "add", name)
    testbed.record.add("link", veth)
    _ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", veth, "master", addresses.prefix, "up")
    _ip("link", "set", "lo", "up", inside=name)
    _ip("address", "add", f"{addresses.node(index)}/24", "dev", "eth0", inside=name)
    _ip("link", "set", "eth0", "up", inside=name)
    _ip("route", "add", "default", "via", addresses.bridge, inside=name)
    # A shell inside writes it, because /proc/sys/net shows the network namespace of its reader.
    forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
    _run("ip", "netns", "exec", name, "sh", "-c", forward)


def _make_tunnel(testbed: Testbed, index: int, count: int) -> None:
    """Connect the node's pods with the pods of every other node."""
    addresses, name = testbed.addresses, namespace(testbed, index)
    own = ["local", addresses.node(index)]
    _ip("link", "add", _TUNNEL, "address", _mac(index), *_VXLAN, *own, inside=name)
    _ip("address", "add", f"{_tunnel_address(testbed, index)}/32", "dev", _TUNNEL, inside=name)
    _ip("link", "set", _TUNNEL, "up", inside=name)
    for peer in range(count):
        if peer == index:
            continue
        gateway = _tunnel_address(testbed, peer)
        hop = ["via", gateway, "dev", _TUNNEL, "onlink"]
        _ip("route", "add", addresses.pod_cidr(peer), *hop, inside=name)
        neighbour = [gateway, "lladdr", _mac(peer), "dev", _TUNNEL, "nud", "permanent"]
        _ip("neighbour", "add", *neighbour, inside=name)
        entry = ["fdb", "add", _mac(peer), "dev", _TUNNEL, "dst", addresses.node(peer)]
        _run("bridge", "-netns", name, *entry)


def _reach_api_server(testbed: Testbed, index: int) -> None:
    target = f"{testbed.addresses.bridge}:{testbed.apiserver_port}"
    route_service(testbed, index, testbed.addresses.kubernetes_service, target=target)


def route_service(
    testbed: Testbed, index: int, address: str, *, target: str, ends: bool = False
) -> None:
    """Redirect port 443 of a Service to `target` on a node; with `ends`, undo an earlier call."""
    action = "-D" if ends else "-A"
    service = ["-d", address, "-p", "tcp", "--dport", "443"]
    for chain in ("PREROUTING", "OUTPUT"):  # for pods, and for pods on the host network
        rule = ["-t", "nat", action, chain, *service, "-j", "DNAT", "--to-destination", target]
        _run("ip", "netns", "exec", namespace(testbed, index), "iptables", "-w", *rule)


def _tunnel_address(testbed: Testbed, index: int) -> str:
    return testbed.addresses.pod_cidr(index).partition("/")[0]


def _mac(index: int) -> str:
    return f"02:42:00:00:00:{index:02x}"


def _ip(*arguments: str, inside: str | None = None) -> str:
    return _run("ip", *(["-netns", inside] if inside else []), *arguments)


def _run(*command: str) -> str:
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` failed: {ended.stderr.strip()}")
    return ended.stdout


def start_dns(testbed: Testbed, nodes: int) -> None:
    """Serve the names of Services, pods and real nodes."""
    # A pod on the host network resolves its own address by the name of its node.
    hosts = [f"{testbed.addresses.node(i)} {node_name(i)}" for i in range(nodes)]
    config = testbed.folder / "Corefile"
    config.write_text(
        _CONFIG.format(
            address=testbed.addresses.dns,
            nodes="\n".join(f"        {host}" for host in hosts),
            kubeconfig=testbed.kubeconfig,
        )
    )
    testbed.start_process([str(testbed.binary("coredns")), f"-conf={config}"], name=DNS_PROCESS)
