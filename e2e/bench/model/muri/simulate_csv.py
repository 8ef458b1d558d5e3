"""Published jobs as a CSV for `kfext simulate`: name, arrives, workers, seconds and gpus.

`arrives` and `seconds` are whole seconds. A job has equal workers, as few as possible with at most
the GPUs of a node; `gpus` is the number of GPUs of each worker.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from e2e.bench.model.muri.files import Line, lines
from e2e.bench.model.muri.trace import read_jobs
from kfext.errors import UserError

_HEAD = "name,arrives,workers,seconds,gpus"
_PER_NODE = 8
"""The GPUs of the largest nodes of Philly."""


class _Request(NamedTuple):
    """A job with its requested GPUs; times in seconds."""

    name: str
    arrives: float
    seconds: float
    gpus: int


def jobs_csv(data: Path, trace: str) -> str:
    """Return the CSV of a trace such as trace1; the jobs have as much work as in `replay`.

    `data`: the folder with muri/. Raises UserError.
    """
    return _csv(
        _Request(f"job-{job.name}", job.submitted, job.iterations * job.seconds, job.gpus)
        for job in read_jobs(data / "muri" / f"{trace}.csv")
    )


def philly_csv(data: Path, *, cluster: str, start: datetime, hours: float) -> str:
    """Return the CSV of a virtual cluster's jobs in Philly that arrived in the hours after `start`.

    `data`: the folder with pollux/. The name of a job has the number of its line in philly.csv.
    Raises UserError.
    """
    path, until = data / "pollux" / "philly.csv", start + timedelta(hours=hours)
    jobs = [
        _Request(
            f"job-{line.number}",
            (arrived - start).total_seconds(),
            line.value_of("duration"),
            int(line.value_of("num_gpus", least=1)),
        )
        for line in lines(path, ("timestamp", "duration", "num_gpus", "cluster"))
        if line.cells["cluster"] == cluster and start <= (arrived := _time(line)) < until
    ]
    if not jobs:
        raise UserError(f"{path} has no job of cluster {cluster!r} from {start} until {until}")
    return _csv(sorted(jobs, key=lambda job: job.arrives))


def _time(line: Line) -> datetime:
    text = line.cells["timestamp"]
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise UserError(f"{line.where}: timestamp {text!r} is not a time: {error}") from error


def _csv(jobs: Iterable[_Request]) -> str:
    rows = [_HEAD]
    for name, arrives, seconds, gpus in jobs:
        per_worker = max(count for count in range(1, _PER_NODE + 1) if gpus % count == 0)
        rows.append(
            f"{name},{round(arrives)},{gpus // per_worker},{max(1, round(seconds))},{per_worker}"
        )
    return "\n".join(rows) + "\n"
