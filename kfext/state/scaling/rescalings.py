"""Changes of size until they are written: a checkpoint first, then all of a decision together.

What was decided is judged anew when it is written, as a checkpoint may take two minutes: the job
that waited may have got room, and a person may have changed a size.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from kfext import names
from kfext.core import words
from kfext.core.elastic import with_workers
from kfext.core.lifecycle.patience import suspended
from kfext.core.lifecycle.steps import RequestCheckpoint, Rescale, Step, Suspend
from kfext.core.placement.gang import members_of
from kfext.core.scale.change import Cause, Change, Phase, interrupts, starts_anew
from kfext.core.scale.readiness import ANSWER_SECONDS, Readiness, readiness
from kfext.core.settings.resolve import Settings
from kfext.model.moment import Moment
from kfext.model.plan import LARGEST_GENERATION, Assignment, Plan
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.progress import JobsProgress
from kfext.state.queue import Queue
from kfext.state.scaling.follow_up import PAUSE_SECONDS
from kfext.state.scaling.growth import Growth
from kfext.state.scaling.guard import Guard, Rescue
from kfext.state.scaling.room import ScaleRoom
from kfext.state.scaling.scaled_job import ScaledJob, leaving
from kfext.state.tracked_job import TrackedJob


@dataclass(frozen=True, slots=True)
class Decision:
    """Changes that are written together or not at all; `since` is monotonic.

    `rescue`: for whom the jobs give up workers, None if they do not.
    """

    jobs: tuple[ScaledJob, ...]
    since: float
    rescue: Rescue | None = None


class Rescalings:
    """The decisions that are not written yet."""

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self.room = ScaleRoom(cluster, queue)
        self.guard = Guard(queue, self.room, settings_of)
        self.growth = Growth(queue, self.room, progress, settings_of)
        self._cluster = cluster
        self._queue = queue
        self._progress = progress
        self._settings_of = settings_of
        self._open: list[Decision] = []

    @property
    def rescuing(self) -> bool:
        """Whether workers are about to be given up for a job that waits."""
        return any(one.rescue is not None for one in self._open)

    def begin(
        self,
        changes: Iterable[tuple[ScaledJob, Change]],
        *,
        at: float,
        rescue: Rescue | None = None,
    ) -> None:
        """Begin changes that belong together; `at` is monotonic."""
        jobs = []
        for one, change in changes:
            one.begin(change, Phase.SAVING, at=at)
            self._await(one, awaited=self._interrupts(one))
            jobs.append(one)
        self._open.append(Decision(tuple(jobs), at, rescue))

    def drop_growth(self, *, at: float) -> None:
        """Give up what jobs were to gain and is not written yet: the room is needed."""
        gains = {Cause.REGROW, Cause.GROWTH}
        for decision in list(self._open):
            if any(one.change and one.change.cause in gains for one in decision.jobs):
                self._drop(decision, at=at)

    def steps(self, now: Moment) -> Iterator[tuple[ScaledJob, Step]]:
        """Yield what is to be written now."""
        for decision in list(self._open):
            if any(one.phase is not Phase.SAVING for one in decision.jobs):
                self._drop(decision, at=now.monotonic)  # one of them is not to change any more
            elif not any(one.tracked.busy for one in decision.jobs):
                yield from self._steps(decision, now)

    def state_of(self, one: ScaledJob, *, now: float) -> Readiness:
        """Return whether a job can be interrupted now; `now` is in epoch seconds."""
        seen = self._progress.checkpoints(one.uid)
        return readiness(
            saved=seen.saved,
            answered=seen.answered,
            requested=one.requested,
            now=now,
            interrupts=self._interrupts(one),
        )

    def _interrupts(self, one: ScaledJob) -> bool:
        """Return whether a change costs a job what it did since its last checkpoint.

        Workers that never ran can be taken back without the others taking notice.
        """
        job, change = one.tracked.job, one.change
        shrinks = change is not None and change.workers < one.sizes.now
        if change is not None and change.cause is Cause.TAKE_BACK:
            gone = leaving(self._cluster.pods(one.uid), change.workers)
            if not any(pod.phase == "Running" for pod in gone):
                return False
        return interrupts(job, shrink=shrinks)

    def _steps(self, decision: Decision, now: Moment) -> Iterator[tuple[ScaledJob, Step]]:
        states = {one.uid: self.state_of(one, now=now.wall) for one in decision.jobs}
        late = [one for one in decision.jobs if states[one.uid] is not Readiness.READY]
        if not late:
            self._open.remove(decision)
            yield from self._write(decision, now)
        elif now.monotonic - decision.since >= ANSWER_SECONDS:
            for one in late:
                message = f"it saved no checkpoint within {ANSWER_SECONDS:g} s; nothing was changed"
                one.refused = Verdict(names.REASON_AWAITS_CHECKPOINT, message)
                one.not_before = now.monotonic + PAUSE_SECONDS
            self._drop(decision, at=now.monotonic)
        else:
            for one in late:
                asks = states[one.uid] is Readiness.ASK and not one.requested
                if asks and (step := self._request(one)):
                    yield one, step

    def _request(self, one: ScaledJob) -> RequestCheckpoint | None:
        pod = self._progress.printer(one.uid)
        if pod is None or one.change is None:
            return None
        answered = self._progress.checkpoints(one.uid).answered or 0
        one.requested = max(pod.checkpoint_request, answered) + 1
        message = f"{one.change.why}; it is asked for a checkpoint first"
        return RequestCheckpoint(
            (pod,), one.requested, Verdict(names.REASON_AWAITS_CHECKPOINT, message)
        )

    def _write(self, decision: Decision, now: Moment) -> Iterator[tuple[ScaledJob, Step]]:
        """Yield the writes of a decision whose jobs have all saved their work."""
        rescue = decision.rescue
        if rescue is not None:
            if not self.guard.still_needed(rescue, now=now.wall):
                self._end(decision, at=now.monotonic)
                return
            self._promise(rescue, now)
        for one in decision.jobs:
            self._await(one, awaited=False)
            step = self._step(one, now)
            if step is None:
                one.end(at=now.monotonic)
            else:
                one.enter(Phase.WRITING, at=now.monotonic)
                yield one, step

    def _promise(self, rescue: Rescue, now: Moment) -> None:
        """Keep what is given up for the job that waits: it may be freed pod by pod."""
        waiting = rescue.waiting
        places = self.guard.places(waiting, rescue.workers, rescue.sizes, now=now.wall)
        if places is not None:
            members = members_of(with_workers(waiting.job, rescue.workers))
            self._queue.promises.keep(waiting.job.uid, members, places)

    def _step(self, one: ScaledJob, now: Moment) -> Step | None:
        """Return the write that gives a job its new size, None if there is no room any more."""
        change = one.change
        if change is None:
            return None
        if change.workers < one.sizes.now:
            places: Assignment | None = self.room.shrunk(one, change.workers)
        elif self.growth.kept_away(now=now.wall):
            return None
        else:
            settings = self._settings_of(one.tracked)
            most = min(change.workers, self.room.most(one, settings, now=now.wall))
            if most <= one.sizes.now:
                return None
            change = one.change = replace(change, workers=most)
            places = self.room.grown(one, settings, most, now=now.wall)
        return None if places is None else self._written(one, change, places, now)

    def _written(self, one: ScaledJob, change: Change, places: Assignment, now: Moment) -> Step:
        tracked = one.tracked
        state = one.noted(change.workers, cause=change.cause, now=now.wall)
        plan = tracked.plan
        what = f"{words.workers(one.sizes.now)} become {change.workers}"
        why = f"{what}: {change.why}"
        if starts_anew(tracked.job):
            state = replace(state, reason=names.REASON_RESCALING, message=why)
            pods = self._cluster.pods(one.uid)
            state = suspended(state, tracked.job, pods, plan=plan, now=now.wall)
            members = members_of(with_workers(tracked.job, change.workers))
            self._queue.promises.keep(one.uid, members, places)
            return Suspend(state, workers=change.workers)
        last = max(plan.generation if plan else 0, tracked.state.generation)
        following = Plan(
            job_uid=one.uid,
            generation=last % LARGEST_GENERATION + 1,
            assignment=places,
            port=plan.port if plan else 0,
            why=why,
        )
        shrinks = change.workers < one.sizes.now
        reason = names.REASON_SHRUNK if shrinks else names.REASON_GROWN
        return Rescale(following, change.workers, state, Verdict(reason, why))

    def _drop(self, decision: Decision, *, at: float) -> None:
        self._open.remove(decision)
        self._end(decision, at=at)

    def _end(self, decision: Decision, *, at: float) -> None:
        for one in decision.jobs:
            if one.phase is Phase.SAVING:
                self._await(one, awaited=False)
                one.end(at=at)

    def _await(self, one: ScaledJob, *, awaited: bool) -> None:
        self._progress.await_checkpoint(one.uid, awaited=awaited)
