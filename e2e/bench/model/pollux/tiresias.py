"""Tiresias as in Pollux's published simulator: two queues, by the GPU time a job has attained.

Source: Gu et al., Tiresias, NSDI 2019, and `tiresias` in petuum/adaptdl, branch osdi21-artifact.
The first queue has the jobs with less than 16 GPU-hours, in order of arrival; the second has the
others, in the order in which they reached this limit. At each tick the jobs get GPUs in this order;
a job that does not fit waits, and later jobs may train before it. A job that continues keeps its
GPUs.
"""

from collections.abc import Sequence

from e2e.bench.model.pollux.application import Batch
from e2e.bench.model.pollux.cluster import GPUS, Allocation, Job, most_free_first

_THRESHOLD = 16 * 3600
"""The GPU-seconds at which a job leaves the first queue."""


class Tiresias:
    """Allocates each job its requested GPUs and batch, or none."""

    def __init__(self) -> None:
        self._second: list[str] = []

    def allocate(self, jobs: Sequence[Job], *, now: int) -> dict[str, Allocation]:
        """Return the allocations of the jobs that train next, in the order of the queues."""
        by_name = {job.name: job for job in jobs}
        self._second = [name for name in self._second if name in by_name]
        above = [job.name for job in jobs if job.service >= _THRESHOLD]
        self._second += [name for name in above if name not in self._second]
        first = [name for name in by_name if name not in self._second]
        free, train = GPUS, []
        for name in (*first, *self._second):
            if (size := by_name[name].request.gpus) <= free:
                free -= size
                train.append(by_name[name])
        kept = {job.name: job.allocation for job in train if job.allocation}
        return most_free_first(
            kept, {job.name: job.request.gpus for job in train if not job.allocation}
        )

    def batch(self, job: Job) -> Batch:
        return job.application.batch(job.request.batch, len(job.allocation))
