"""Preemptions: kfext holds capacity for a waiting job, all victims save their work, and all stop.

The hold begins before any victim is asked for a checkpoint, so that no third job uses the capacity
as pods end. Just before the stop, the search confirms that the waiting job then fits. Times are
monotonic, except that a float `now` is in epoch seconds.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kfext import names
from kfext.core.ledger.capacity_hold import HoldKind
from kfext.core.lifecycle.steps import Step, Suspend
from kfext.core.placement.gang import members_of
from kfext.model.moment import Moment
from kfext.model.plan import NO_SLOTS, Places
from kfext.model.timestamps import past
from kfext.state.mirror.holds import HOLD_SECONDS
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.checkpoint_requests import BACK_OFF_SECONDS, record_miss
from kfext.state.running.executor import Steps
from kfext.state.running.operation import ANSWER_SECONDS, FRESH_SECONDS, Phase, StopOperation
from kfext.state.running.proposal import Proposal
from kfext.state.running.running_job import RunningJob, all_running
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.stop.record import record_of
from kfext.state.running.stop.search import StopSearch
from kfext.state.running.stop.stopping import JobStops
from kfext.state.running.stop.victims import saves_soon
from kfext.state.running.stop.words import stopped_for

_NO_VICTIM_SECONDS = 30.0
"""If the waiting job does not fit after all and no more victims are found within this time, the
stopped jobs continue."""
MoreStops = Callable[[TrackedJob, Sequence[str], Moment], Sequence[Proposal]]
"""Returns the stops that a waiting job needs in addition to the stopped jobs, by uid."""
Permits = Callable[[TrackedJob, Sequence[RunningJob]], bool]
"""Returns whether jobs may still stop for a waiting job."""


@dataclass(slots=True)
class Preemption:
    """Jobs that stop together for a waiting job; all jobs are given by uid.

    `victims`: the jobs that still run. `stopped`: the jobs that were stopped for it.
    `last_act_at`: when the victims were last asked or stopped, in monotonic seconds.
    `asked_again`: whether jobs with stale checkpoints have been asked again.
    """

    waiting: str
    last_act_at: float
    victims: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    asked_again: bool = False


class Preemptions:
    """The preemptions in progress, in `open` by the uid of the waiting job.

    `jobs`: the followed jobs, by uid.
    """

    def __init__(
        self,
        running: RunningJobs,
        jobs: Mapping[str, RunningJob],
        stops: JobStops,
        *,
        search: StopSearch,
        more: MoreStops,
        permits: Permits,
    ) -> None:
        self.open: dict[str, Preemption] = {}
        self._running = running
        self._cluster = running.cluster
        self._jobs = jobs
        self._stops = stops
        self._search = search
        self._more = more
        self._permits = permits
        self._back_offs: dict[str, float] = {}

    def excludes(self, uid: str, *, at: float) -> bool:
        """Return whether jobs already stop for a waiting job, or a preemption failed recently."""
        return uid in self.open or self._back_offs.get(uid, -math.inf) > at

    # --- the victims and the hold ---------------------------------------------------------------

    def adopt(self, job: RunningJob, now: Moment) -> None:
        """Continue the preemption of a job that an earlier controller stopped, if any."""
        stop, training = job.tracked.state.stop, job.tracked.job
        waiting = self._cluster.jobs.get(stop.waiting)
        ago = now.wall - past(stop.at, now=now.wall)
        if waiting is None or not (waiting.job.in_queue and training.in_queue):
            return
        if ago >= HOLD_SECONDS:
            return
        preemption = self.open.setdefault(stop.waiting, Preemption(stop.waiting, now.monotonic))
        preemption.stopped.append(job.uid)
        if stop.places:
            self._hold(waiting, Places(stop.places, NO_SLOTS), preemption, now=now.wall)

    def begin(self, uid: str, proposals: Sequence[Proposal], now: Moment) -> None:
        """Begin to stop jobs for a waiting job, by uid."""
        if (waiting := self._cluster.jobs.get(uid)) is not None:
            self.open[uid] = preemption = Preemption(uid, now.monotonic)
            self._ask(preemption, waiting, proposals, now)

    def _ask(
        self,
        preemption: Preemption,
        waiting: TrackedJob,
        proposals: Sequence[Proposal],
        now: Moment,
    ) -> None:
        """Hold the capacity, and begin to wait for the checkpoints of the proposed victims."""
        preemption.last_act_at, preemption.asked_again = now.monotonic, False
        for proposal in proposals:
            job = self._jobs[proposal.job]
            next_save = record_of(job).next_save
            operation = StopOperation(proposal, Phase.SAVING, now.monotonic)
            if next_save is not None and saves_soon(next_save, now=now.wall):
                operation.saves_at = next_save
            self._stops.begin(job, operation)
            preemption.victims.append(job.uid)
        if (places := self._places(preemption, waiting, now=now.wall)) is not None:
            self._hold(waiting, places, preemption, now=now.wall)
            self._cluster.mark(waiting.job.uid)  # its message names the victims

    def _places(self, preemption: Preemption, waiting: TrackedJob, *, now: float) -> Places | None:
        """Return the places of the waiting job after all its victims have stopped, or None."""
        leaving = [*preemption.victims, *preemption.stopped]
        settings = self._running.settings_of(waiting)
        return self._search.places(waiting, settings, leaving, now=now)

    def _hold(
        self, waiting: TrackedJob, places: Places, preemption: Preemption, *, now: float
    ) -> None:
        self._cluster.holds.hold(
            HoldKind.PREEMPT,
            waiting.job.uid,
            members_of(waiting.job),
            places,
            until=now + HOLD_SECONDS,
            waits_for=(*preemption.victims, *preemption.stopped),
        )

    # --- the stop -------------------------------------------------------------------------------

    def advance(self, now: Moment, *, scanning: bool) -> Steps:
        """Advance all preemptions; `scanning`: whether more victims may be searched now."""
        steps: Steps = []
        for preemption in list(self.open.values()):
            waiting = self._cluster.jobs.get(preemption.waiting)
            busy = any(job.tracked.busy for job in self._victims(preemption))
            if waiting is None or not waiting.job.in_queue:
                self._end(preemption)
            elif not (waiting.busy or busy):
                new_steps: Steps | None = None
                with self._running.failures.collect_errors_of(waiting):
                    new_steps = list(self._steps(preemption, waiting, now, scanning=scanning))
                if new_steps is None:
                    self._end(preemption, not_before=now.monotonic + BACK_OFF_SECONDS)
                steps += new_steps or ()
        return steps

    def _victims(self, preemption: Preemption) -> list[RunningJob]:
        return [self._jobs[uid] for uid in preemption.victims if uid in self._jobs]

    def _steps(
        self, preemption: Preemption, waiting: TrackedJob, now: Moment, *, scanning: bool
    ) -> Iterator[tuple[TrackedJob, Step]]:
        for uid in list(preemption.victims):
            self._check(preemption, uid, now)
        jobs = self._victims(preemption)
        places = self._places(preemption, waiting, now=now.wall)
        if places is not None and self._cluster.holds.hold_of(waiting.job.uid) is None:
            self._hold(waiting, places, preemption, now=now.wall)
        if not jobs:
            fits = places is not None and self._permits(waiting, ())
            self._await_start(preemption, waiting, now, fits=fits, scanning=scanning)
        elif places is None or not self._permits(waiting, jobs):
            self._give_up(preemption, now)
        elif self._all_saved(preemption, jobs, now):
            self._hold(waiting, places, preemption, now=now.wall)
            for job in jobs:
                yield job.tracked, self._stop(job, preemption, places, now)
        elif preemption.waiting in self.open:
            for job in jobs:
                if step := self._stops.request(job, now):
                    yield job.tracked, step

    def _check(self, preemption: Preemption, uid: str, now: Moment) -> None:
        """Record that a victim has stopped, or drop a victim that no longer runs with all pods."""
        job = self._jobs.get(uid)
        operation = record_of(job).operation if job else None
        if job is None or operation is None:
            preemption.victims.remove(uid)
        elif job.tracked.job.suspend and job.tracked.state.stop.waiting == preemption.waiting:
            preemption.victims.remove(uid)
            preemption.stopped.append(uid)
            preemption.last_act_at = now.monotonic
            self._stops.end(job)
        elif not all_running(job.tracked, self._cluster.pods(uid)):
            preemption.victims.remove(uid)
            self._stops.end(job)

    def _await_start(
        self,
        preemption: Preemption,
        waiting: TrackedJob,
        now: Moment,
        *,
        fits: bool,
        scanning: bool,
    ) -> None:
        """Wait for the start of the waiting job after all victims have stopped.

        It may not fit after all, if a pod has used the capacity or a controller died before it had
        stopped all victims. Then more victims are searched, or the stopped jobs continue.
        """
        waited = now.monotonic - preemption.last_act_at
        if not fits and scanning and (more := self._more(waiting, preemption.stopped, now)):
            self._ask(preemption, waiting, more, now)
        elif waited >= (HOLD_SECONDS if fits else _NO_VICTIM_SECONDS) or not preemption.stopped:
            self._give_up(preemption, now)

    def _all_saved(self, preemption: Preemption, jobs: Sequence[RunningJob], now: Moment) -> bool:
        """Return whether all jobs are ready to stop; give up if a job did not save in time."""
        late = [job for job in jobs if not self._stops.is_ready(job, now)]
        if not late:
            return not self._ask_again(preemption, jobs, now)
        if now.monotonic - preemption.last_act_at < ANSWER_SECONDS:
            return False
        if blocking := [job for job in late if not self._stops.may_lose(job)]:
            for job in blocking:
                record_miss(record_of(job), at=now.monotonic)
            self._give_up(preemption, now)
            return False
        for job in late:
            if (operation := record_of(job).operation) is not None:
                operation.late = True
        return True

    def _ask_again(self, preemption: Preemption, jobs: Sequence[RunningJob], now: Moment) -> bool:
        """Ask jobs again if their answers are stale by now; return whether any was asked."""
        answered = [
            (job, operation)
            for job in jobs
            if (operation := record_of(job).operation)
            and operation.request_number
            and not operation.late
        ]
        stale = [pair for pair in answered if self._stops.is_stale(*pair, now=now.wall)]
        if preemption.asked_again or not stale:
            return False
        if max(operation.answer_seconds for _, operation in stale) > FRESH_SECONDS:
            stale = answered  # the other answers would be too old then
        # The slowest job is asked first, so that all answer at the same time.
        slowest = max(operation.answer_seconds for _, operation in stale)
        for job, operation in stale:
            record_of(job).asks_at = now.monotonic + slowest - operation.answer_seconds
            operation.request_number, operation.ready = 0, False
            operation.outdated = self._stops.checkpoints(job).saved
        preemption.last_act_at, preemption.asked_again = now.monotonic, True
        return True

    def _stop(
        self, job: RunningJob, preemption: Preemption, places: Places, now: Moment
    ) -> Suspend:
        last, start = job.tracked.state.stop, dict(places.nodes)
        stop = replace(
            last, at=now.wall, count=last.count + 1, waiting=preemption.waiting, places=start
        )
        message = stopped_for(self._stops.checkpoints(job))
        return self._stops.stop(job, names.REASON_STOPPED, message, stop, now)

    # --- the end --------------------------------------------------------------------------------

    def _give_up(self, preemption: Preemption, now: Moment) -> None:
        """End a failed preemption: the victims run on, and the stopped jobs continue."""
        not_before = now.monotonic + BACK_OFF_SECONDS if preemption.stopped else -math.inf
        self._end(preemption, not_before=not_before)

    def _end(self, preemption: Preemption, *, not_before: float = -math.inf) -> None:
        """End a preemption; the waiting job gets no other preemption before `not_before`."""
        self.open.pop(preemption.waiting, None)
        for job in self._victims(preemption):
            self._stops.end(job)
        uid, holds = preemption.waiting, self._cluster.holds
        if (hold := holds.hold_of(uid)) is not None and hold.kind is HoldKind.PREEMPT:
            holds.release(uid)
            self._cluster.mark(uid)
        jobs = self._cluster.jobs
        self._back_offs = {key: at for key, at in self._back_offs.items() if key in jobs}
        if math.isfinite(not_before):
            self._back_offs[uid] = not_before
