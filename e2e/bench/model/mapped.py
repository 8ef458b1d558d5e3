"""Jobs of one thread on random nodes, for the rules of FlowCon and SpeCon.

Both rules read the losses that the jobs print.
"""

import math
from collections.abc import Sequence
from random import Random

from kfext.model.log_line import LogLine
from kfext.sim.cluster import Cluster
from kfext.sim.objects import LiveJob, LivePod

LOOK = 10.0
"""Seconds between two turns, and between two looks of SpeCon at progress."""


class Mapped:
    """Plain Kubernetes with jobs on random nodes; a `Scheduler` of the cluster.

    SpeCon's authors pinned the jobs of all their runs in this way.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.homes: dict[str, str] = {}
        self._drawn = Random(cluster.luck)
        cluster.api.admit = lambda raw: raw
        cluster.kubelets.choose = self._choose

    def next_turn(self) -> float:
        return LOOK * (math.floor(self.cluster.clock.now / LOOK) + 1)

    def turn(self) -> None:
        """Act; called in each second with an event."""

    def place(self, _live: LivePod) -> str:
        """Return the node for a new job."""
        return self._drawn.choice(tuple(self.cluster.world.nodes))

    def here(self, node: str) -> list[LiveJob]:
        return [job for job in self.running() if self.homes[job.uid] == node]

    def running(self) -> list[LiveJob]:
        jobs = self.cluster.api.jobs.values()
        return [job for job in jobs if any(pod.runs for pod in job.pods.values())]

    def _choose(self, live: LivePod, fits: Sequence[str]) -> str | None:
        uid = live.job.uid
        if uid not in self.homes:
            self.homes[uid] = self.place(live)
        return self.homes[uid] if self.homes[uid] in fits else None


def loss_of(line: LogLine) -> float:
    """Return the loss in a line that a job of the model printed."""
    return float(line.text.rpartition("=")[2])
