"""Equal shares, and the shortest job first: rules that show what a policy could reach.

They know what is left of each job and how fast it is with each number of workers.
"""

import math
from collections.abc import Mapping, Sequence

from e2e.bench.model.dragon import Action, Free, Grow, Job, Running, Shrink, Start, plus, schedule
from kfext.sim.jobs import Style
from kfext.sim.objects import LiveJob

REST = 60.0
"""Seconds between two changes of the size of a job."""


class EqualShare:
    """Each job that fits starts with its fewest workers; the rest goes to the least fulfilled.

    A running job may have more than it asked for, a waiting job may not.
    """

    def __init__(self, jobs: Mapping[str, LiveJob]) -> None:
        self._jobs = jobs
        self._resized: dict[str, float] = {}

    def run(
        self, free: Free, *, waiting: Sequence[Job], running: Sequence[Running], now: float
    ) -> list[Action]:
        """Return the changes to new numbers of workers; nothing shrinks unless it is needed."""
        may = [
            run.job
            for run in running
            if run.job.least < run.job.most and self._rests(run.job.name, now)
        ]
        has = {run.job.name: len(run.workers) for run in running}
        room = sum(cpu for cpu, _ in free.values())
        room += sum((has[job.name] - job.least) * job.worker[0] for job in may)
        new = self._shared(may, waiting, room)
        grows = {job: new[job.name] for job in may if self._pays(job, has[job.name], new[job.name])}
        starts = {job: new[job.name] for job in waiting if job.name in new}
        need = sum((workers - has[job.name]) * job.worker[0] for job, workers in grows.items())
        need += sum(
            job.servers * job.server[0] + workers * job.worker[0] for job, workers in starts.items()
        )
        left, actions = dict(free), list[Action]()
        by_name = {run.job.name: run for run in running}
        for job in sorted(may, key=lambda job: -self._rest(job, job.asked)):
            short = need - sum(cpu for cpu, _ in left.values())
            gives = min(has[job.name] - new[job.name], math.ceil(short / job.worker[0]))
            if gives > 0:
                last = range(has[job.name] - gives, has[job.name])
                for index in last:
                    node = by_name[job.name].workers[index]
                    left[node] = plus(left[node], job.worker)
                actions.append(Shrink(job.name, frozenset(last)))
        for job, workers in starts.items():
            places = schedule(left, [job.server] * job.servers, [job.worker] * workers)
            if len(places.servers) == job.servers and len(places.workers) >= job.least:
                actions.append(Start(job, places.servers, places.workers))
                for pod, nodes in ((job.server, places.servers), (job.worker, places.workers)):
                    for node in nodes:
                        left[node] = plus(left[node], pod, times=-1)
        for job, workers in grows.items():
            nodes = schedule(left, [], [job.worker] * (workers - has[job.name])).workers
            for node in nodes:
                left[node] = plus(left[node], job.worker, times=-1)
            actions += [Grow(job.name, nodes)] if nodes else []
        self._resized |= {_uid(action): now for action in actions}
        return actions

    def _rests(self, name: str, now: float) -> bool:
        return now - self._resized.get(name, -math.inf) >= REST

    def _shared(self, may: Sequence[Job], waiting: Sequence[Job], room: int) -> dict[str, int]:
        """Return how many workers jobs are to have; a waiting job that is left out waits on."""
        new = {job.name: job.least for job in may}
        able = list(may)
        for job in self._in_line(waiting):
            needs = job.servers * job.server[0] + job.least * job.worker[0]
            if needs <= room:
                new[job.name] = job.least
                room -= needs
                able.append(job)
        most = {job.name: job.most for job in may}
        while able:
            job = min(able, key=lambda job: self._key(job, new[job.name]))
            if new[job.name] < most.get(job.name, job.asked) and job.worker[0] <= room:
                new[job.name] += 1
                room -= job.worker[0]
            else:
                able.remove(job)
        return new

    def _in_line(self, waiting: Sequence[Job]) -> Sequence[Job]:
        return waiting

    def _key(self, job: Job, workers: int) -> tuple[float, ...]:
        """Return what is smallest for the job that gets the next worker."""
        return workers / job.asked, job.submitted

    def _rest(self, job: Job, workers: int) -> float:
        """Return the seconds that a job still trains with so many workers."""
        training = self._jobs[job.name].training
        training.advance()
        return (training.spec.steps - training.done) * training.spec.pace.seconds(workers)

    def _pays(self, job: Job, before: int, after: int) -> bool:
        """Return whether a growth saves more than it costs."""
        spec = self._jobs[job.name].spec
        cost = 0.0 if spec.style is Style.SERVERS else spec.starts + spec.meets
        return after > before and self._rest(job, before) - self._rest(job, after) > cost


class Shortest(EqualShare):
    """The job with the least to do gets all that it asked for first, and what is left likewise."""

    def _in_line(self, waiting: Sequence[Job]) -> Sequence[Job]:
        return sorted(waiting, key=lambda job: self._rest(job, job.asked))

    def _key(self, job: Job, workers: int) -> tuple[float, ...]:
        return workers >= job.asked, self._rest(job, job.asked), job.submitted


def _uid(action: Action) -> str:
    return action.job.name if isinstance(action, Start) else action.name
