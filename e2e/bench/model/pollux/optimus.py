"""Optimus as in Pollux's published simulator: allocates each GPU where it saves most time.

Source: Peng et al., Optimus, EuroSys 2018, and `optimus` in petuum/adaptdl, branch osdi21-artifact.
At each tick all jobs get one GPU, in the order of arrival. Each further GPU goes to the job with
the largest cut of its remaining time. Step times and iterations are exact, except that Optimus
assumes that
- all nodes of a job but the last are full,
- one GPU needs two passes, even with the smallest batch,
- in the last epoch, one iteration remains.

A job that keeps its number of GPUs keeps its nodes.
"""

from collections.abc import Sequence
from functools import cache

from e2e.bench.model.pollux.application import Application, Batch
from e2e.bench.model.pollux.cluster import GPUS, Allocation, Job, most_free_first, packed

SINGLE = "ncf"
"""The model that is limited to one GPU."""


class Optimus:
    """Allocates GPUs by the time that each saves; a job keeps its requested batch."""

    def allocate(self, jobs: Sequence[Job], *, now: int) -> dict[str, Allocation]:
        """Return the allocations with the largest cuts of the remaining time."""
        by_name = {job.name: job for job in jobs}
        sizes = {name: int(rank < GPUS) for rank, name in enumerate(by_name)}
        savings = {job.name: _saved_seconds(job, 1) for job in jobs}
        for _ in range(GPUS - sum(sizes.values())):
            name = max(savings, key=lambda name: savings[name])  # the first of equals
            if savings[name] <= 0:
                break
            sizes[name] += 1
            savings[name] = _saved_seconds(by_name[name], sizes[name])
        kept = {job.name: job.allocation for job in jobs if len(job.allocation) == sizes[job.name]}
        changed = {name: size for name, size in sizes.items() if name not in kept}
        return most_free_first(kept, dict(sorted(changed.items(), key=lambda item: item[1])))

    def batch(self, job: Job) -> Batch:
        return job.application.batch(job.request.batch, len(job.allocation))


def _saved_seconds(job: Job, gpus: int) -> float:
    """Return how many seconds one more GPU than `gpus` would save until a job's end."""
    application, samples = job.application, job.request.batch
    most = 1 if application.name == SINGLE else samples // application.least_local
    if gpus >= most:
        return 0.0
    last = application.epochs - 1
    remaining = 1.0
    if job.epoch < last:
        remaining = application.iterations_until(samples, last)
        remaining -= application.iterations_until(samples, job.epoch)
    return (_step(application, samples, gpus) - _step(application, samples, gpus + 1)) * remaining


@cache
def _step(application: Application, samples: int, gpus: int) -> float:
    batch = application.batch(samples, gpus)
    if gpus == 1 and not batch.accumulated:
        batch = application.split(samples, gpus, passes=2)
    return application.step_seconds(packed(gpus), batch)
