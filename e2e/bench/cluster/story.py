"""What happened to one job, as a look at the cluster every second tells it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from e2e.bench.cluster.workload import TrainingJob
from e2e.harness.look import ended
from e2e.testbed.realnodes import Node

Object = dict[str, Any]


@dataclass(slots=True)
class Story:
    """One job under one arm; times are seconds since the arm began, None for what never was.

    `started` is when the first pod ran, `whole` when all of them did, `cpu_seconds` by pod uid.
    """

    job: TrainingJob
    submitted: float
    started: float | None = None
    whole: float | None = None
    ended: float | None = None
    outcome: str = ""
    homes: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)

    def see(self, body: Object, pods: Iterable[Object], *, now: float) -> None:
        """Note what job and pods look like now."""
        running = 0
        for pod in pods:
            metadata, status = pod["metadata"], pod["status"]
            if node := pod["spec"].get("nodeName"):
                self.homes[metadata["name"]] = node
            running += status.get("phase") in ("Running", "Succeeded")
            counts = [one["restartCount"] for one in status.get("containerStatuses", [])]
            self.restarts = max([self.restarts, *counts])
        if running and self.started is None:
            self.started = now
        if running == self.job.pods and self.whole is None:
            self.whole = now
        if outcome := ended(body):
            self.ended, self.outcome = now, outcome

    def see_cpu(self, pods: Iterable[Object], nodes: dict[str, Node]) -> None:
        """Note the CPU time of each pod while its cgroup is there."""
        for pod in pods:
            node = nodes.get(pod["spec"].get("nodeName", ""))
            uid = pod["metadata"]["uid"]
            if node and (used := node.pod_cpu_seconds(uid)) is not None:
                self.cpu_seconds[uid] = used

    @property
    def trained(self) -> bool:
        """Whether the job came to its end, and a good one."""
        return self.outcome == "Succeeded"

    def training(self, until: float) -> float:
        """Return the seconds from its first running pod to its end; `until` for one without end."""
        return self._end(until) - (until if self.started is None else self.started)

    def elapsed(self, until: float) -> float:
        """Return the seconds from its submission to its end."""
        return self._end(until) - self.submitted

    def held_in_part(self, until: float) -> float:
        """Return the seconds in which some of its pods ran and the others did not yet."""
        if self.started is None:
            return 0.0
        return (self._end(until) if self.whole is None else self.whole) - self.started

    def _end(self, until: float) -> float:
        return until if self.ended is None else self.ended
