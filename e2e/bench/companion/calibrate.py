"""Whether caps do on this node what arithmetic says: the ground that the comparison stands on.

n pods spin, twice without caps (A/A); then all but one are capped at 1/(n+1) of the node, as
FlowCon caps jobs that have converged. The one that is left must get 2/(n+1), each of the others its
cap.
"""

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from e2e.bench.companion.pods import REQUEST, Pod, Pods, running
from e2e.bench.report import table
from e2e.bench.store import Store
from e2e.bench.targets import CAPPED_SHARE
from e2e.harness.wait import until
from e2e.testbed.images import PAUSE_IMAGE
from e2e.testbed.progress import step

Object = dict[str, Any]
COUNTS = (3, 10)
_SPIN = ("/bin/busybox", "sh", "-c", "while :; do :; done")
_SETTLE_SECONDS = 5.0
_SECONDS, _QUICK_SECONDS = 30.0, 10.0


def complete(store: Store) -> bool:
    """Return whether everything is stored."""
    return all(store.find(_name(count)) for count in COUNTS)


def measure(pods: Pods, store: Store, *, quick: bool) -> None:
    """Measure what is not stored yet, and store it."""
    for count in COUNTS:
        if store.find(_name(count)) is None:
            with step(f"calibrate with {count} spinning pods"):
                store.put(_name(count), _one(pods, count, quick=quick))


def _name(count: int) -> str:
    return f"spinning-{count}"


def _one(pods: Pods, count: int, *, quick: bool) -> Object:
    """Return the shares of the node that spinning pods get without caps and with them."""
    seconds = _QUICK_SECONDS if quick else _SECONDS
    for number in range(count):
        pods.bed.api.create(pods.path, _spinning(f"spin-{number}"))
    spinning = until(lambda: _all_running(pods, count), what=f"{count} pods spin")
    try:
        free = [_shares(pods, spinning, seconds=seconds) for _ in range(2)]
        cap = round(pods.node.millicores / (count + 1))
        for pod in spinning[1:]:
            if not pods.cap(pod, cap):
                raise RuntimeError(f"{pod.name} cannot be capped at {cap}m")
        until(lambda: _capped(pods) == count - 1, what=f"{count - 1} pods are capped")
        capped = _shares(pods, spinning, seconds=seconds)
        return {"free": free[0], "free again": free[1], "capped": capped}
    finally:
        pods.bed.api.delete(f"{pods.path}?gracePeriodSeconds=0")
        until(lambda: not pods.bodies(), what="no pod is left")


def _spinning(pod: str) -> Object:
    resources = {"requests": {"cpu": REQUEST, "memory": "1Mi"}}
    container = {
        "name": "main",
        "image": PAUSE_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(_SPIN),
        "resources": resources,
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec}


def _all_running(pods: Pods, count: int) -> list[Pod] | None:
    found = running(pods.bodies())
    return found if len(found) == count else None


def _capped(pods: Pods) -> int:
    """Return how many pods have a limit according to their kubelet."""
    statuses = [body["status"]["containerStatuses"][0] for body in pods.bodies()]
    return sum("limits" in one.get("resources", {}) for one in statuses)


def _shares(pods: Pods, spinning: Sequence[Pod], *, seconds: float) -> list[float]:
    """Return which share of the node each pod gets, once what was changed has settled."""
    time.sleep(_SETTLE_SECONDS)
    began, before = time.monotonic(), [pods.cpu_seconds(pod) or 0.0 for pod in spinning]
    time.sleep(seconds)
    after = [pods.cpu_seconds(pod) or 0.0 for pod in spinning]
    whole = (time.monotonic() - began) * pods.node.millicores / 1000
    return [(then - now) / whole for now, then in zip(before, after, strict=True)]


def table_of(store: Store) -> str:
    """Return the shares beside those of arithmetic, and whether they are near enough."""
    rows = []
    for count in COUNTS:
        found = store.find(_name(count))
        if found is not None:
            rows += _rows(count, found)
    head = ("pods", "cap of the others", "pod", "share of the node", "arithmetic", "off by", "")
    return table("Calibration: pods that spin, all but one capped", head, rows)


def _rows(count: int, found: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    fair, cap = 1 / count, 1 / (count + 1)
    free, (first, *others) = found["free"], found["capped"]
    return [
        _row(f"{count}", "none", "each", free, fair),
        _row("", "none, again (A/A)", "each", found["free again"], fair),
        _row("", f"{cap:.3f}", "the one left free", [first], 2 * cap),
        _row("", "", "each of the others", others, cap),
    ]


def _row(
    count: str, cap: str, who: str, shares: Sequence[float], expected: float
) -> tuple[str, ...]:
    low, high = min(shares), max(shares)
    seen = f"{median(shares):.3f}" + (f" ({low:.3f}-{high:.3f})" if len(shares) > 1 else "")
    off = max(abs(share / expected - 1) for share in shares)
    judged = "" if cap.startswith("none") else CAPPED_SHARE.judge(100 * off)
    return count, cap, who, seen, f"{expected:.3f}", f"{100 * off:.1f} %", judged
