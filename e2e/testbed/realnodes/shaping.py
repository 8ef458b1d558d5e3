"""Make a node's link as slow as a real one."""

import re
import subprocess

from e2e.testbed.realnodes.node import Node

_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
# The kernel hands over as much as 64 KiB at once; with a smaller burst it would never pass.
_SMALLEST_BURST = 128 * 1024
_TICK_SECONDS = 0.004  # the kernel's clock at 250 Hz: what a burst must bridge
_LATENCY = "50ms"


def shape(node: Node, rate: str) -> None:
    """Limit the node's link to `rate` in each direction, for instance "1gbit"."""
    limit = ["root", "tbf", "rate", rate, "burst", str(burst(rate)), "latency", _LATENCY]
    for inside, device in _ends(node):
        _tc(*inside, "qdisc", "replace", "dev", device, *limit)


def burst(rate: str) -> int:
    """Return how many bytes may pass at once so that `rate` is reached, and hardly exceeded."""
    found = re.fullmatch(r"(\d+)(kbit|mbit|gbit)", rate)
    if not found:
        raise ValueError(f"{rate!r} is no rate such as 100mbit or 1gbit")
    bits = int(found[1]) * _UNITS[found[2]]
    return max(_SMALLEST_BURST, int(bits / 8 * _TICK_SECONDS))


def unshape(node: Node) -> None:
    """Remove the limit; a link without one is left as it is."""
    for inside, device in _ends(node):
        shown = _tc(*inside, "qdisc", "show", "dev", device, "root")
        if "tbf" in shown:
            _tc(*inside, "qdisc", "delete", "dev", device, "root")


def _ends(node: Node) -> tuple[tuple[list[str], str], ...]:
    """Return both ends of the cable: the node's (what it sends) and the bridge's (what it gets)."""
    return ((["-netns", node.namespace], "eth0"), ([], node.link))


def _tc(*arguments: str) -> str:
    ended = subprocess.run(["tc", *arguments], check=False, capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(f"`tc {' '.join(arguments)}` failed: {ended.stderr.strip()}")
    return ended.stdout
