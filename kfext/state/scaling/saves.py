"""The checkpoints that jobs write before their size changes. `now` is in epoch seconds."""

import math
from collections.abc import Iterable

from kfext import names
from kfext.core.companion.operation import FRESH_SECONDS, Readiness, readiness
from kfext.core.companion.scale import HORIZON, Cause, Phase, interrupts
from kfext.core.lifecycle.steps import RequestCheckpoint
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.progress import JobsProgress
from kfext.state.scaling.scaled_job import ScaledJob, leaving


class Saves:
    """Whether jobs can be interrupted now, and what they are to be asked for."""

    def __init__(self, cluster: Cluster, progress: JobsProgress) -> None:
        self._cluster = cluster
        self._progress = progress

    def state_of(self, one: ScaledJob, *, now: float) -> Readiness:
        """Return whether a job can be interrupted now."""
        seen = self._progress.checkpoints(one.uid)
        return readiness(
            saved=seen.saved,
            answered=seen.answered,
            requested=one.requested,
            now=now,
            interrupts=self._interrupts(one) and not self.loses_nothing(one, now=now),
        )

    def loses_nothing(self, one: ScaledJob, *, now: float) -> bool:
        """Return whether a job that lacks workers has shown no step yet, though its log was read.

        It has to be read once more after the change has begun. And it may have made steps that
        kfext does not recognise: so the time since its pods were created must be no more than what
        the workers that it lacks save it within HORIZON.
        """
        sizes, reported = one.sizes, self._progress.reported(one.uid)
        if sizes.now >= sizes.asked or reported is None or reported.progress.step is not None:
            return False
        created = (pod.created for pod in self._cluster.pods(one.uid))
        ran = now - min(created, default=-math.inf)
        begun = one.since if one.phase is Phase.SAVING else -math.inf
        read = self._progress.last_read(one.uid)
        return read is not None and read > begun and ran <= HORIZON * (1 - sizes.now / sizes.asked)

    def stale(self, jobs: Iterable[ScaledJob], *, now: float) -> list[ScaledJob]:
        """Return the jobs that have trained on for a while since they answered a request."""
        found = []
        for one in jobs:
            saved = self._progress.checkpoints(one.uid).saved
            if one.requested and saved is not None and now - saved > FRESH_SECONDS:
                found.append(one)
        return found

    def request(self, one: ScaledJob) -> RequestCheckpoint | None:
        """Return the step that asks a job for a checkpoint, None while no pod is known to print."""
        pod = self._progress.printer(one.uid)
        if pod is None or one.change is None:
            return None
        answered = self._progress.checkpoints(one.uid).answered or 0
        one.requested = max(pod.checkpoint_request, answered) + 1
        message = f"{one.change.why}; it is asked for a checkpoint first"
        return RequestCheckpoint(
            (pod,), one.requested, Verdict(names.REASON_AWAITS_CHECKPOINT, message)
        )

    def await_of(self, one: ScaledJob) -> None:
        """Have the log of a job read often, if its change has to wait for a checkpoint."""
        self._progress.await_checkpoint(one.uid, awaited=self._interrupts(one))

    def forget(self, one: ScaledJob) -> None:
        """Await nothing of a job any more."""
        self._progress.await_checkpoint(one.uid, awaited=False)

    def _interrupts(self, one: ScaledJob) -> bool:
        """Return whether a change costs a job what it did since its last checkpoint.

        Workers that never ran can be taken back without the others taking notice.
        """
        change = one.change
        if change is not None and change.cause is Cause.TAKE_BACK:
            gone = leaving(self._cluster.pods(one.uid), change.workers)
            if not any(pod.phase == "Running" for pod in gone):
                return False
        return interrupts(one.tracked.job)
