"""Expected durations of jobs: from their progress, and from jobs that have ended."""

from bisect import insort
from collections.abc import Sequence
from heapq import nlargest
from statistics import median

from kfext.core.progress.reported import LATE
from kfext.core.queue.duration import USUAL_SECONDS, expected_remaining, late_after
from kfext.model.job import TrainingJob
from kfext.state.reports.progress import JobsProgress

_MAX_ENDED = 16
"""The typical duration of a series is the median of this many jobs, which ended last."""


class DurationEstimates:
    """Estimates of the durations of jobs, in seconds. Times are epoch seconds."""

    def __init__(self, progress: JobsProgress) -> None:
        self._progress = progress
        self._ended: dict[str, dict[str, tuple[float, float]]] = {}  # by series, uid: end, duration
        self._typical: dict[str, float] = {}
        self._series_of: dict[str, tuple[str, str]] = {}
        self._durations: dict[str, list[float]] = {}
        self._overall: float | None = None

    def observe(self, job: TrainingJob) -> bool:
        """Record a job as last seen; return whether the estimates of other jobs may change."""
        duration = job.run_seconds
        if duration is None or job.uid in self._series_of:
            return False
        self._series_of[job.uid] = job.namespace, job.series
        self._ended.setdefault(job.series, {})[job.uid] = (job.started + duration, duration)
        insort(self._durations.setdefault(job.namespace, []), duration)
        self._overall = None
        self._typical.pop(job.series, None)
        return True

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        namespace, series = self._series_of.pop(uid, ("", ""))
        if series:
            ended, durations = self._ended[series], self._durations[namespace]
            _, duration = ended.pop(uid)
            durations.remove(duration)
            self._overall = None
            if not durations:
                del self._durations[namespace]
            self._typical.pop(series, None)
            if not ended:
                del self._ended[series]

    def typical(self, job: TrainingJob) -> float | None:
        """Return the median duration of the last ended jobs of its series, if any."""
        series = job.series
        if series not in self._ended:
            return None
        if series not in self._typical:
            last = nlargest(_MAX_ENDED, self._ended[series].values())
            self._typical[series] = median(duration for _, duration in last)
        return self._typical[series]

    def usual(self, namespace: str = "") -> float:
        """Return the median duration of a namespace's ended jobs, at least USUAL_SECONDS.

        Without such jobs, or without a namespace, it is the median of the namespaces' medians.
        """
        if ended := self._durations.get(namespace):
            return max(USUAL_SECONDS, _middle(ended))
        if self._overall is None:  # each waiting job of a new namespace needs it
            durations = self._durations.values()
            self._overall = median(map(_middle, durations)) if durations else 0.0
        return max(USUAL_SECONDS, self._overall)

    def shown_remaining(self, job: TrainingJob, *, now: float) -> float | None:
        """Return the remaining seconds of a job by its progress at `now`, or None.

        A suspended job keeps its last known remaining time.
        """
        reported = self._progress.reported(job.uid)
        if reported is None or job.suspend:
            return None if reported is None else reported.progress.remaining
        return reported.progress.remaining_at(now, since=job.started)

    def expected_end(self, job: TrainingJob, *, now: float) -> float | None:
        """Return when a running job should end by its progress or its deadline, or None."""
        left = self.shown_remaining(job, now=now) if self.runs(job) else None
        ends = [job.ends, None if left is None else now + LATE * left]
        return min((end for end in ends if end is not None), default=None)

    def runs(self, job: TrainingJob) -> bool:
        """Return whether a job counts as running."""
        return not job.suspend

    def known(self, job: TrainingJob) -> float | None:
        """Return the expected duration of a waiting job, from its progress or series, or None."""
        left = self.shown_remaining(job, now=0.0)
        return self.typical(job) if left is None else left

    def is_late(self, job: TrainingJob, *, now: float) -> bool:
        """Return whether a running job takes longer than its series suggests."""
        typical = self.typical(job)
        return typical is not None and now > job.started + late_after(typical)

    def likely_end(self, job: TrainingJob, *, now: float) -> float:
        """Return when a running job should end; without progress and deadline, by an estimate."""
        end = self.expected_end(job, now=now)
        return now + LATE * self.remaining(job, now=now) if end is None else end

    def remaining(self, job: TrainingJob, *, now: float) -> float:
        """Return the remaining seconds of a job at its present size; at worst, an estimate."""
        if (left := self.shown_remaining(job, now=now)) is not None:
            return left
        runs = job.started and not job.suspend
        ran = max(0.0, now - job.started) if runs else 0.0
        usual = self.usual(job.namespace)
        return expected_remaining(self.typical(job), usual=usual, ran=ran)


def _middle(ordered: Sequence[float]) -> float:
    return ordered[len(ordered) // 2]
