"""What `status` shows of a running testbed."""

from collections.abc import Iterator
from pathlib import Path

import urllib3

from e2e.testbed import process
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from e2e.testbed.fakenodes import LABEL
from e2e.testbed.readiness import is_ready


def lines(testbed: Testbed) -> Iterator[str]:
    """Describe a testbed: where it is, its processes with their memory, its nodes."""
    yield f"testbed {testbed.name}: {testbed.server}, network {testbed.addresses.network}"
    yield f"kubeconfig {testbed.kubeconfig}"
    total = 0
    for pid in sorted(process.marked(testbed.name)):
        name, resident = _describe(pid)
        total += resident
        yield f"  {pid:>8}  {resident / 2**20:6.0f} MiB  {name}"
    yield f"  memory in all: {total / 2**20:.0f} MiB"
    yield from _nodes(testbed)


def _nodes(testbed: Testbed) -> Iterator[str]:
    try:
        nodes = testbed.api.get("/api/v1/nodes")["items"]
    except (ApiError, urllib3.exceptions.HTTPError) as error:
        yield f"the API server does not answer: {error}"
        return
    fake = [node for node in nodes if node["metadata"].get("labels", {}).get(LABEL) == "fake"]
    real = [node for node in nodes if node not in fake]
    for kind, some in (("real", real), ("fake", fake)):
        yield f"{kind} nodes: {sum(is_ready(node) for node in some)} of {len(some)} ready"


def _describe(pid: int) -> tuple[str, int]:
    """Return a process's program and resident bytes; a process just ended has neither."""
    folder = Path("/proc") / str(pid)
    try:
        command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        facts = (folder / "status").read_text().splitlines()
    except OSError:
        return "(ended)", 0
    kilobytes = [int(line.split()[1]) for line in facts if line.startswith("VmRSS:")]
    return Path(command).name, sum(kilobytes) * 1024
