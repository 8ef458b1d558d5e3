"""Tables of figures, with all that one needs to repeat and to doubt them."""

import math
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

from e2e.testbed import paths

_PACKAGES = ("kfext", "kopf", "aiohttp", "msgspec", "orjson", "numpy")


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie; nearest rank, nothing is smoothed.

    Infinite without values: a server that answered nothing in time.
    """
    if not values:
        return math.inf
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float], *, digits: int = 2) -> str:
    """Return median and range of repeats, e.g. `0.41 (0.39-0.58)`."""
    low, high = min(values), max(values)
    return f"{median(values):.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that is markdown and still lines up on a terminal."""
    cells = [list(head), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([f"### {title}", "", lines[0], rule, *lines[1:]])


def conditions(command: str, *, cluster: bool = True) -> str:
    """Return the lines below a table: command, machine, versions, and how busy the machine was.

    `cluster`: whether there was one.
    """
    parts = [
        f"`{command}`, commit {_commit()}, load average at the end "
        f"{'/'.join(f'{value:.1f}' for value in os.getloadavg())}.\n"
        f"{os.cpu_count()} cores ({_processor()}), {_memory()} GiB, {platform.system()} "
        f"{platform.release()}",
        f"Python {platform.python_version()}",
    ]
    if not cluster:
        return "; ".join(parts) + "."
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return (
        f"{'; '.join(parts)}, {packages}; Kubernetes {paths.KUBERNETES}, etcd {paths.ETCD}, "
        f"training-operator {paths.TRAINING_OPERATOR}, kwok {paths.KWOK}."
    )


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(paths.REPOSITORY), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip()

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
