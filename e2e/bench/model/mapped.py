"""Jobs of one thread on random nodes: the base of FlowCon and SpeCon, which read their losses."""

import math
from collections.abc import Sequence
from random import Random

from kfext.model.log_line import LogLine
from kfext.sim.cluster import Cluster
from kfext.sim.objects import LiveJob, LivePod

TURN_SECONDS = 10.0
"""Seconds between two turns, and between two readings of progress by SpeCon."""


class Mapped:
    """Plain Kubernetes with each job on a random node; a `Scheduler` of the cluster.

    SpeCon's authors pinned the jobs of all their runs like this.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.homes: dict[str, str] = {}
        self._random = Random(cluster.luck)
        cluster.api.admit = lambda raw: raw
        cluster.kubelets.choose = self._choose

    def next_turn(self) -> float:
        return TURN_SECONDS * (math.floor(self.cluster.clock.now / TURN_SECONDS) + 1)

    def turn(self) -> None:
        """Act; called in each second with an event."""

    def place(self, _live: LivePod) -> str:
        return self._random.choice(tuple(self.cluster.world.nodes))

    def jobs_on(self, node: str) -> list[LiveJob]:
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
    return float(line.text.rpartition("=")[2])
