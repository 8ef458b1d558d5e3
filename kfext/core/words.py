"""Parts of sentences: numbers of pods, times, lists of names."""

from collections.abc import Sequence
from datetime import UTC, datetime

_LATEST = 4e9  # in the year 2096
CLAUSE = "; "
"""The separator of the clauses of a message; a clause has at most 25 words."""


def pods(number: int) -> str:
    """Return a number of pods in words."""
    return f"{number} pod" if number == 1 else f"{number} pods"


def nodes(number: int) -> str:
    """Return a number of nodes in words."""
    return f"{number} node" if number == 1 else f"{number} nodes"


def workers(number: int) -> str:
    """Return a number of workers in words."""
    return f"{number} worker" if number == 1 else f"{number} workers"


def rescaled(before: int, after: int) -> str:
    """Return a change of the number of workers in words."""
    return f"scaled {'down' if after < before else 'up'} from {before} to {workers(after)}"


def cpus(millicores: int) -> str:
    """Return an amount of CPU in words."""
    return "1 CPU" if millicores == 1000 else f"{millicores / 1000:g} CPUs"


def age(seconds: float | None) -> str:
    """Return a duration as kubectl prints it, or an empty string for None."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def clock(seconds: float) -> str:
    """Return a time of day in UTC. Never raises: `seconds` may be from an edited annotation."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), _LATEST), UTC).strftime("%H:%M:%S UTC")


def listed(names: Sequence[str], *, noun: str) -> str:
    """Return an English list of names: all of up to three, else two and the number of others."""
    if len(names) <= 3:
        return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more {noun}"


def listed_with_others(jobs: Sequence[str], *, others: int) -> str:
    """Return names of jobs as an English list, with the number of jobs that must not be named."""
    unnamed = "1 job of another namespace" if others == 1 else f"{others} jobs of other namespaces"
    parts = (listed(jobs, noun="jobs"), unnamed if others else "")
    return " and ".join(part for part in parts if part)


def has(jobs: str) -> str:
    """Return `has` or `have`, whichever follows this list of jobs."""
    several = " and " in jobs or (jobs[:1].isdigit() and not jobs.startswith("1 "))
    return "have" if several else "has"
