"""The addresses of one testbed: a /16 of its own, so that several can share a machine."""

import fcntl
import ipaddress
import json
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SLOTS = 16
_FIRST_NETWORK = 208
_FIRST_POD_NETWORK = 16
_FIRST_PORT = 20000  # below the node ports (30000) and the ephemeral ports (32768)
_PORTS_PER_SLOT = 500
_MAXIMUM_NODES = 200


@dataclass(frozen=True)
class Addresses:
    """The addresses of a testbed, all in 10.(208 + slot).0.0/16. `slot`: its number, 0 to 15."""

    slot: int

    @property
    def network(self) -> str:
        """The network of all nodes, pods and services of this testbed."""
        return f"{self._start}.0.0/16"

    @property
    def node_network(self) -> str:
        """The network of the bridge that joins the nodes."""
        return f"{self._start}.0.0/24"

    @property
    def bridge(self) -> str:
        """The address of this machine on the nodes' bridge; the API server answers there."""
        return f"{self._start}.0.1"

    @property
    def dns(self) -> str:
        return self.bridge

    def node(self, index: int) -> str:
        """Return the address of real node `index`, counted from 0."""
        return f"{self._start}.0.{10 + _node(index)}"

    def pod_cidr(self, index: int) -> str:
        """Return the network of the pods on real node `index`."""
        return f"{self._start}.{_FIRST_POD_NETWORK + _node(index)}.0/24"

    @property
    def service_cidr(self) -> str:
        return f"{self._start}.240.0/20"

    @property
    def kubernetes_service(self) -> str:
        """The address of the Service `kubernetes`, the API server as pods know it."""
        return f"{self._start}.240.1"

    @property
    def prefix(self) -> str:
        """The prefix of the names of this testbed's links, namespaces and cgroups."""
        return f"kfx{self.slot}"

    @property
    def ports(self) -> range:
        """The range of TCP ports of this testbed."""
        first = _FIRST_PORT + self.slot * _PORTS_PER_SLOT
        return range(first, first + _PORTS_PER_SLOT)

    @property
    def _start(self) -> str:
        return f"10.{_FIRST_NETWORK + self.slot}"


def _node(index: int) -> int:
    if not 0 <= index < _MAXIMUM_NODES:
        raise ValueError(f"real node {index} is outside 0..{_MAXIMUM_NODES - 1}")
    return index


def free_ports(candidates: Sequence[int], count: int) -> list[int]:
    """Return the first `count` ports on which nothing listens, on any address."""
    free: list[int] = []
    for port in candidates:
        if len(free) == count:
            break
        with socket.socket() as probe:
            # A connection that is only closing does not block the port for a new listener.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        free.append(port)
    if len(free) < count:
        raise RuntimeError(f"fewer than {count} free TCP ports in {candidates!r}")
    return free


@contextmanager
def claim(states: Path) -> Iterator[Addresses]:
    """Yield the addresses of the first free slot, under a lock.

    The caller must write the slot to `states/NAME/slot` within the `with` block. Deleting that
    folder frees the slot, so no entry can become stale.
    """
    states.mkdir(parents=True, exist_ok=True)
    with (states / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        used = {int(file.read_text() or -1) for file in states.glob("*/slot")}
        yield choose(used, routes())


def choose(used: set[int], existing: Sequence[str]) -> Addresses:
    """Return the addresses of the first unused slot that overlap no existing route."""
    networks = [ipaddress.IPv4Network(route, strict=False) for route in existing]
    for slot in range(SLOTS):
        candidate = Addresses(slot)
        own = ipaddress.IPv4Network(candidate.network)
        if slot not in used and not any(own.overlaps(network) for network in networks):
            return candidate
    raise RuntimeError(
        f"no free network for a testbed: all {SLOTS} of 10.{_FIRST_NETWORK}.0.0/16 and following "
        "are routed elsewhere or held by other testbeds; end one with `python -m e2e.testbed down`"
    )


def routes() -> list[str]:
    """Return the destinations of this machine's IPv4 routes, without the default route."""
    try:
        shown = subprocess.run(
            ["ip", "-json", "-4", "route", "show", "table", "main"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []  # without `ip` there can be no real nodes, so the network is not used
    destinations = [route["dst"] for route in json.loads(shown.stdout or "[]")]
    return [destination for destination in destinations if destination != "default"]
