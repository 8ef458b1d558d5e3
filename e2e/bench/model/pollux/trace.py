"""Converts a workload to a trace for `kfext simulate`: a CSV of rigid jobs."""

import csv
import io
from pathlib import Path

from e2e.bench.model.pollux.application import ceil
from e2e.bench.model.pollux.cluster import GPUS_OF_NODE, NODES, Request
from e2e.bench.model.pollux.files import read_applications, read_workload

_COLUMNS = ("name", "arrives", "workers", "seconds", "gpus")


def jobs_csv(data: Path, workload: str, *, load: float = 1.0) -> str:
    """Return the CSV of a workload; each GPU is a worker. Times are in seconds.

    The column `seconds` is the time of training with the requested size and batch, on the fastest
    number of nodes. Raises UserError.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for job in read_workload(data, read_applications(data), load=load, workload=workload):
        writer.writerow((job.name, job.submitted, job.gpus, max(1, round(_seconds(job))), 1))
    return text.getvalue()


def _seconds(job: Request) -> float:
    fewest, most = ceil(job.gpus, GPUS_OF_NODE), min(job.gpus, NODES)
    return min(
        job.application.training_seconds(job.batch, job.gpus, nodes)
        for nodes in range(fewest, most + 1)
    )
