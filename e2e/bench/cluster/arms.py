"""Who places the jobs, and what came of it."""

from dataclasses import dataclass, field

from e2e.bench.cluster.story import Story
from e2e.testbed.scheduler import GREEDY


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to place pods."""

    name: str
    title: str
    scheduler: str = "default-scheduler"
    managed: bool = False


PLAIN = Arm("plain", "plain Kubernetes")
GREEDILY = Arm("greedy", "greedy (MostAllocated)", scheduler=GREEDY)
KFEXT = Arm("kfext", "kfext", managed=True)
ARMS = (PLAIN, GREEDILY, KFEXT)


@dataclass(slots=True)
class Outcome:
    """All jobs under one arm; `until` is when the last ended, or when the patience was over.

    CPU seconds, capacity (core seconds) and `wire_bytes` (all links, both directions) are those of
    the time in which there was a job.
    """

    arm: Arm
    stories: list[Story] = field(default_factory=list)
    until: float = 0.0
    cpu_seconds: float = 0.0
    capacity: float = 0.0
    wire_bytes: int = 0
