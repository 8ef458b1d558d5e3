"""Carries out preemptions: places are held, all victims save their work, all stop together.

The places are held before any job is asked, so no third job takes the room, whenever the pods end.
Before the stop, the search shows once more that the waiting job then fits. Times are monotonic,
except that a float `now` is in epoch seconds.
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
from kfext.state.running.checkpoint_requests import PAUSE_SECONDS, miss
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

_MORE_SECONDS = 30.0
"""After this without more victims, stopped jobs go on if the waiting job does not fit after all."""
More = Callable[[TrackedJob, Sequence[str], Moment], Sequence[Proposal]]
Permits = Callable[[TrackedJob, Sequence[RunningJob]], bool]


@dataclass(slots=True)
class Preemption:
    """Jobs that stop together for a waiting job, by uid.

    `victims`: the jobs that still run. `stopped`: the jobs that were stopped for it.
    `since`: when the victims were asked, or the last of them was stopped.
    `again`: whether jobs that had saved long before the last job were asked again.
    """

    waiting: str
    since: float
    victims: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    again: bool = False


class Preemptions:
    """The preemptions that are under way: `open`, by the uid of the waiting job.

    `jobs`: the followed jobs. `more` returns the stops that a waiting job needs beside the jobs
    that are gone already. `permits`: whether jobs may still stop for a waiting job.
    """

    def __init__(
        self,
        running: RunningJobs,
        jobs: Mapping[str, RunningJob],
        stops: JobStops,
        *,
        search: StopSearch,
        more: More,
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
        self._rests: dict[str, float] = {}

    def leaves_alone(self, uid: str, *, at: float) -> bool:
        """Return whether jobs stop for a waiting job already, or did so in vain a while ago."""
        return uid in self.open or self._rests.get(uid, -math.inf) > at

    # --- how a preemption begins ----------------------------------------------------------------

    def adopt(self, job: RunningJob, now: Moment) -> None:
        """Go on with the preemption that an earlier controller stopped a job for, if any."""
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
        """Begin to stop jobs for the waiting job with a uid."""
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
        """Hold the places, and begin to wait for the checkpoints of jobs."""
        preemption.since, preemption.again = now.monotonic, False
        for proposal in proposals:
            job = self._jobs[proposal.job]
            save = record_of(job).next_save
            operation = StopOperation(proposal, Phase.SAVING, now.monotonic)
            if save is not None and saves_soon(save, now=now.wall):
                operation.saves_at = save
            self._stops.begin(job, operation)
            preemption.victims.append(job.uid)
        if (places := self._places(preemption, waiting, now=now.wall)) is not None:
            self._hold(waiting, places, preemption, now=now.wall)
            self._cluster.mark(waiting.job.uid)  # its message names the victims

    def _places(self, preemption: Preemption, waiting: TrackedJob, *, now: float) -> Places | None:
        """Return the places of the waiting job once all its victims are gone, or None."""
        gone = [*preemption.victims, *preemption.stopped]
        settings = self._running.settings_of(waiting)
        return self._search.places(waiting, settings, gone, now=now)

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

    # --- how it goes on -------------------------------------------------------------------------

    def advance(self, now: Moment, *, looks: bool) -> Steps:
        """Bring all preemptions further; `looks`: whether more victims may be searched."""
        steps: Steps = []
        for preemption in list(self.open.values()):
            waiting = self._cluster.jobs.get(preemption.waiting)
            busy = any(job.tracked.busy for job in self._victims(preemption))
            if waiting is None or not waiting.job.in_queue:
                self._end(preemption)
            elif not (waiting.busy or busy):
                found: Steps | None = None
                with self._running.failures.about(waiting):
                    found = list(self._steps(preemption, waiting, now, looks=looks))
                if found is None:
                    self._end(preemption, rests_until=now.monotonic + PAUSE_SECONDS)
                steps += found or ()
        return steps

    def _victims(self, preemption: Preemption) -> list[RunningJob]:
        """Return the victims that are still followed."""
        return [self._jobs[uid] for uid in preemption.victims if uid in self._jobs]

    def _steps(
        self, preemption: Preemption, waiting: TrackedJob, now: Moment, *, looks: bool
    ) -> Iterator[tuple[TrackedJob, Step]]:
        for uid in list(preemption.victims):
            self._check(preemption, uid, now)
        jobs = self._victims(preemption)
        places = self._places(preemption, waiting, now=now.wall)
        if places is not None and self._cluster.holds.of(waiting.job.uid) is None:
            self._hold(waiting, places, preemption, now=now.wall)
        if not jobs:
            fits = places is not None and self._permits(waiting, ())
            self._await_start(preemption, waiting, now, fits=fits, looks=looks)
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
        """Record that a victim has stopped, or forget a victim that no longer runs well."""
        job = self._jobs.get(uid)
        operation = record_of(job).operation if job else None
        if job is None or operation is None:
            preemption.victims.remove(uid)
        elif job.tracked.job.suspend and job.tracked.state.stop.waiting == preemption.waiting:
            preemption.victims.remove(uid)
            preemption.stopped.append(uid)
            preemption.since = now.monotonic
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
        looks: bool,
    ) -> None:
        """Wait for the start of a job that all victims have stopped for.

        It may not fit after all: a pod took the room, or a controller died before it had stopped
        all of them. Then more victims are searched, or the stopped jobs go on.
        """
        waited = now.monotonic - preemption.since
        if not fits and looks and (more := self._more(waiting, preemption.stopped, now)):
            self._ask(preemption, waiting, more, now)
        elif waited >= (HOLD_SECONDS if fits else _MORE_SECONDS) or not preemption.stopped:
            self._give_up(preemption, now)

    def _all_saved(self, preemption: Preemption, jobs: Sequence[RunningJob], now: Moment) -> bool:
        """Return whether all jobs are ready to stop; give up if a job has saved nothing in time."""
        late = [job for job in jobs if not self._stops.is_ready(job, now)]
        if not late:
            return not self._ask_again(preemption, jobs, now)
        if now.monotonic - preemption.since < ANSWER_SECONDS:
            return False
        if silent := [job for job in late if not self._stops.may_lose(job)]:
            for job in silent:
                miss(record_of(job), at=now.monotonic)
            self._give_up(preemption, now)
            return False
        for job in late:
            if (operation := record_of(job).operation) is not None:
                operation.late = True
        return True

    def _ask_again(self, preemption: Preemption, jobs: Sequence[RunningJob], now: Moment) -> bool:
        """Ask jobs once more that have trained on since they answered; return whether any has."""
        answered = [
            (job, operation)
            for job in jobs
            if (operation := record_of(job).operation)
            and operation.requested
            and not operation.late
        ]
        stale = [pair for pair in answered if self._stops.is_stale(*pair, now=now.wall)]
        if preemption.again or not stale:
            return False
        if max(operation.took for _, operation in stale) > FRESH_SECONDS:
            stale = answered  # the others would be stale then
        # The slowest is asked first, so that all answer at the same time.
        slowest = max(operation.took for _, operation in stale)
        for job, operation in stale:
            record_of(job).asks_at = now.monotonic + slowest - operation.took
            operation.requested, operation.ready = 0, False
            operation.outdated = self._stops.checkpoints(job).saved
        preemption.since, preemption.again = now.monotonic, True
        return True

    def _stop(
        self, job: RunningJob, preemption: Preemption, places: Places, now: Moment
    ) -> Suspend:
        """Return the write that stops a job."""
        last, start = job.tracked.state.stop, dict(places.nodes)
        stop = replace(
            last, at=now.wall, count=last.count + 1, waiting=preemption.waiting, places=start
        )
        message = stopped_for(self._stops.checkpoints(job))
        return self._stops.stop(job, names.REASON_STOPPED, message, stop, now)

    # --- how it ends ----------------------------------------------------------------------------

    def _give_up(self, preemption: Preemption, now: Moment) -> None:
        """Let the victims run, and the stopped jobs go on; others may be found at the next look."""
        rests = now.monotonic + PAUSE_SECONDS if preemption.stopped else -math.inf
        self._end(preemption, rests_until=rests)

    def _end(self, preemption: Preemption, *, rests_until: float = -math.inf) -> None:
        """End a preemption; until `rests_until` no job stops for the waiting job."""
        self.open.pop(preemption.waiting, None)
        for job in self._victims(preemption):
            self._stops.end(job)
        uid, holds = preemption.waiting, self._cluster.holds
        if (hold := holds.of(uid)) is not None and hold.kind is HoldKind.PREEMPT:
            holds.release(uid)
            self._cluster.mark(uid)
        self._rests = {key: at for key, at in self._rests.items() if key in self._cluster.jobs}
        if math.isfinite(rests_until):
            self._rests[uid] = rests_until
