"""SpeCon: moves slowly converging jobs off the node with the most progressing jobs.

Source: Mao et al., SpeCon, arXiv 2010.11307. The choice of the target is not published, so it is
reconstructed.
"""

import math
from dataclasses import dataclass

from e2e.bench.model.mapped import TURN_SECONDS, Mapped, loss_of
from kfext.core.patches.json_patch import operations
from kfext.sim.cluster import Cluster
from kfext.sim.objects import LiveJob

_MOVE_SECONDS = 30.0
"""Seconds between two moves."""
_ALPHA = 0.1
"""A job is slow in an interval with less than this fraction of the progress of its fastest."""


@dataclass(slots=True)
class _JobProgress:
    """What SpeCon knows of a job. `slow_intervals`: how many of its last intervals were slow."""

    loss: float | None = None
    fastest: float = 0.0
    slow_intervals: int = 0
    moved: bool = False
    seen: float = -math.inf


class SpeCon(Mapped):
    """Moves slow jobs, each once, off the node with most progressing jobs; one job at a time."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._watched: dict[str, _JobProgress] = {}
        self._ticked = 0.0
        self._stopped: set[str] = set()

    def turn(self) -> None:
        now = self.cluster.clock.now
        for uid in [uid for uid in self._stopped if not self.cluster.api.jobs[uid].pods]:
            self._stopped.discard(uid)
            self._suspend(uid, suspended=False)
        for job in self.running():
            progress_of_job = self._watched.setdefault(job.uid, _JobProgress())
            if now - progress_of_job.seen >= TURN_SECONDS:
                progress_of_job.seen = now
                self._update(progress_of_job, job)
        if now - self._ticked >= _MOVE_SECONDS:
            self._ticked = now
            self._move()

    def _update(self, progress_of_job: _JobProgress, job: LiveJob) -> None:
        job.training.advance()
        if not job.training.lines:
            return
        loss = loss_of(job.training.lines[-1])
        if progress_of_job.loss is not None:
            progress = abs(progress_of_job.loss - loss) / TURN_SECONDS
            progress_of_job.fastest = max(progress_of_job.fastest, progress)
            slow = progress < _ALPHA * progress_of_job.fastest
            progress_of_job.slow_intervals = progress_of_job.slow_intervals + 1 if slow else 0
        progress_of_job.loss = loss

    def _move(self) -> None:
        load = dict.fromkeys(self.cluster.world.nodes, 0)
        for job in self.running():
            load[self.homes[job.uid]] += not self._watched[job.uid].slow_intervals
        slow = [
            job.uid
            for job in self.running()
            if self._watched[job.uid].slow_intervals and not self._watched[job.uid].moved
        ]
        if not slow:
            return
        uid = max(slow, key=lambda uid: load[self.homes[uid]])
        source, target = self.homes[uid], min(load, key=lambda node: (load[node], node))
        if load[target] + 1 < load[source]:
            self._watched[uid].moved, self.homes[uid] = True, target
            self.cluster.api.jobs[uid].training.save()
            self._stopped.add(uid)
            self._suspend(uid, suspended=True)

    def _suspend(self, uid: str, *, suspended: bool) -> None:
        live = self.cluster.api.jobs[uid]
        changes = {"spec": live.job.kind.suspend(suspended)}
        self.cluster.api.patch_job(uid, operations(live.raw, changes))
