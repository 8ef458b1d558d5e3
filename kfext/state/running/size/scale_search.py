"""Searches larger sizes for jobs, and donors for waiting jobs.

Sources: DRAGON (Lin et al., CLOSER 2019), second published code, for donors that scale down all or
not at all; Optimus and Pollux for scale-ups while the marginal gain pays. `now`: epoch seconds.
"""

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Set

from kfext import names
from kfext.core import words
from kfext.core.elastic import allowed_range, fewest_workers, interrupts, workers_of
from kfext.core.queue.duration import START_SECONDS
from kfext.model.plan import Places
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.capacity_search import CapacitySearch, GrowthLimit
from kfext.state.running.checkpoint_requests import CheckpointRequests
from kfext.state.running.proposal import Cause, Proposal, Rescue, Workers
from kfext.state.running.restarts import expected_downtime, grace
from kfext.state.running.running_job import RunningJob
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.size.guard import Donor, donors_for, lowest_size
from kfext.state.running.size.record import record_of
from kfext.state.running.size.scale import SCALE, SEEN_FACTOR, best_size, workers_proposal

AGAIN_SECONDS = 3600.0
"""A waiting job that did not start after a rescue gets no other rescue for this long."""
_MAX_IN_VAIN = 4
"""The number of failed searches that are remembered: for the job with the reservation and the job
after it, each among the jobs in mode `act` and among the jobs in mode `observe`."""


class ScaleSearch:
    """Searches sizes and donors; `capacity` searches free capacity in the ledger."""

    def __init__(self, running: RunningJobs, capacity: CapacitySearch) -> None:
        self.capacity = capacity
        self._queue, self._progress = running.queue, running.progress
        self._requests = CheckpointRequests(running.progress)
        self._settings_of = running.settings_of
        self._in_vain: deque[tuple[object, ...]] = deque(maxlen=_MAX_IN_VAIN)

    # --- growth ---------------------------------------------------------------------------------

    def growth(self, job: RunningJob, limit: GrowthLimit, *, now: float) -> Proposal | None:
        """Return the proposal to scale a job up now, or None."""
        workers, sizes = self.size(job, limit, now=now), record_of(job).sizes
        if workers <= sizes.now:
            fewer = sizes.now < sizes.requested
            refusal = self.capacity.quota_refuses(job, sizes.now + 1) if fewer else ""
            record_of(job).quota_refusal = refusal
            return None
        more = words.workers(workers - sizes.now)
        if workers <= sizes.requested:
            why = f"it regains {more} of the {sizes.requested} requested: capacity is free"
            return workers_proposal(job.uid, Workers(Cause.REGROW, workers), why)
        why = f"it grows by {more}: no job waits for the free capacity"
        return workers_proposal(job.uid, Workers(Cause.GROWTH, workers), why)

    def size(self, job: RunningJob, limit: GrowthLimit, *, now: float) -> int:
        """Return the size to scale up to, or the present size if the job cannot or need not."""
        size, sizes = record_of(job), record_of(job).sizes
        # Until the job has been observed to train, its requested size is the best guess.
        largest = max(size.largest or sizes.requested, sizes.now)
        up_to = SEEN_FACTOR * largest
        if limit is GrowthLimit.REQUESTED:
            up_to = min(up_to, sizes.requested)
        if limit is GrowthLimit.NONE or up_to <= sizes.now:
            return sizes.now
        fitting = self._largest(job, up_to=min(sizes.most, up_to), now=now)
        if fitting > max(sizes.requested, sizes.now):
            ceiling = SCALE.parameter(self._settings_of(job.tracked), "ceiling")
            below = self.capacity.below_ceiling(job, fitting, present=sizes.now, ceiling=ceiling)
            fitting = max(below, min(fitting, sizes.requested))
        if size.failed:
            fitting = min(fitting, max(size.failed - 1, sizes.requested))
        return best_size(
            sizes,
            speeds=size.speeds,
            largest=largest,
            fitting=max(fitting, sizes.now),
            pause=self.cost(job, now=now),
            remaining=self._queue.durations.shown_remaining(job.tracked.job, now=now),
        )

    def _largest(self, job: RunningJob, *, up_to: int, now: float) -> int:
        """Return the largest size that fits; a failed search counts until capacity is released."""
        size, tracked = record_of(job), job.tracked
        present = size.sizes.now
        if up_to <= present:
            return present
        limits = self.capacity.growth_limits(tracked, now=now)
        inputs = (self.capacity.gains, limits, tracked.plan, tracked.job)
        if size.failed_search == inputs:
            return present
        fitting = self.capacity.most_workers(job, present, up_to=up_to, now=now)
        if fitting == present and not self.capacity.quota_refuses(job, present + 1):
            size.failed_search = inputs
        return fitting

    def cost(self, job: RunningJob, *, now: float) -> float:
        """Return the seconds that a change of size costs a job.

        They are the downtime of the training and the lost work. The downtime is estimated from the
        last change. Before the first change it is the time from the creation of the pods to the
        first step, plus the grace period of the pods, because a change may have to wait for it. If
        the other workers continue to train, only the start of the new workers counts.
        """
        if not interrupts(job.tracked.job):
            return max(0.0, expected_downtime(job) - grace(job))
        return expected_downtime(job) + self._requests.unsaved(job.uid, now=now)

    # --- the starvation guard -------------------------------------------------------------------

    def due(self, *, now: float) -> Iterator[TrackedJob]:
        """Yield the jobs that have waited long enough for a rescue, in the order of the queue.

        A job follows only the job with the reservation, which no later job can delay, and jobs that
        cannot have a reservation because they fit at no expected end of a job. A job that did not
        start after a rescue is skipped for AGAIN_SECONDS.
        """
        reservations = self._queue.reservations
        holder = reservations.holder
        for tracked in self._queue.queued():
            if tracked.not_started_reason != names.REASON_NO_ROOM or tracked.job.excess:
                continue
            strikes, at = tracked.last_rescue
            if tracked.state.strikes > strikes and now - at < AGAIN_SECONDS:
                continue
            wait = SCALE.parameter(self._settings_of(tracked), "wait")
            if tracked.settled and tracked.queued_seconds(now) >= wait:
                yield tracked
            before = holder is not None and self._queue.key(tracked) < self._queue.key(holder)
            reserving = before and reservations.due_in(tracked, now=now) <= 0
            if not (reserving or reservations.holds(tracked)):
                return

    def rescue(
        self,
        waiting: TrackedJob,
        candidates: Collection[RunningJob],
        rested: Set[str],
        *,
        now: float,
    ) -> list[Proposal]:
        """Return the proposals to scale down some `candidates` so that the waiting job fits.

        Return none if it would not fit as a whole, with its minimum of workers.
        `rested`: the uids of the candidates that may be scaled below their requested size.
        """
        settings = self._settings_of(waiting)
        workers = fewest_workers(waiting.job, allowed_range(waiting.job, settings))
        length = self._length(waiting, workers, now)
        donors = self._donors(waiting, length, candidates, rested, now)
        limits = self.capacity.limits(waiting, now=now)
        offered = tuple((donor.uid, donor.now, donor.lowest) for donor in donors)
        inputs = (waiting.job, workers, limits, self.capacity.version, offered)
        if not donors or inputs in self._in_vain:
            return []

        def fits(sizes: Mapping[str, int]) -> bool:
            return self.places(waiting, workers, sizes, now=now) is not None

        priority = self._queue.priority(waiting)
        sizes = None if fits({}) else donors_for(donors, fits, priority=priority)
        if not sizes:
            self._in_vain.append(inputs)
            return []
        rescue = Rescue(waiting.job.uid, workers, sizes)
        return [
            workers_proposal(
                donor.uid,
                Workers(Cause.RESCUE, size, rescue),
                f"it releases {words.workers(donor.now - size)} for a job of about {length:.0f} s; "
                f"its own remaining time is about {donor.remaining:.0f} s",
            )
            for donor in donors
            if (size := sizes.get(donor.uid)) is not None
        ]

    def places(
        self, waiting: TrackedJob, workers: int, sizes: Mapping[str, int], *, now: float
    ) -> Places | None:
        """Return the places of a waiting job once other jobs scaled down to `sizes`, by uid."""
        gone = self.capacity.freed_claims(sizes)
        return self.capacity.waiting_places(waiting, workers, now=now, gone=gone)

    def still_needed(self, rescue: Rescue, *, now: float) -> bool:
        """Return whether the waiting job still needs a rescue and would then fit."""
        return any(
            self.places(waiting, rescue.workers, {}, now=now) is None
            and self.places(waiting, rescue.workers, rescue.sizes, now=now) is not None
            for waiting in self.due(now=now)
            if waiting.job.uid == rescue.waiting
        )

    def _length(self, waiting: TrackedJob, workers: int, now: float) -> float:
        """Return the expected duration of a waiting job with `workers` workers.

        Below its requested size it takes longer in proportion.
        """
        remaining = self._queue.durations.remaining(waiting.job, now=now)
        return START_SECONDS + remaining * max(1, workers_of(waiting.job)) / max(1, workers)

    def _donors(
        self,
        waiting: TrackedJob,
        length: float,
        candidates: Collection[RunningJob],
        rested: Set[str],
        now: float,
    ) -> list[Donor]:
        """Return the possible donors for a waiting job, in the order of their uids."""
        durations = self._queue.durations
        known, deadline = durations.known(waiting.job), waiting.job.deadline
        most = length if known is not None else math.inf if deadline is None else deadline
        across = SCALE.parameter(self._settings_of(waiting), "acrossNamespaces")
        donors = []
        for job in sorted(candidates, key=lambda job: job.uid):
            namespace, settings = job.tracked.job.namespace, self._settings_of(job.tracked)
            allowed = across and SCALE.parameter(settings, "acrossNamespaces")
            if not (allowed or namespace == waiting.job.namespace):
                continue
            sizes, remaining = record_of(job).sizes, durations.remaining(job.tracked.job, now=now)
            lowest = lowest_size(
                sizes, remaining=remaining, length=length, most=most, rested=job.uid in rested
            )
            if sizes.now > lowest:
                priority, missed = self._queue.priority(job.tracked), record_of(job).missed
                saved = self._progress.followed(job.uid).checkpoints.saved
                doubts = missed, saved is None and interrupts(job.tracked.job)
                donors.append(
                    Donor(job.uid, priority, sizes.now, lowest, sizes.requested, remaining, doubts)
                )
        return donors
