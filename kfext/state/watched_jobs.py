"""The jobs that the companion watches: which they are, and what is seen of them."""

from collections.abc import Callable

from kfext import names
from kfext.core.companion.choices import chosen_policies
from kfext.core.companion.restoring import is_resized
from kfext.core.companion.shown import Shown
from kfext.core.companion.signals import JobSignal, Signals
from kfext.core.companion.stand_down import why_stand_down
from kfext.core.settings.table import Settings
from kfext.model.cpu_state import CpuState
from kfext.model.pod import Pod
from kfext.model.policy import PolicyChoice
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.failures import Failures
from kfext.state.progress import JobsProgress
from kfext.state.shown_jobs import ShownJobs
from kfext.state.signals import job_signal, signals_of
from kfext.state.tracked_job import TrackedJob
from kfext.state.watched_job import (
    WatchedJob,
    all_measured,
    is_whole,
    live_pods,
    watch,
    why_unread,
)


class WatchedJobs:
    """The watched jobs `by_uid`; `shown` keeps what is to be shown of them.

    `settings_of` returns what holds for a job; `paused` whether nothing is tried on it for now.
    """

    def __init__(
        self,
        cluster: Cluster,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
        paused: Callable[[WatchedJob, float], bool],
        failures: Failures,
    ) -> None:
        self.by_uid: dict[str, WatchedJob] = {}
        self.shown = ShownJobs()
        self._cluster = cluster
        self._progress = progress
        self._settings_of = settings_of
        self._paused = paused
        self._failures = failures
        self._beside: dict[str, frozenset[str]] = {}

    def pods(self, one: WatchedJob) -> tuple[Pod, ...]:
        """Return the pods of a job that have not ended and are not about to."""
        return live_pods(self._cluster.pods(one.tracked.job.uid))

    def enrol(self, now: float) -> None:
        """Watch the jobs that opted in, and those that have not got back what was taken.

        A job stays as it was, watched or not, if an error of ours is about it.
        """
        before, self.by_uid = self.by_uid, {}
        for uid, tracked in self._cluster.jobs.items():
            one = before.get(uid)
            with self._failures.about(tracked):
                one = self._enrolled(tracked, one, now)
            if one is not None:
                self.by_uid[uid] = one
        self.shown.follow(self.by_uid, self._cluster.jobs)

    def signals(self, now: float) -> tuple[Signals, set[str]]:
        """Return the signals of all watched jobs that run, and those with a window that ended.

        A job is left out if an error of ours is about it.
        """
        found: list[JobSignal] = []
        ended = set()
        for uid, one in self.by_uid.items():
            with self._failures.about(one.tracked):
                signal, has_ended = self._signal(one, now)
                if has_ended:
                    ended.add(uid)
                if signal.pods:
                    found.append(signal)
                elif one.chosen and one.unfit:
                    unfit = Verdict(names.REASON_STANDS_DOWN, one.unfit)
                    self.shown.show(one, Shown(holds=False, verdict=unfit))
        running = self._progress.running()
        signals = signals_of(self._cluster, found, self._progress.uses, measured=running)
        restricted = any(is_resized(job, signals) for job in signals.jobs)
        self._beside = {
            job.uid: frozenset(pod.uid for pod in job.pods) for job in signals.jobs if restricted
        }
        return signals, ended

    def _enrolled(
        self, tracked: TrackedJob, known: WatchedJob | None, now: float
    ) -> WatchedJob | None:
        """Return a job as it is watched from now on, None if it is not."""
        job = tracked.job
        ended = job.finished or job.suspend or job.deleting
        if ended or (tracked.state.cpu == CpuState() and not self._policies(tracked)):
            return None
        return known or watch(tracked, now)

    def _signal(self, one: WatchedJob, now: float) -> tuple[JobSignal, bool]:
        """Return the signal of a job, and whether a window of it has ended."""
        uid = one.tracked.job.uid
        pods, reported = self._cluster.pods(uid), self._progress.reported(uid)
        one.unfit = why_stand_down(one.tracked.job, live_pods(pods), one.tracked.state.cpu) or ""
        one.chosen = self._policies(one.tracked)
        for pod in live_pods(pods):
            if (measured := self._progress.uses.of(pod.uid)) is not None:
                one.work.measure(pod.uid, measured.use)
        if reported is not None:
            one.work.take(reported.progress)
        if is_whole(one, pods) and all_measured(pods, self._progress.uses):
            one.measured_at = now
        left, source = one.left(reported, now), self._settings_of(one.tracked).metrics
        one.unread = why_unread(reported, source=source, left=left)
        signal = job_signal(
            one,
            pods,
            reported,
            self._progress.uses,
            in_flight=self._in_flight(one, pods, now),
            settling=one.operation is not None and one.operation.is_set,
            left=left,
        )
        if reported is None:
            return signal, False
        return signal, one.history.take(reported.progress, signal.use, now=now)

    def any_has_left(self) -> bool:
        """Return whether a pod has ended beside pods that are restricted: they may have its CPU."""
        return any(
            not pods.issubset(pod.uid for pod in live_pods(self._cluster.pods(uid)))
            for uid, pods in self._beside.items()
        )

    def _policies(self, tracked: TrackedJob) -> dict[str, PolicyChoice]:
        """Return the policies that may look at a job."""
        if tracked.phase is None or tracked.job.released:
            return {}
        return chosen_policies(self._settings_of(tracked))

    def _in_flight(self, one: WatchedJob, pods: tuple[Pod, ...], now: float) -> bool:
        """Return whether a job has to wait: for a write, a kubelet or a pod."""
        return (
            one.tracked.busy
            or (one.operation is not None and not one.operation.is_set)
            or self._paused(one, now)
            or not is_whole(one, pods)
            or not all_measured(pods, self._progress.uses)
        )
