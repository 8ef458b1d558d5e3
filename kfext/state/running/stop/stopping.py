"""The stop of a single job: it saves its work first, then a single write stops all its pods.

Preemptions and drains decide when the job stops. Times are monotonic, except that a float `now` is
in epoch seconds.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace

from kfext import names
from kfext.core.lifecycle.steps import Step, Suspend
from kfext.core.progress.checkpoints import Checkpoints
from kfext.core.settings.values import ALWAYS
from kfext.model.moment import Moment
from kfext.model.scale_state import StopState
from kfext.model.verdict import Verdict
from kfext.state.running.checkpoint_requests import BACK_OFF_SECONDS, CheckpointRequests
from kfext.state.running.executor import SCAN_SECONDS
from kfext.state.running.operation import FRESH_SECONDS, Phase, Readiness, StopOperation
from kfext.state.running.proposal import Rank
from kfext.state.running.restarts import suspend_step
from kfext.state.running.running_job import RunningJob
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.stop.record import record_of


@dataclass(slots=True)
class Preempted:
    """Counts of the jobs that were stopped for others.

    `asked`: the number of jobs by answer to the checkpoint request: `answered`, `late` (no
        checkpoint in time) or `none` (no checkpoint was expected).
    `work`: the sum of the lost work, in seconds.
    """

    asked: Counter[str] = field(default_factory=Counter)
    work: float = 0.0


class JobStops:
    """Stops single jobs; `preempted`: the counts of the jobs that were stopped for others."""

    def __init__(self, running: RunningJobs) -> None:
        self.preempted = Preempted()
        self._running = running
        self._cluster, self._progress = running.cluster, running.progress
        self._requests = CheckpointRequests(running.progress)

    def checkpoints(self, job: RunningJob) -> Checkpoints:
        """Return the checkpoints in the log of a job."""
        return self._progress.followed(job.uid).checkpoints

    def readiness(self, job: RunningJob, *, now: float) -> Readiness:
        """Return how ready a job is to stop; with `preempt: always` it needs no checkpoint."""
        ready = self.lossless_readiness(job, now=now)
        return Readiness.READY if ready is Readiness.NEVER and self.may_lose(job) else ready

    def lossless_readiness(self, job: RunningJob, *, now: float) -> Readiness:
        """Return how ready a job is to stop without losing work.

        A request by an earlier controller shows that the job answers requests.
        """
        operation = record_of(job).operation
        ready = self._requests.readiness(job.uid, operation, interrupts=True, now=now)
        pod = self._progress.printer(job.uid) if ready is Readiness.NEVER else None
        return Readiness.ASK if pod is not None and pod.checkpoint_request else ready

    def may_lose(self, job: RunningJob) -> bool:
        """Return whether a job may stop without a checkpoint."""
        return self._running.settings_of(job.tracked).preempt == ALWAYS

    def began(self, job: RunningJob, *, now: float) -> float:
        """Return the creation time of the last pod of a job, in epoch seconds."""
        created = (pod.created for pod in self._cluster.pods(job.uid))
        return min(max(created, default=now), now)

    def begin(self, job: RunningJob, operation: StopOperation) -> None:
        """Begin to wait for the checkpoint of a job."""
        record = record_of(job)
        record.operation, record.refused = operation, None
        self._progress.await_checkpoint(job.uid, awaited=True)

    def is_ready(self, job: RunningJob, now: Moment) -> bool:
        """Return whether a job has saved its work, or is not expected to save it in time."""
        record, operation = record_of(job), record_of(job).operation
        if operation is not None and not operation.ready:
            ready = self.readiness(job, now=now.wall)
            not_expected = ready is Readiness.AWAIT and math.isinf(operation.saves_at)
            operation.ready = ready is Readiness.READY or not_expected
            operation.answer_seconds = now.monotonic - max(operation.since, record.asks_at)
        return operation is None or operation.ready

    def is_stale(self, job: RunningJob, operation: StopOperation, *, now: float) -> bool:
        """Return whether the checkpoint that answered the request is too old."""
        return self._requests.is_stale(job.uid, operation, now=now)

    def request(self, job: RunningJob, now: Moment) -> Step | None:
        """Return the checkpoint request, or None before it is due."""
        record, operation = record_of(job), record_of(job).operation
        if operation is None or operation.ready or now.monotonic < record.asks_at:
            return None
        asks = self.readiness(job, now=now.wall) is Readiness.ASK
        return self._requests.request(job.uid, operation) if asks else None

    def stop(
        self, job: RunningJob, reason: str, message: str, stop: StopState, now: Moment
    ) -> Suspend:
        """Return the write that stops a job; `reason`, `message`, `stop`: for the job's state."""
        if (operation := record_of(job).operation) is not None:
            operation.enter(Phase.WRITING, at=now.monotonic)
        state = replace(job.tracked.state, reason=reason, message=message, stop=stop)
        return suspend_step(job, state, self._cluster.pods(job.uid), now=now.wall)

    def finish(self, job: RunningJob, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a write; `final`: why it was refused for good, or empty."""
        record, operation = record_of(job), record_of(job).operation
        if operation is None:
            return
        if operation.phase is Phase.SAVING:
            if not complete:
                operation.request_number, record.asks_at = 0, now + SCAN_SECONDS  # ask again
        elif complete:
            if operation.proposal.rank is Rank.PREEMPT:
                self._count(job, operation)
            record.missed = 0
            operation.enter(Phase.SETTLING, at=now)
        elif final:
            record.refused = Verdict(names.REASON_STOP_REFUSED, final)
            record.not_before = now + BACK_OFF_SECONDS
            self.end(job)
        else:  # without an answer the write may have arrived; otherwise it is retried
            operation.enter(Phase.SAVING, at=now)

    def _count(self, job: RunningJob, operation: StopOperation) -> None:
        at, last = job.tracked.state.stop.at, self.checkpoints(job).saved
        lost = max(0.0, at - max(last or 0.0, self.began(job, now=at)))
        answered = operation.request_number or lost <= FRESH_SECONDS
        self.preempted.asked["late" if operation.late else "answered" if answered else "none"] += 1
        self.preempted.work += lost

    def end(self, job: RunningJob) -> None:
        """End the operation of a job, complete or not."""
        self._progress.await_checkpoint(job.uid, awaited=False)
        record_of(job).operation = None
