"""Expected durations of jobs: from their progress, and from jobs that have ended."""

from heapq import nlargest
from statistics import median

from kfext.core.progress.reported import LATE
from kfext.core.queue.duration import expected_remaining
from kfext.model.job import TrainingJob
from kfext.state.reports.progress import JobsProgress

_MOST_ENDED = 16
"""The last ended jobs of a series that count."""


class DurationEstimates:
    """The durations of the jobs that exist. Times are epoch seconds."""

    def __init__(self, progress: JobsProgress) -> None:
        self._progress = progress
        self._ended: dict[str, dict[str, tuple[float, float]]] = {}
        self._usual: dict[str, float] = {}
        self._series_of: dict[str, str] = {}

    def observe(self, job: TrainingJob) -> bool:
        """Record a job as last seen; return whether the lengths of other jobs may change."""
        length = job.took
        if length is None or job.uid in self._series_of:
            return False
        self._series_of[job.uid] = job.series
        self._ended.setdefault(job.series, {})[job.uid] = (job.started + length, length)
        self._usual.pop(job.series, None)
        return True

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        series = self._series_of.pop(uid, "")
        if series:
            ended = self._ended[series]
            del ended[uid]
            self._usual.pop(series, None)
            if not ended:
                del self._ended[series]

    def typical(self, job: TrainingJob) -> float | None:
        """Return the median length of the last ended jobs of its series; None without such jobs."""
        series = job.series
        if series not in self._ended:
            return None
        if series not in self._usual:
            last = nlargest(_MOST_ENDED, self._ended[series].values())
            self._usual[series] = median(length for _, length in last)
        return self._usual[series]

    def shown_remaining(self, job: TrainingJob, *, now: float) -> float | None:
        """Return the seconds that a job has left by its progress at `now`; None: unknown.

        A suspended job keeps its last known remaining time.
        """
        reported = self._progress.reported(job.uid)
        if reported is None or job.suspend:
            return None if reported is None else reported.progress.left
        return reported.progress.left_at(now, since=job.started)

    def expected_end(self, job: TrainingJob, *, now: float) -> float | None:
        """Return when a running job ends by its progress or its deadline; None: unknown."""
        left = None if job.suspend else self.shown_remaining(job, now=now)
        ends = [job.ends, None if left is None else now + LATE * left]
        return min((end for end in ends if end is not None), default=None)

    def remaining(self, job: TrainingJob, *, now: float) -> float:
        """Return the seconds that a job has left at its present size."""
        if (left := self.shown_remaining(job, now=now)) is not None:
            return left
        runs = job.started and not job.suspend
        ran = max(0.0, now - job.started) if runs else 0.0
        return expected_remaining(self.typical(job), ran=ran)
