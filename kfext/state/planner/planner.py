"""The planner: changes and the time go in, steps come out. No I/O, no clock.

Jobs are decided on in rounds, each job once. Queued jobs are decided on in queue order, with the
capacity that was free when the round began. Capacity that becomes free during a round is offered in
the next round, from the head of the queue, to the jobs that it may help. A round may take many
ticks.

Each tick: 1. update the mirror; 2. choose the next changed job, alternately a running and a queued
job; 3. compute its next step with core.lifecycle; 4. record the claims of the step, and of the
reservation for the head of the queue, on the ledger; 5. repeat from 2 until no job remains or the
limit of decisions is reached.

The driver carries out the steps, shows the reports, and returns the outcome of each step. The
controller and `kubectl kfext plan` are drivers.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kfext.core.ledger.capacity_hold import HoldKind
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.patience import claims_last
from kfext.core.lifecycle.refused import while_refused
from kfext.core.lifecycle.situation import CardView, Clocks, Refused, Situation
from kfext.core.lifecycle.steps import Step, Unsuspend, Wait
from kfext.core.placement.gang import members_of
from kfext.model.moment import Moment
from kfext.model.parameters import Fairness
from kfext.model.plan import Places
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.state.mirror.cards import Reserve, Unreserve, with_slots_in_use
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.placeholders import Ask, Withdraw
from kfext.state.mirror.settings import SettingsSource
from kfext.state.mirror.timers import RoundQueue, Timers
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.companion import Companion
from kfext.state.reports.failed_starts import FailedStarts
from kfext.state.reports.progress import JobsProgress
from kfext.state.waiting.durations import DurationEstimates
from kfext.state.waiting.queue import Queue

MAX_DECISIONS = 64
MAX_PODS = 20_000
"""A tick ends after this many jobs, or after jobs with this many pods, because larger jobs take
longer; a lower limit of jobs lowers the limit of pods in proportion. With counts instead of times,
every driver makes the same steps on any machine. Between ticks the controller does other work."""
_RETRY_SECONDS = 30.0
"""The pause before a job is decided on again after an error of kfext."""
_REPEAT_SECONDS = 1.0
"""The pause after a step that could be written only in part."""
_MAX_REFRESHED = 10
"""The number of jobs at the head of the queue that get new messages in `refresh_messages`."""
_START_SECONDS = 10.0
"""A refused start holds its capacity for this long: it is tried again within seconds."""


@dataclass(frozen=True, slots=True)
class Report:
    """The phase and verdict to show for a job; the phase of a job that kfext ignores is None."""

    tracked: TrackedJob
    phase: str | None
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class Tick:
    """The decisions of one tick.

    `steps`: the steps to carry out; call `Planner.finish` after each step.
    `reports`: the phases and verdicts to show.
    `failures`: the jobs with an error in the decision or in the search for a reservation.
    `phases`: the phases that ended, each with its duration in seconds.
    `decided`: the number of jobs that were decided on.
    `remainder`: the number of jobs for the next tick, which may follow at once; 1 if only the end
        of a round remains, such as a search for a reservation.
    """

    steps: tuple[tuple[TrackedJob, Step], ...] = ()
    reports: tuple[Report, ...] = ()
    failures: tuple[tuple[TrackedJob, Exception], ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    decided: int = 0
    remainder: int = 0


class Planner:
    """Decides the next step of each job. `wake` is called when there is something to decide.

    `durations`: by default, estimates from progress and ended jobs. `most`: decisions per tick.
    """

    def __init__(
        self,
        *,
        wake: Callable[[], None] = lambda: None,
        most: int = MAX_DECISIONS,
        durations: DurationEstimates | None = None,
    ) -> None:
        self.settings = SettingsSource()
        self.cluster = Cluster(wake=wake, managed=self.settings.is_managed)
        self.settings.follow(self.cluster.update_namespace)
        self.progress = JobsProgress(self.cluster, self.settings.settings_of)
        durations = durations or DurationEstimates(self.progress)
        self.queue = Queue(self.cluster, self.settings, durations)
        self.companion = Companion(
            self.cluster, self.queue, self.progress, self.settings.settings_of
        )
        self.starts = FailedStarts(self.cluster)
        self.cluster.claim_tracker.doubted = self.starts.doubted
        self.cards = self.cluster.claim_tracker.cards
        self.placeholders = self.cluster.claim_tracker.placeholders
        self.alarms = Timers()
        self._most = most
        self._queued, self._running = RoundQueue(), RoundQueue()
        self._running_first, self._in_round = True, False
        self._adopted = False
        self._last_moment = Moment(0.0, 0.0)
        self._undecided: set[str] = set()
        self._refreshed = 0

    def refresh_messages(self) -> None:
        """Decide again on the first waiting jobs if any claim has changed since the last call.

        A refusal holds until capacity becomes free, but its message tells the free capacity.
        """
        version = self.cluster.ledger.version
        if version == self._refreshed:
            return
        self._refreshed = version
        self.queue.no_fits.clear()
        for tracked in self.queue.queued()[:_MAX_REFRESHED]:
            self.cluster.mark(tracked.job.uid)

    def tick(self, now: Moment) -> Tick:
        """Decide on the jobs that changed, and on the jobs with an alarm that is due.

        The sequence of decisions does not depend on where a tick ends.
        """
        self._last_moment = now
        for uid in self.alarms.due(now.monotonic):
            self._retry(uid)
        self.cluster.set_time(now.wall)
        self.cluster.settle(now.monotonic)
        self.starts.settle(now)
        draft, calm = _Draft(), False
        reservations = self.queue.reservations
        self.queue.begin_tick(now=now.wall)
        if self.queue.usage.on or self.settings.queueing.fairness is Fairness.USAGE:
            self.queue.usage.begin_tick(now)
        if not self._adopted:
            self._adopted = True
            self.companion.adopt(now)
        if not self._in_round:
            self._begin_round(now.monotonic)
        most, most_pods = self._most, MAX_PODS * self._most // MAX_DECISIONS
        while draft.decided < most and draft.pods < most_pods and reservations.may_search:
            self._collect_changes(now.monotonic)
            tracked = self._next_job()
            if tracked is not None:
                if self._is_decidable(tracked, now.monotonic) and not self._still_holds(tracked):
                    self._decide(tracked, now, draft)
                continue
            # The round of the queue is over.
            draft.show(
                self.queue.renew_reservation(now=now.wall),
                *self.queue.update_positions(at=now.monotonic),
            )
            more = self._begin_round(now.monotonic) or self._running
            calm = not (more or reservations.on_break)
            if calm:
                break
        self._collect_changes(now.monotonic)
        return Tick(
            steps=tuple(draft.steps),
            reports=tuple(
                Report(tracked, tracked.phase, self.queue.shown_verdict(tracked))
                for tracked in draft.shown.values()
                if not tracked.busy
            ),
            failures=(*draft.failures, *reservations.failures.take()),
            phases=tuple(draft.phases),
            decided=draft.decided,
            remainder=len(self._queued) + len(self._running)
            or int(not calm or reservations.unfinished),
        )

    def next_alarm(self) -> float:
        """Return when the next decision is due, in monotonic seconds, or infinity."""
        cards = self.cards.pending.values()
        held = self.cluster.holds.next_end() - self._last_moment.wall + self._last_moment.monotonic
        asks = self.cluster.claim_tracker.autoscaled
        placeholders = self.placeholders.next_retry_at() if asks else math.inf
        times = self.alarms.next(), self.queue.next_position_update(), self.companion.next_look()
        return min(*times, held, placeholders, *cards)

    def card_steps(self, now: float) -> Iterable[Reserve | Unreserve]:
        """Return the steps that reserve GPUs for slots or release them.

        `now`: in monotonic seconds. Call `cards.finish` after each step.
        """
        cards, demand = self.cards, self.cards.demand
        idle = not (demand.by_job or demand.by_pod or cards.reserved or cards.pending)
        return () if idle else cards.due(now)

    def placeholder_steps(self, now: float) -> Iterable[Ask | Withdraw]:
        """Return the steps that create and delete placeholders.

        `now`: in monotonic seconds. Call `placeholders.finish` after each step.
        """
        asked = self.cluster.claim_tracker.autoscaled and not self.placeholders.idle
        return self.placeholders.due(now) if asked else ()

    def finish(
        self,
        tracked: TrackedJob,
        now: Moment,
        *,
        complete: bool = True,
        refused: bool = False,
        final: str = "",
    ) -> Report | None:
        """Record the outcome of a step: `complete`, done in part, or `refused`.

        After a failure, the job is decided on again from its state at that time. `final`: the
        answer of an API server that would refuse the step again, shown in the returned report.
        """
        uid, executor = tracked.job.uid, tracked.executor_condition
        start = tracked.assumed if tracked.step == Unsuspend.__name__ else None
        tracked.end_step()
        if executor:
            done = complete and not refused
            self.companion.finish(uid, executor, complete=done, final=final, now=now.monotonic)
            self.cluster.sync_claims(tracked)
            self.cluster.mark(uid)
            return None
        if final:
            tracked.write_refused(final, at=now.monotonic)
        stopped = self.companion.keeps_hold(uid)
        if refused and start is not None and not tracked.failing and not stopped:
            # Hold the capacity until the next attempt, but only once: else the hold may never end.
            placement = Places(start.assignment, start.slots)
            members, until = members_of(tracked.job), now.wall + _START_SECONDS
            self.cluster.holds.hold(HoldKind.START, uid, members, placement, until=until)
        self.cluster.sync_claims(tracked)
        if refused:
            self.alarms.set(uid, now.monotonic + tracked.write_failed(at=now.monotonic))
            if not final or self.cluster.jobs.get(uid) is not tracked:
                return None
            shown = while_refused(tracked.job, self.cluster.pods(uid), tracked.step, final)
            return Report(tracked, shown.phase, shown.verdict) if shown else None
        tracked.write_accepted()
        if start is not None and not self.companion.may_return(uid):  # a move may still be reverted
            self.cluster.holds.release(uid)
        if complete:
            self.cluster.mark(uid)
        else:
            self.alarms.set(uid, now.monotonic + _REPEAT_SECONDS)
        return None

    def _decide(self, tracked: TrackedJob, now: Moment, draft: "_Draft") -> None:
        draft.decided += 1
        self._undecided.discard(tracked.job.uid)
        draft.pods += min(tracked.job.pods, MAX_PODS)
        try:
            self.cluster.refresh_volumes(tracked)
            situation = self.situation(tracked, now)
            ledger = self.cluster.ledger
            # A running job comes first: replacing its lost pods must not wait for the queue.
            available = ledger.offered() if tracked.job.suspend else ledger
            step = next_step(situation, available, self.queue.no_fits)
            self._record_step(tracked, situation, step, now, draft)
            self.queue.record(tracked)
            holder = self.queue.renew_reservation_after(tracked, now=now.wall)
        except Exception as error:
            # A failed decision on one job must not keep other jobs from being placed.
            tracked.end_step()
            draft.failures.append((tracked, error))
            self.alarms.set(tracked.job.uid, now.monotonic + _RETRY_SECONDS)
            return
        draft.show(tracked, holder)
        if not isinstance(step, Wait):
            draft.steps.append((tracked, step))
        try:
            self.companion.observe(tracked, situation.settings)
        except Exception as error:  # it must not keep the job from being placed
            draft.failures.append((tracked, error))

    def _record_step(
        self, tracked: TrackedJob, situation: Situation, step: Step, now: Moment, draft: "_Draft"
    ) -> None:
        """Record the claims of a step on the ledger, and set the alarm of the job."""
        uid, seconds = tracked.job.uid, claims_last(situation)
        if tracked.lapsed != (seconds <= 0):
            tracked.lapsed = seconds <= 0
            self.cluster.sync_claims(tracked)
        if situation.clocks.quiet >= situation.placement.create_timeout:
            self.cluster.claim_tracker.give_up(tracked)
        claimed = not tracked.unclaimed
        ended = tracked.decide(step, at=now.monotonic)
        if claimed == tracked.unclaimed:
            self.cluster.sync_claims(tracked)
        if ended is not None:
            draft.phases.append(ended)
        if not isinstance(step, Wait):
            if tracked.assumed is not None:
                self.cluster.sync_claims(tracked)
            if isinstance(step, Unsuspend):
                if not self.companion.keeps_hold(uid):  # else the start may be refused
                    self.cluster.holds.release(uid)  # the plan claims the places now
                self.queue.started_at = now.monotonic
            return
        until_lapse = seconds if seconds > 0 else math.inf
        again = until_lapse if step.again is None else min(step.again, until_lapse)
        if math.isinf(again):
            self.alarms.forget(uid)
        else:
            self.alarms.set(uid, now.monotonic + again)

    def situation(self, tracked: TrackedJob, now: Moment) -> Situation:
        """Return everything that the next step of a job depends on, except the ledger."""
        pods = self.cluster.pods(tracked.job.uid)
        return Situation(
            job=tracked.job,
            pods=tuple(self.cluster.volumes.of_pods(pods)),
            plan=tracked.plan,
            state=tracked.state,
            now=now.wall,
            settings=self.settings.settings_of(tracked),
            host_network=self.settings.host_network(tracked),
            clocks=self._clocks(tracked, now.monotonic),
            succeeded=frozenset(tracked.succeeded),
            context=self.queue.context(tracked, now=now.wall),
            cards=self._cards_of(tracked, pods) if tracked.shares_gpus else CardView(),
            failed_on=self.starts.failed_on(tracked),
            blamed=self.starts.failed_on(tracked, twice=True),
            doubted=self.starts.doubted(tracked),
            refused={
                step: Refused(refusal.message, refusal.until - now.monotonic)
                for step, refusal in tracked.refusals.items()
                if refusal.until > now.monotonic
            },
        )

    def _clocks(self, tracked: TrackedJob, now: float) -> Clocks:
        since = tracked.never_fits_since
        return Clocks(
            waited=now - tracked.progressed_at,
            quiet=self.cluster.backlog.quiet(tracked.job.uid, now),
            unbound={uid: now - since for (uid, _), since in tracked.unbound_since.items()},
            unreserved={place: now - since for place, since in tracked.unreserved_since.items()},
            settled=now - tracked.settled_at,
            never_fits=0.0 if since is None else now - since,
        )

    def _cards_of(self, tracked: TrackedJob, pods: tuple[Pod, ...]) -> CardView:
        plan = with_slots_in_use(tracked.plan, tracked.job, pods)
        return self.cards.view(plan, pods, job_uid=tracked.job.uid)

    def _retry(self, uid: str) -> None:
        """Mark a job to be decided on again after its alarm."""
        tracked = self.cluster.jobs.get(uid)
        if tracked is not None:
            tracked.not_before = 0.0
            self.cluster.changed.add(uid)

    def _next_job(self) -> TrackedJob | None:
        """Return the next job, or None at the end of the round of the queue.

        Running and queued jobs alternate, so neither group delays the other, however many change.
        """
        running = self._running.pop() if self._running_first else None
        self._running_first = running is None
        return running or self._queued.pop()

    def _begin_round(self, now: float) -> bool:
        """Offer free capacity to the queued jobs; return whether it may help one of them."""
        self._observe(self.cluster.changed)
        for tracked in self.queue.begin_round():
            self._add(tracked, now)
        self._queued.begin_round()
        self._in_round = not self._queued.is_over
        return self._in_round

    def _collect_changes(self, now: float) -> None:
        """Add the changed jobs, if they can be decided on, to the round."""
        changed, self.cluster.changed = self.cluster.changed, set()
        self._undecided |= changed
        self._observe(changed)
        for uid in changed:
            tracked = self.cluster.jobs.get(uid)
            if tracked is None:
                self._undecided.discard(uid)
                for part in (self.queue, self.settings, self.alarms):
                    part.forget(uid)
            else:
                self._add(tracked, now)
        if self._running.is_over:
            self._running.begin_round()

    def _observe(self, changed: Iterable[str]) -> None:
        """Show changed jobs to the queue before any decision: the end of a job may reorder it."""
        for uid in changed:
            tracked = self.cluster.jobs.get(uid)
            if tracked is not None:
                self.queue.observe(tracked)

    def _add(self, tracked: TrackedJob, now: float) -> None:
        if self._is_decidable(tracked, now):
            jobs = self._queued if tracked.job.suspend else self._running
            jobs.add(tracked, self.queue.key(tracked))

    def _still_holds(self, tracked: TrackedJob) -> bool:
        """Return whether the last decision holds; otherwise 1,000 jobs took 20,000 decisions."""
        if tracked.job.uid in self._undecided or not tracked.job.suspend:
            return False
        return self.queue.still_waits_for_operator(tracked)

    def _is_decidable(self, tracked: TrackedJob, now: float) -> bool:
        """Return whether a job can be decided on; else it is gone or will be marked again."""
        exists = self.cluster.jobs.get(tracked.job.uid) is tracked
        return exists and not tracked.busy and now >= tracked.not_before


class _Draft:
    """The decisions of a tick so far; `shown` are the jobs to report, in order."""

    def __init__(self) -> None:
        self.steps: list[tuple[TrackedJob, Step]] = []
        self.shown: dict[str, TrackedJob] = {}
        self.failures: list[tuple[TrackedJob, Exception]] = []
        self.phases: list[tuple[str, float]] = []
        self.decided = self.pods = 0

    def show(self, *jobs: TrackedJob | None) -> None:
        """Add jobs to report; None is ignored."""
        self.shown |= {tracked.job.uid: tracked for tracked in jobs if tracked is not None}


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is next for a job.

    `step`: its next step, or a Wait while a step of the job is being written.
    `ahead`: the number of jobs before it in the queue. `why_behind`: why they come first, or empty.
    """

    step: Step
    ahead: int
    why_behind: str


def outlooks(planner: Planner, now: Moment) -> dict[str, Outlook]:
    """Return what is next for every job, by uid, after a decision on every changed job.

    The steps of the other jobs count as begun, so their claims hold.
    """
    steps: dict[str, Step] = {}
    # Each change is decided on once; a decision may free capacity for jobs before it.
    for _ in range(2 * len(planner.cluster.jobs) + 2):
        tick = planner.tick(now)
        steps |= {tracked.job.uid: step for tracked, step in tick.steps}
        if not tick.remainder:
            break
    queued = (tracked.job.uid for tracked in planner.queue.queued() if not tracked.busy)
    result = {}
    ahead = {uid: number for number, uid in enumerate(queued)}
    for uid, tracked in planner.cluster.jobs.items():
        step = steps.get(uid) or Wait(tracked.phase, tracked.verdict)
        before = ahead.get(uid, 0)
        why_behind = planner.queue.why_behind(tracked) if before else ""
        result[uid] = Outlook(step, before, why_behind)
    return result
