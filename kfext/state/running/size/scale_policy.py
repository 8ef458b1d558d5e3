"""The proposals of `scale`: restore sizes, rescue a waiting job, then scale jobs up."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kfext import names
from kfext.core.elastic import why_ineligible, why_one_size
from kfext.core.ledger.capacity_hold import HoldKind
from kfext.model.moment import Moment
from kfext.model.policy import Mode
from kfext.state.mirror.timers import RoundRobin
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.capacity_search import GrowthLimit
from kfext.state.running.operation import Phase, Readiness
from kfext.state.running.proposal import Cause, Proposal, Rank, Workers
from kfext.state.running.running_job import RunningJob, has_kfext_size, may_change
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.size.record import record_of
from kfext.state.running.size.rescaling import Rescaling
from kfext.state.running.size.scale import SCALE, workers_proposal
from kfext.state.running.size.scale_search import ScaleSearch

MAX_SEARCHED = 16
"""One scan searches capacity for at most this many jobs; the others have their turn later."""
_SETTLED = frozenset({None, Phase.MEASURING, Phase.TRIAL})
"""The phases in which all pods of the job run; None means that no change is in progress."""


class ScaleProposals:
    """Proposes new sizes of `jobs`, the followed jobs by uid."""

    def __init__(
        self,
        running: RunningJobs,
        jobs: Mapping[str, RunningJob],
        rescaling: Rescaling,
        *,
        search: ScaleSearch,
    ) -> None:
        self._running = running
        self._cluster, self._queue = running.cluster, running.queue
        self._jobs = jobs
        self._rescaling = rescaling
        self._capacity = search.capacity
        self._search = search
        self._restore_turns = RoundRobin(MAX_SEARCHED)
        self._turns = {mode: RoundRobin(MAX_SEARCHED) for mode in (Mode.ACT, Mode.OBSERVE)}
        self._quiet_since = math.inf

    def record_act(self, at: float) -> None:
        """Record that a size changes, so that capacity counts as idle only from now on."""
        self._quiet_since = at

    def propose(self, now: Moment) -> list[Proposal]:
        """Return the next proposals, for jobs in mode `act` and for dry runs."""
        at = now.monotonic
        self._quiet_since = max(min(self._quiet_since, at), self._queue.started_at)
        self._end_vain_holds()
        if not self._jobs:
            return []
        limit = self._capacity.limit(now=now.wall)
        free = list(self._free(now))
        proposals = self._undos(free, limit, now)
        chosen = {proposal.job for proposal in proposals}
        acting = [job for job in free if job.uid not in chosen and self._may_act(job)]
        rested = [job for job in acting if self._has_rested(job, at=at)]
        donors = [*acting, *self._rescaling.scaling_up()]
        observing = [job for job in free if self._may_observe(job)]
        self._forget_dry_runs(observing)
        for waiting in self._starving(now):
            if rescue := self._rescue(waiting, donors, rested, now):
                proposals += rescue
                break
            proposals += self._rescue(waiting, observing, observing, now)
        proposals += self._grow(rested, proposals, limit, now)
        return proposals + self._growth(observing, Mode.OBSERVE, limit, now)

    def _undos(self, free: Sequence[RunningJob], limit: GrowthLimit, now: Moment) -> list[Proposal]:
        """Return the proposals that restore requested sizes or undo scale-ups."""
        proposals = []
        for job in self._restore_turns.some([job for job in free if self._must_restore(job)]):
            with self._running.failures.collect_errors_of(job.tracked):
                if restore := self._restore(job, limit, now):
                    proposals.append(restore)
        restored = {proposal.job for proposal in proposals}
        for job in free:
            acts = job.uid not in restored and self._may_act(job)
            rested = self._has_rested(job, at=now.monotonic)
            if acts and rested and (undo := self._lone_growth(job) or _unprofitable_growth(job)):
                proposals.append(undo)
        return proposals

    def _starving(self, now: Moment) -> Iterable[TrackedJob]:
        """Return the waiting jobs that need a rescue; none while a rescue is in progress."""
        held = self._cluster.holds.holders(but=HoldKind.PREEMPT)
        if self._rescaling.rescuing or held:
            return ()
        return self._search.due(now=now.wall)

    def _rescue(
        self,
        waiting: TrackedJob,
        candidates: Sequence[RunningJob],
        rested: Sequence[RunningJob],
        now: Moment,
    ) -> list[Proposal]:
        with self._running.failures.collect_errors_of(waiting):
            uids = {job.uid for job in rested}
            return self._search.rescue(waiting, candidates, uids, now=now.wall)
        return []

    def _grow(
        self,
        acting: Sequence[RunningJob],
        before: Sequence[Proposal],
        limit: GrowthLimit,
        now: Moment,
    ) -> list[Proposal]:
        """Return the proposals to scale up jobs that may do so now, in the order of the queue."""
        idle, chosen = now.monotonic - self._quiet_since, {proposal.job for proposal in before}
        jobs = [
            job
            for job in acting
            if job.uid not in chosen
            and (
                idle >= self._parameter(job, "idle")
                or self._rescaling.loses_nothing(job, now=now.wall)
            )
            and now.monotonic >= record_of(job).may_scale_up_at
            and record_of(job).sizes.now < record_of(job).sizes.most
        ]
        jobs.sort(key=lambda job: self._queue.key(job.tracked, remaining=self._remaining(job, now)))
        return self._growth(jobs, Mode.ACT, limit, now)

    def _remaining(self, job: RunningJob, now: Moment) -> float:
        """Return the seconds to the end of a job at its requested size."""
        sizes = record_of(job).sizes
        remaining = self._queue.durations.remaining(job.tracked.job, now=now.wall)
        return remaining * min(1.0, sizes.now / max(1, sizes.requested))

    def _growth(
        self, jobs: Sequence[RunningJob], mode: Mode, limit: GrowthLimit, now: Moment
    ) -> list[Proposal]:
        """Return the proposals to scale up, for the next MAX_SEARCHED jobs in turn."""
        proposals = []
        for job in self._turns[mode].some(jobs):
            record_of(job).dry_run = None
            with self._running.failures.collect_errors_of(job.tracked):
                if growth := self._search.growth(job, limit, now=now.wall):
                    proposals.append(growth)
        return proposals

    def _forget_dry_runs(self, observing: Sequence[RunningJob]) -> None:
        """Forget earlier dry runs, except growth of `observing`: a later scan searches it again."""
        uids = {job.uid for job in observing}
        for job in self._jobs.values():
            dry_run = record_of(job).dry_run
            if dry_run is not None and (job.uid not in uids or dry_run.rank is Rank.RESCUE):
                record_of(job).dry_run = None

    def _restore(self, job: RunningJob, limit: GrowthLimit, now: Moment) -> Proposal | None:
        """Return the proposal that returns a job to its requested size, if it fits."""
        settings, sizes = self._running.settings_of(job.tracked), record_of(job).sizes
        up_to = min(sizes.most, sizes.requested)
        if sizes.requested > sizes.now and (
            limit is GrowthLimit.NONE
            or self._capacity.most_workers(job, sizes.now, up_to=up_to, now=now.wall) <= sizes.now
        ):
            return None
        off = f"{names.ELASTIC} is off" if settings.elastic is None else ""
        why = off or record_of(job).ineligible or "the policy does not act"
        change = Workers(Cause.RESTORE_REQUESTED, sizes.requested)
        return workers_proposal(job.uid, change, f"it returns to its requested size: {why}")

    def _lone_growth(self, job: RunningJob) -> Proposal | None:
        """Return the proposal to undo a scale-up that alone makes an autoscaler keep a node."""
        sizes = record_of(job).sizes
        if sizes.now <= sizes.requested or not self._capacity.growth_keeps_node(job):
            return None
        change = Workers(Cause.UNDO_GROWTH, sizes.requested)
        return workers_proposal(job.uid, change, "an autoscaler would keep a node for it alone")

    def _must_restore(self, job: RunningJob) -> bool:
        """Return whether a job must return to its requested size: kfext may no longer scale it."""
        training, size = job.tracked.job, record_of(job)
        if not has_kfext_size(job.tracked) or training.started_by or why_one_size(training):
            return False
        if size.ineligible:  # another client scales the job now, and may want more workers
            return size.sizes.now < size.sizes.requested
        return job.mode(SCALE) is not Mode.ACT

    def _free(self, now: Moment) -> Iterator[RunningJob]:
        for job in self._jobs.values():
            with self._running.failures.collect_errors_of(job.tracked):
                if self._is_free(job, now):
                    yield job

    def _is_free(self, job: RunningJob, now: Moment) -> bool:
        tracked, size = job.tracked, record_of(job)
        size.ineligible = why_ineligible(tracked.job, self._running.settings_of(tracked))
        return (
            may_change(job, self._cluster.pods(job.uid))
            and size.disabled_reason is None
            and now.monotonic >= size.not_before
            and self._rescaling.readiness(job, now=now.wall) is not Readiness.NEVER
        )

    def _may_act(self, job: RunningJob) -> bool:
        return (
            job.mode(SCALE) is Mode.ACT
            and not job.tracked.state.scale.disabled
            and not record_of(job).ineligible
        )

    def _has_rested(self, job: RunningJob, *, at: float) -> bool:
        since = max(record_of(job).settled_at, job.restart.running_since)
        return at - since >= self._parameter(job, "rest")

    def _may_observe(self, job: RunningJob) -> bool:
        return job.mode(SCALE) is Mode.OBSERVE and not record_of(job).ineligible

    def _parameter(self, job: RunningJob, name: str) -> float:
        return SCALE.parameter(self._running.settings_of(job.tracked), name)

    def _end_vain_holds(self) -> None:
        """Release the holds, for rescues and new sizes, that are of no use to their jobs."""
        holds = self._cluster.holds
        for uid in holds.holders():
            hold, tracked = holds.hold_of(uid), self._cluster.jobs.get(uid)
            if tracked is None or hold is None or hold.kind not in {HoldKind.RESCUE, HoldKind.SIZE}:
                continue
            if self._is_in_vain(tracked):
                holds.release(uid)

    def _is_in_vain(self, tracked: TrackedJob) -> bool:
        """Return whether the hold of a job is of no use to it.

        Either the job no longer waits, or it waits although all donors have scaled down: a size was
        refused, or the job needs more by now. A job that is stopped to change its own size keeps
        its hold until its pods run; it may not be suspended yet.
        """
        if record_of(self._running.record(tracked)).phase not in _SETTLED:
            return False
        rescaled = any(record_of(job).operation is not None for job in self._jobs.values())
        return tracked.settled and not (tracked.job.suspend and rescaled)


def _unprofitable_growth(job: RunningJob) -> Proposal | None:
    """Return the proposal to undo a scale-up that did not pay, down to the requested size at most.

    An earlier attempt may have failed because no checkpoint came in time.
    """
    failed, sizes = record_of(job).failed, record_of(job).sizes
    if not failed or sizes.now < failed or sizes.now <= sizes.requested:
        return None
    change = Workers(Cause.UNDO_GROWTH, max(failed - 1, sizes.requested))
    return workers_proposal(job.uid, change, f"it was not faster with {failed} workers")
