"""Make a node's link as slow as a real one."""

import subprocess

from e2e.testbed.realnodes.node import Node

# What may pass at once: smaller than one packet as large as the kernel hands over (64 KiB) and
# nothing would pass; at 10 Gbit/s a timer tick of 250 Hz needs the larger value.
_BURST = "5mb"
_LATENCY = "50ms"


def shape(node: Node, rate: str) -> None:
    """Limit the node's link to `rate` in each direction, for instance "1gbit"."""
    limit = ["root", "tbf", "rate", rate, "burst", _BURST, "latency", _LATENCY]
    for inside, device in _ends(node):
        _tc(*inside, "qdisc", "replace", "dev", device, *limit)


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
