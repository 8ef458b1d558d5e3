"""The progress of jobs for Prometheus: the only series of kfext with the names of jobs.

A job has one series of each kind, and only the newest jobs have any, so that a cluster of many jobs
does not cost Prometheus more than it expects. What comes from logs is in the values alone: no label
has the name of a metric or other text of a job's log.
"""

from collections.abc import Callable, Iterable
from heapq import nlargest

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kfext.core.progress.reported import Reported
from kfext.model.job import TrainingJob

Report = tuple[TrainingJob, Reported]

MOST_JOBS = 1000
"""Jobs that have series; of more, those created last."""
LABELS = ("namespace", "job_name", "kind")
"""`job` and `instance` are labels that Prometheus itself adds."""
_SERIES: dict[str, tuple[str, Callable[[Reported], float | None]]] = {
    "kfext_job_step": ("The last step of a job", lambda report: report.progress.step),
    "kfext_job_total_steps": (
        "The number of steps of a job, if it prints it",
        lambda report: report.progress.total,
    ),
    "kfext_job_steps_per_second": (
        "How fast the steps of a job go",
        lambda report: report.progress.rate,
    ),
    "kfext_job_metric_value": (
        "The last value of the metric by which a job is followed",
        lambda report: report.progress.value,
    ),
    "kfext_job_growth": (
        "Growth efficiency of a job in the last interval",
        lambda report: report.growth,
    ),
    "kfext_job_cpu_cores": (
        "Cores that the pods of a job use together",
        lambda report: report.cpu,
    ),
}


class JobCollector(Collector):
    """Reads at each scrape what `reports` returns: the jobs whose progress is known."""

    def __init__(self, reports: Callable[[], Iterable[Report]]) -> None:
        self._reports = reports

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield one family for each part of the progress."""
        newest = nlargest(MOST_JOBS, self._reports(), key=_age_order)
        for name, (text, value_of) in _SERIES.items():
            family = GaugeMetricFamily(name, text, labels=LABELS)
            for job, report in newest:
                value = value_of(report)
                if value is not None:
                    family.add_metric((job.namespace, job.name, job.kind.name), value)
            yield family


def _age_order(report: Report) -> tuple[float, str]:
    """Order by the time of creation, and the same at each scrape where that is equal."""
    job, _ = report
    return (job.created, job.uid)
