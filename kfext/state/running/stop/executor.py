"""The executor of stops: preemptions for waiting jobs, drains, and restarts of stalled jobs."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from kfext.core.eligibility import why_not_stopped
from kfext.core.lifecycle.capacity import WAITS_FOR_CAPACITY
from kfext.core.queue.priority import lowest_class
from kfext.model.moment import Moment
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.priority import PriorityClass
from kfext.state.mirror.timers import RoundRobin
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.capacity_search import CapacitySearch
from kfext.state.running.executor import Executor, Steps
from kfext.state.running.operation import Readiness
from kfext.state.running.policy import Condition, ConditionStatus
from kfext.state.running.proposal import Change, Chosen, Proposal, Rank, Stop
from kfext.state.running.restarts import expected_restart, record_start
from kfext.state.running.running_job import RunningJob, all_running, may_change
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.stop.drain import Drains
from kfext.state.running.stop.preempt import PREEMPT, STOPPED, may_preempt, stop_proposals
from kfext.state.running.stop.preemptions import Preemptions
from kfext.state.running.stop.record import StopRecord, record_of
from kfext.state.running.stop.search import StopSearch, VictimChoice
from kfext.state.running.stop.stopping import JobStops, Preempted
from kfext.state.running.stop.victims import Victim, lost_work, rests_until, units
from kfext.state.running.stop.words import stop_shown

_FIRST_WAITING, _OTHERS_IN_TURN = 2, 2
"""A scan searches victims for this many first jobs of the queue, and this many others in turn."""


class StopExecutor(Executor):
    """Stops jobs. `rescues` returns whether a rescue of a job, by uid, is in progress."""

    change: ClassVar[type[Change]] = Stop
    condition: ClassVar[Condition] = STOPPED

    def __init__(
        self, running: RunningJobs, capacity: CapacitySearch, *, rescues: Callable[[str], bool]
    ) -> None:
        super().__init__(running)
        self._rescues = rescues
        self._search = StopSearch(running.cluster, capacity)
        self._turns = RoundRobin(_OTHERS_IN_TURN)
        self._stops = JobStops(running)
        shared = running, self.jobs, self._stops
        self._preemptions = Preemptions(
            *shared, search=self._search, more=self._more, permits=self._permits
        )
        self._drains = Drains(*shared, capacity=capacity)

    @property
    def preempted(self) -> Preempted:
        """The counts of the jobs that this controller has stopped for others."""
        return self._stops.preempted

    @property
    def changing(self) -> bool:
        """Whether jobs stop for a waiting job, or leave their nodes."""
        return bool(self._preemptions.open) or any(map(self._drains.leaves, self.jobs.values()))

    def keeps_hold(self, uid: str) -> bool:
        """Return whether a job was stopped to leave its nodes, with capacity on hold elsewhere."""
        job = self.jobs.get(uid)
        return job is not None and self._drains.keeps_hold(job)

    def follows(
        self, tracked: TrackedJob, chosen: dict[str, PolicyChoice], job: RunningJob | None
    ) -> bool:
        """Return whether a job opted in, leaves its nodes, or was stopped and has to continue."""
        tracked.draining = bool(self._drains.node_of(tracked))
        if tracked.job.finished or tracked.job.deleting or tracked.job.released:
            return False
        stopping = job is not None and record_of(job).operation is not None
        may_stop = PREEMPT.name in chosen or tracked.draining or bool(self._drains.stalled(tracked))
        return may_stop or stopping or tracked.stopped

    def on_added(self, job: RunningJob, now: Moment) -> None:
        """Begin to follow a job, and adopt a stop by an earlier controller."""
        self.running.shown.hide(job.tracked, STOPPED.type)
        job.replace_record(StopRecord())
        job.restart.was_starting = not all_running(job.tracked, self._cluster.pods(job.uid))
        self._preemptions.adopt(job, now)

    def on_removed(self, job: RunningJob, now: Moment) -> None:
        """End the stop of a job."""
        self._drains.end(job)

    def advance(self, now: Moment) -> Steps:
        """Advance the preemptions and the drains."""
        return [*self._preemptions.advance(now, scanning=self.scanning), *self._drains.advance(now)]

    def propose(self, now: Moment) -> Sequence[Proposal]:
        """Return the stops of jobs that leave their nodes, and for at most one waiting job."""
        if not (self.scanning and self.jobs):
            return []
        return [*self._drains.proposals(now), *self._preemption_proposals(now)]

    def _preemption_proposals(self, now: Moment) -> Sequence[Proposal]:
        """Return the stops for at most one waiting job, and the stops of dry runs."""
        free = [job for job in self.jobs.values() if self._may_stop(job, now)]
        acting = [job for job in free if job.mode(PREEMPT) is Mode.ACT]
        dry_runs: list[Proposal] = []
        due = self._due(free, now) if free else []
        for waiting in [*due[:_FIRST_WAITING], *self._turns.some(due[_FIRST_WAITING:])]:
            with self.running.failures.collect_errors_of(waiting):
                if choice := self._choice(waiting, acting, now):
                    return [*stop_proposals(waiting, choice), *dry_runs]
                if len(acting) < len(free) and (choice := self._choice(waiting, free, now)):
                    observing = {job.uid for job in free if job not in acting}
                    proposals = stop_proposals(waiting, choice)
                    dry_runs += [stop for stop in proposals if stop.job in observing]
        return dry_runs

    def _due(self, free: Sequence[RunningJob], now: Moment) -> list[TrackedJob]:
        """Return the waiting jobs that `free` jobs may stop for now, in the order of the queue."""
        lowest = min(self._queue.priority(job.tracked) for job in free)
        return [
            tracked
            for tracked in self._queue.queued()
            if self._class(tracked).value > lowest
            and not self._rescues(tracked.job.uid)
            and not self._preemptions.excludes(tracked.job.uid, at=now.monotonic)
            and may_preempt(tracked, self.running.settings_of(tracked), self._cluster, now=now.wall)
        ]

    def _class(self, waiting: TrackedJob) -> PriorityClass:
        """Return the PriorityClass that decides which jobs a waiting job may preempt."""
        return lowest_class(waiting.job, self._cluster.classes)

    def _permits(self, waiting: TrackedJob, victims: Sequence[RunningJob]) -> bool:
        """Return whether victims may still stop for a waiting job; jobs may have changed since."""
        class_ = self._class(waiting)
        waits = class_.preempts and waiting.not_started_reason in WAITS_FOR_CAPACITY
        return waits and all(self._may_still_stop(job, below=class_.value) for job in victims)

    def _may_still_stop(self, victim: RunningJob, *, below: int) -> bool:
        settings = self.running.settings_of(victim.tracked)
        lower = self._queue.priority(victim.tracked) < below
        acts = victim.mode(PREEMPT) is Mode.ACT
        return acts and lower and why_not_stopped(victim.tracked.job, settings) is None

    def _may_stop(self, job: RunningJob, now: Moment) -> bool:
        tracked, record, pods = job.tracked, record_of(job), self._cluster.pods(job.uid)
        with self.running.failures.collect_errors_of(tracked):
            record.ineligible = why_not_stopped(tracked.job, self.running.settings_of(tracked))
            record_start(job, self._progress, pods)
            saved = self._stops.checkpoints(job).saved
            record.observe_save(saved, began=self._stops.began(job, now=now.wall))
            return (
                job.mode(PREEMPT) is not Mode.OFF
                and record.ineligible is None
                and may_change(job, pods)
                and tracked.plan is not None
                and now.monotonic >= record.not_before
                and now.wall >= rests_until(tracked.state.stop, now=now.wall)
                and self._stops.readiness(job, now=now.wall) is not Readiness.NEVER
            )
        return False

    def _more(self, waiting: TrackedJob, gone: Sequence[str], now: Moment) -> Sequence[Proposal]:
        """Return the stops that a waiting job needs in addition to the jobs `gone`, by uid."""
        if not self._permits(waiting, ()):
            return []
        acting = (job for job in self.jobs.values() if job.mode(PREEMPT) is Mode.ACT)
        free = [job for job in acting if self._may_stop(job, now)]
        choice = self._choice(waiting, free, now, gone=gone)
        return list(stop_proposals(waiting, choice)) if choice else []

    def _choice(
        self,
        waiting: TrackedJob,
        jobs: Sequence[RunningJob],
        now: Moment,
        *,
        gone: Sequence[str] = (),
    ) -> VictimChoice | None:
        priority, settings = self._class(waiting).value, self.running.settings_of(waiting)
        below = [job for job in jobs if self._queue.priority(job.tracked) < priority]
        waited_long = waiting.queued_seconds(now.wall) >= PREEMPT.parameter(settings, "unsaved")
        victims = [self._victim(job, waiting, now=now.wall) for job in below]
        allowed = (victim for victim in victims if victim.has_checkpoint or waited_long)
        return self._search.find(waiting, allowed, settings, gone=gone, now=now.wall)

    def _victim(self, job: RunningJob, waiting: TrackedJob, *, now: float) -> Victim:
        ready = self._stops.lossless_readiness(job, now=now)
        return Victim(
            job.uid,
            priority=self._queue.priority(job.tracked),
            has_checkpoint=ready is not Readiness.NEVER,
            lost_work=lost_work(
                ready,
                saved=self._stops.checkpoints(job).saved,
                began=self._stops.began(job, now=now),
                next_save=record_of(job).next_save,
                now=now,
            ),
            restart_seconds=expected_restart(job),
            stops=job.tracked.state.stop.count,
            size=units(job.tracked.job, waiting=waiting.job),
        )

    def begin(self, chosen: Chosen, now: Moment) -> Steps:
        """Begin the chosen stops, for a waiting job all or none, and update the conditions."""
        together: dict[Change, list[Proposal]] = {}
        for proposal in chosen.act:
            if proposal.rank is Rank.DRAIN:
                self._drains.begin(proposal, now)
            else:
                together.setdefault(proposal.change, []).append(proposal)
        for stop, proposals in together.items():
            assert isinstance(stop, Stop)
            if len(proposals) == len(stop.victims) and not self._rescues(stop.waiting):
                self._preemptions.begin(stop.waiting, proposals, now)
        if self.scanning:
            for job in self.jobs.values():
                record_of(job).dry_run = None
            for proposal in chosen.observe:
                record_of(self.jobs[proposal.job]).dry_run = proposal
            for job in self.jobs.values():
                with self.running.failures.collect_errors_of(job.tracked):
                    self._show(job, now)
        return []

    def finish(self, job: RunningJob, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a write; `final`: why it was refused for good, or empty."""
        self._stops.finish(job, complete=complete, final=final, now=now)

    def _show(self, job: RunningJob, now: Moment) -> None:
        shown, stopped = None, job.tracked.stopped
        if drained := self._drains.shown(job, now=now.wall):
            shown = ConditionStatus(holds=False, verdict=drained)
        elif job.tracked.phase is not None and (stopped or job.mode(PREEMPT) is not Mode.OFF):
            ready = self._stops.readiness(job, now=now.wall)
            shown = stop_shown(job, ready, now)
        self.running.shown.show(job, STOPPED.type, shown)
