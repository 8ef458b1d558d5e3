"""Expected durations of jobs: from their progress, and from jobs that have ended."""

from bisect import insort
from collections.abc import Sequence
from heapq import nlargest
from statistics import median

from kfext.core.progress.reported import LATE
from kfext.core.queue.duration import USUAL_SECONDS, at_most, expected_remaining
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
        self._series_of: dict[str, tuple[str, str]] = {}
        self._lengths: dict[str, list[float]] = {}
        self._elsewhere: float | None = None

    def observe(self, job: TrainingJob) -> bool:
        """Record a job as last seen; return whether the lengths of other jobs may change."""
        length = job.run_seconds
        if length is None or job.uid in self._series_of:
            return False
        self._series_of[job.uid] = job.namespace, job.series
        self._ended.setdefault(job.series, {})[job.uid] = (job.started + length, length)
        insort(self._lengths.setdefault(job.namespace, []), length)
        self._elsewhere = None
        self._usual.pop(job.series, None)
        return True

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        namespace, series = self._series_of.pop(uid, ("", ""))
        if series:
            ended, lengths = self._ended[series], self._lengths[namespace]
            _, length = ended.pop(uid)
            lengths.remove(length)
            self._elsewhere = None
            if not lengths:
                del self._lengths[namespace]
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

    def usual(self, namespace: str = "") -> float:
        """Return the usual length of a job of a namespace: the median of the ended jobs.

        The jobs of the namespace count; without any, each other namespace counts once. Without a
        namespace it is the usual length in the cluster.
        """
        if ended := self._lengths.get(namespace):
            return max(USUAL_SECONDS, _middle(ended))
        if self._elsewhere is None:  # each waiting job of a new namespace asks for it
            lengths = self._lengths.values()
            self._elsewhere = median(map(_middle, lengths)) if lengths else 0.0
        return max(USUAL_SECONDS, self._elsewhere)

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
        left = self.shown_remaining(job, now=now) if self.runs(job) else None
        ends = [job.ends, None if left is None else now + LATE * left]
        return min((end for end in ends if end is not None), default=None)

    def runs(self, job: TrainingJob) -> bool:
        """Return whether a job counts as running."""
        return not job.suspend

    def known(self, job: TrainingJob) -> float | None:
        """Return the seconds that a waiting job takes, by its progress or its series."""
        left = self.shown_remaining(job, now=0.0)
        return self.typical(job) if left is None else left

    def is_late(self, job: TrainingJob, *, now: float) -> bool:
        """Return whether a running job takes longer than its series lets expect."""
        typical = self.typical(job)
        return typical is not None and now > job.started + at_most(typical)

    def likely_end(self, job: TrainingJob, *, now: float) -> float:
        """Return when a running job is expected to end, by an estimate if that is unknown."""
        end = self.expected_end(job, now=now)
        return now + LATE * self.remaining(job, now=now) if end is None else end

    def remaining(self, job: TrainingJob, *, now: float) -> float:
        """Return the seconds that a job has left at its present size."""
        if (left := self.shown_remaining(job, now=now)) is not None:
            return left
        runs = job.started and not job.suspend
        ran = max(0.0, now - job.started) if runs else 0.0
        usual = self.usual(job.namespace)
        return expected_remaining(self.typical(job), usual=usual, ran=ran)


def _middle(ordered: Sequence[float]) -> float:
    return ordered[len(ordered) // 2]
