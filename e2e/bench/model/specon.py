"""SpeCon: a job that converges slowly moves off the node with most progressing jobs.

Source: Mao et al., SpeCon, arXiv 2010.11307. The choice of the target is not published, so it is
reconstructed.
"""

import math
from dataclasses import dataclass

from e2e.bench.model.mapped import LOOK, Mapped, loss_of
from kfext.core.patches.json_patch import operations
from kfext.sim.cluster import Cluster
from kfext.sim.objects import LiveJob

_TICK = 30.0
"""Seconds between two moves."""
_ALPHA = 0.1
"""A job is slow if it progresses less than this part of its fastest interval."""


@dataclass(slots=True)
class _JobProgress:
    """A job as SpeCon sees it; `below`: the number of consecutive intervals of slow progress."""

    loss: float | None = None
    fastest: float = 0.0
    below: int = 0
    moved: bool = False
    seen: float = -math.inf


class SpeCon(Mapped):
    """Moves slow jobs, once each, off the node with most progressing jobs; one move a tick."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._watched: dict[str, _JobProgress] = {}
        self._ticked = 0.0
        self._stopped: set[str] = set()

    def turn(self) -> None:
        """Look at the progress of all jobs; move a job if a move is due."""
        now = self.cluster.clock.now
        for uid in [uid for uid in self._stopped if not self.cluster.api.jobs[uid].pods]:
            self._stopped.discard(uid)
            self._suspend(uid, suspended=False)
        for job in self.running():
            watched = self._watched.setdefault(job.uid, _JobProgress())
            if now - watched.seen >= LOOK:
                watched.seen = now
                self._judge(watched, job)
        if now - self._ticked >= _TICK:
            self._ticked = now
            self._move()

    def _judge(self, watched: _JobProgress, job: LiveJob) -> None:
        job.training.advance()
        if not job.training.lines:
            return
        loss = loss_of(job.training.lines[-1])
        if watched.loss is not None:
            progress = abs(watched.loss - loss) / LOOK
            watched.fastest = max(watched.fastest, progress)
            slow = progress < _ALPHA * watched.fastest
            watched.below = watched.below + 1 if slow else 0
        watched.loss = loss

    def _move(self) -> None:
        load = dict.fromkeys(self.cluster.world.nodes, 0)
        for job in self.running():
            load[self.homes[job.uid]] += not self._watched[job.uid].below
        slow = [
            job.uid
            for job in self.running()
            if self._watched[job.uid].below and not self._watched[job.uid].moved
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
