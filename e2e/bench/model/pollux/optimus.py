"""Optimus as in Pollux's published simulator: each GPU is allocated where it saves most time.

Source: Peng et al., Optimus, EuroSys 2018, and `optimus` in petuum/adaptdl, branch osdi21-artifact.
At each tick all jobs get one GPU, in the order of arrival. Each further GPU is for the job with the
largest cut of its remaining time. Step times and iterations are the true ones, with three
exceptions:
- All nodes of a job but the last are full.
- One GPU needs two passes, even with the smallest batch.
- In the last epoch, one iteration remains.

A job that keeps its number of GPUs keeps its nodes.
"""

from collections.abc import Sequence
from functools import cache

from e2e.bench.model.pollux.application import Application, Batch
from e2e.bench.model.pollux.cluster import GPUS, Allocation, Job, most_free_first, packed

SINGLE = "ncf"
"""The model that is limited to one GPU."""


class Optimus:
    """Allocates GPUs by the time that they save; a job has its requested batch."""

    def allocate(self, jobs: Sequence[Job], *, now: int) -> dict[str, Allocation]:
        """Return the allocations with the largest cuts of the remaining time."""
        by_name = {job.name: job for job in jobs}
        sizes = {name: int(rank < GPUS) for rank, name in enumerate(by_name)}
        cuts = {job.name: _cut(job, 1) for job in jobs}
        for _ in range(GPUS - sum(sizes.values())):
            name = max(cuts, key=lambda name: cuts[name])  # the first of equals
            if cuts[name] <= 0:
                break
            sizes[name] += 1
            cuts[name] = _cut(by_name[name], sizes[name])
        kept = {job.name: job.allocation for job in jobs if len(job.allocation) == sizes[job.name]}
        others = {name: size for name, size in sizes.items() if name not in kept}
        return most_free_first(kept, dict(sorted(others.items(), key=lambda item: item[1])))

    def batch(self, job: Job) -> Batch:
        return job.application.batch(job.request.batch, len(job.allocation))


def _cut(job: Job, gpus: int) -> float:
    """Return the seconds that another GPU saves until the end of a job."""
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
    """Return the estimated seconds of a step."""
    batch = application.batch(samples, gpus)
    if gpus == 1 and not batch.accumulated:
        batch = application.split(samples, gpus, passes=2)
    return application.step_seconds(packed(gpus), batch)
