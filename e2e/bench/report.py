"""Tables of measured values, their targets, and the conditions of a run.

A target is judged, never asserted: a miss is printed as MISS, and the benchmark continues.
"""

import math
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from e2e.testbed import paths

_PACKAGES = ("kfext", "kopf", "aiohttp", "msgspec", "orjson", "numpy")


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile `share` (0 to 1) of values by nearest rank; infinity if there are none.

    There are none if a server answered nothing in time.
    """
    if not values:
        return math.inf
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float], *, digits: int = 2) -> str:
    """Return the median and range of the values, e.g. `0.41 (0.39-0.58)`."""
    low, high = min(values), max(values)
    return f"{median(values):.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown that is also aligned on a terminal."""
    cells = [list(head), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([f"### {title}", "", lines[0], rule, *lines[1:]])


def conditions(command: str, *, cluster: bool = True) -> str:
    """Return the lines below a table: command, load, machine and versions.

    `cluster`: whether the run used a cluster.
    """
    clauses = [
        f"`{command}`, commit {_commit()}, load average at the end "
        f"{'/'.join(f'{value:.1f}' for value in os.getloadavg())}.\n"
        f"{os.cpu_count()} cores ({_processor()}), {_memory()} GiB, {platform.system()} "
        f"{platform.release()}",
        f"Python {platform.python_version()}",
    ]
    if not cluster:
        return "; ".join(clauses) + "."
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return (
        f"{'; '.join(clauses)}, {packages}; Kubernetes {paths.KUBERNETES}, etcd {paths.ETCD}, "
        f"training-operator {paths.TRAINING_OPERATOR}, kwok {paths.KWOK}."
    )


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(paths.REPOSITORY), *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        return completed.stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--", "kfext") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def verdict(kept: bool) -> str:
    return "PASS" if kept else "MISS"


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a measured value; `sense` is `<=`, `<`, `>=` or `==`."""

    sense: str
    bound: float
    unit: str = ""

    def judge(self, value: float) -> str:
        """Return a table cell: the bound, and whether the value is within it."""
        kept = {
            "<=": value <= self.bound,
            "<": value < self.bound,
            ">=": value >= self.bound,
            "==": value == self.bound,
        }[self.sense]
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.sense} {self.bound:g}{unit}: {verdict(kept)}"


REVIEW_P50 = Target("<=", 1.0, "ms")
"""The latency of a review at 200 reviews a second."""
REVIEW_P99 = Target("<=", 5.0, "ms")
REVIEW_RATE = Target(">=", 2000.0, "/s")
"""Reviews a second by one replica, over 32 connections."""
REVIEW_ERRORS = Target("==", 0.0)

GANG_RATIO = Target(">=", 0.9)
"""The bare client's time divided by kfext's, for 64 pods."""
GANG_POD_WRITES = Target("==", 1.0)

PLAN_RATE = {1000: Target(">=", 1000.0, "/s"), 5000: Target(">=", 300.0, "/s")}
"""Plans a second, by number of nodes."""

LONGEST_TICK = Target("<=", 1.0, "s")
"""CPU time of a planner tick with 5,000 nodes and 1,000 queued jobs of 200 shapes."""

TAIL_START = Target("<=", 5.0, "s")
"""The longest wait of a job that fits, behind 1,000 that do not, while ten pods end a second."""

COMPANION_TURN = Target("<=", 11.0, "s")
"""The longest time between two turns of the companion meanwhile: ten seconds plus one tick."""

FIRST_BIND_RATIO = Target("<=", 2.0)
"""From submission to the first bound pod: time with kfext divided by time without."""
ALL_BOUND_RATIO = Target("<=", 1.5)
"""The same ratio for the last bound pod."""

NEW_NODES_LATE = Target("<=", 1.5, "s")
"""How much later a gang is whole than on plain Kubernetes, less the wait until kfext asks."""
NEW_NODES_POD_WRITES = Target("<=", 2.0)
"""Placeholder writes per pod."""

QUEUE_CPU = Target("<=", 12.0, "s")
"""CPU time of the controller until 1,000 queued jobs are planned and all their pods ungated."""
LIVE_MEMORY = Target("<", 300.0, "MB")
"""The memory of the controller at 5,000 nodes, 50,000 pods and 1,000 live jobs."""
LIVE_PLAN_RATE = Target(">=", 300.0, "/s")
"""Decisions a second on 5,000 nodes, by the controller's own histogram."""
IDLE_CPU = Target("<", 1.0, "%")
"""The CPU of the controller with 1,000 queued jobs that do not fit, once calm."""
IDLE_WRITES = Target("==", 0.0)
"""API writes meanwhile, except to the Lease."""
WHY_NOT = Target("<=", 1.0, "s")
"""From the submission of a job that does not fit to the message with the reason."""
WHY_NOT_AT_ONCE = Target("<=", 2.0, "s")
"""The same time for 1,000 jobs submitted at once, p99."""

GANGS_TO_PLAIN = Target(">=", 0.75)
"""Gangs a second with kfext divided by gangs a second without; 50 gangs of 8 at once."""
GANGS_TO_KUEUE = {50: Target(">=", 1.2), 200: Target(">=", 1.1)}
"""Gangs a second with kfext divided by gangs a second with Kueue, by the number of gangs."""
CPU_TO_KUEUE = Target("<", 1.0)
"""CPU seconds of the whole testbed: kfext divided by Kueue."""

NETWORK_GAIN = Target(">=", 20.1, "%")
"""Training time that one node and the host network save against two nodes and the overlay: the
largest gain that CMS-DL has published for one job."""
UNLIMITED_SPEED = Target(">=", 0.97)
"""Speed of a job without a CPU limit in kfext's placement, divided by the speed on two nodes."""

SENDING = Target("<", 50.0, "%")
"""The fraction of its CPU that a pod uses to send and receive during a timed wait."""

FAVOURED_SHARE = Target("<=", 5.0, "%")
"""How far the CPU of a spinning pod with a raised request is from its expected CPU."""

OVERHEAD = Target("<", 1.0, "%")
"""The slowdown of training if its progress is read, or if it may be resized."""

GUARD_ACTS = Target("<=", 35.0, "s")
"""From a gang's arrival until kfext scales a donor down; 30 s of it are a deliberate wait."""
GANG_BOUND = Target("<=", 15.0, "s")
"""From the end of the donor's last removed pod until the gang is bound."""
TORCHRUN_PAUSE = {"in": Target("<", 19.0, "s"), "out": Target("<", 10.0, "s")}
"""The pause of training while a torchrun job is scaled down (`in`) and up (`out`). The bounds are
an elastic torchrun's pauses on the same nodes without kfext, from the edit of its size on."""
LOST_STEPS = Target("==", 0.0)
"""The number of times that a job resumed from a step before its last saved step."""
LOSS_TOLERANCE = {"PyTorchJob": Target("<=", 0.1, "%"), "TFJob": Target("<=", 2.0, "%")}
"""How far the last loss of a rescaled job is from an undisturbed job's. TFJob workers do not wait
for each other, so they use slightly old weights, which differ in each run."""

HIGH_LOSS = Target("<=", 1.0, "%")
"""The fraction of its speed that a high-priority job loses beside a low-priority job."""
LOW_EFFICIENCY = {0.5: Target(">=", 0.9), 0.8: Target(">=", 0.85)}
"""The low-priority job's speed as a fraction of its bound on a card that runs one kernel at a time;
the key is the high-priority job's utilisation."""
HOOK_OVERHEAD = Target("<=", 0.5, "%")
"""The slowdown of a job alone on its card by the hook."""
GROUP_COMPLETION = Target("<=", -20.0, "%")
"""The change of the time until six jobs have ended, against one job at a time on the card."""
GROUP_UTILISATION = Target(">=", 10.0, "points")
"""The increase of the fraction of time in which the card is busy meanwhile."""
