"""Changes of size until they are written: a checkpoint first, then all of a decision together.

What was decided is judged anew when it is written, as a checkpoint may take two minutes: the job
that waited may have got room, and a person may have changed a size.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from kfext import names
from kfext.core.lifecycle.steps import Step
from kfext.core.scale.change import Cause, Change, Phase
from kfext.core.scale.readiness import ANSWER_SECONDS, Readiness
from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.failures import Failures
from kfext.state.progress import JobsProgress
from kfext.state.queue import Queue
from kfext.state.scaling.follow_up import PAUSE_SECONDS, lengthened
from kfext.state.scaling.growth import Growth
from kfext.state.scaling.guard import Guard, Rescue
from kfext.state.scaling.room import ScaleRoom
from kfext.state.scaling.saves import Saves
from kfext.state.scaling.scaled_job import ScaledJob
from kfext.state.scaling.sizing import Sizing
from kfext.state.tracked_job import TrackedJob


@dataclass(frozen=True, slots=True)
class Decision:
    """Changes that are written together or not at all; `since` is monotonic.

    `rescue`: for whom the jobs give up workers, None if they do not.
    `again`: whether those that had saved long before the last one were asked a second time.
    """

    jobs: tuple[ScaledJob, ...]
    since: float
    rescue: Rescue | None = None
    again: bool = False


class Rescalings:
    """The decisions that are not written yet.

    `failures`: takes the errors of ours that are about a job.
    `saves`: the checkpoints that the jobs write first.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
        failures: Failures,
    ) -> None:
        self.failures = failures
        self.room = ScaleRoom(cluster, queue)
        self.guard = Guard(queue, self.room, settings_of)
        self.growth = Growth(queue, self.room, progress, settings_of)
        self._sizing = Sizing(
            cluster,
            queue,
            guard=self.guard,
            growth=self.growth,
            room=self.room,
            settings_of=settings_of,
        )
        self._cluster = cluster
        self.saves = Saves(cluster, progress)
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
            self.saves.await_of(one)
            jobs.append(one)
        self._open.append(Decision(tuple(jobs), at, rescue))

    def keep_room(self, one: ScaledJob, now: Moment) -> None:
        """Keep the room of a job that an earlier controller stopped for its new size."""
        with self.failures.about(one.tracked):
            self._sizing.keep_room(one, now)

    def about_to_grow(self) -> list[ScaledJob]:
        """Return the jobs whose growth is not written yet."""
        return [one for decision in self._growing() for one in decision.jobs]

    def drop_growth(self, *, at: float) -> None:
        """Give up what jobs were to gain and is not written yet: the room is needed."""
        for decision in self._growing():
            self._drop(decision, at=at)

    def _growing(self) -> list[Decision]:
        gains = {Cause.REGROW, Cause.GROWTH}
        return [
            decision
            for decision in self._open
            if any(one.change and one.change.cause in gains for one in decision.jobs)
        ]

    def steps(self, now: Moment) -> Iterator[tuple[ScaledJob, Step]]:
        """Yield what is to be written now."""
        for decision in list(self._open):
            if any(one.phase is not Phase.SAVING for one in decision.jobs):
                self._drop(decision, at=now.monotonic)  # one of them is not to change any more
            elif not any(one.tracked.busy for one in decision.jobs):
                yield from self._attempted(decision, now)

    def _steps(self, decision: Decision, now: Moment) -> Iterator[tuple[ScaledJob, Step]]:
        states = {one.uid: self.saves.state_of(one, now=now.wall) for one in decision.jobs}
        late = [one for one in decision.jobs if states[one.uid] is not Readiness.READY]
        if (
            not late
            and not decision.again
            and (stale := self.saves.stale(decision.jobs, now=now.wall))
        ):
            for one in stale:
                one.requested = 0
            place = self._open.index(decision)
            self._open[place] = replace(decision, since=now.monotonic, again=True)
        elif not late:
            self._open.remove(decision)
            yield from self._write(decision, now)
        elif now.monotonic - decision.since >= ANSWER_SECONDS:
            for one in late:
                message = f"it saved no checkpoint within {ANSWER_SECONDS:g} s; nothing was changed"
                one.refused = Verdict(names.REASON_AWAITS_CHECKPOINT, message)
                one.not_before = now.monotonic + lengthened(one.missed)
                one.missed += 1
            self._drop(decision, at=now.monotonic)
        else:
            for one in late:
                asks = states[one.uid] is Readiness.ASK and not one.requested
                if asks and now.monotonic >= one.asks_at and (step := self.saves.request(one)):
                    yield one, step

    def _attempted(self, decision: Decision, now: Moment) -> list[tuple[ScaledJob, Step]]:
        """Return what is to be written of a decision; after an error of ours it is given up."""
        found: list[tuple[ScaledJob, Step]] | None = None
        with self.failures.about(decision.jobs[0].tracked):
            found = list(self._steps(decision, now))
        if found is None:
            self._open = [one for one in self._open if one is not decision]
            for one in decision.jobs:
                self.saves.forget(one)
                one.tracked.finish()
                self._cluster.sync_claims(one.tracked)
                one.end(at=now.monotonic, pause=PAUSE_SECONDS)
        return found or []

    def _write(self, decision: Decision, now: Moment) -> Iterator[tuple[ScaledJob, Step]]:
        """Yield the writes of a decision whose jobs have all saved their work."""
        rescue = decision.rescue
        if rescue is not None:
            if not self.guard.still_needed(rescue, now=now.wall):
                self._end(decision, at=now.monotonic)
                return
            self._sizing.promise(rescue, now)
        for one in decision.jobs:
            self.saves.forget(one)
            one.missed = 0
            step = self._sizing.step(one, now)
            if step is None:
                one.end(at=now.monotonic)
            else:
                one.enter(Phase.WRITING, at=now.monotonic)
                yield one, step

    def _drop(self, decision: Decision, *, at: float) -> None:
        self._open.remove(decision)
        self._end(decision, at=at)

    def _end(self, decision: Decision, *, at: float) -> None:
        for one in decision.jobs:
            # Also of one whose change has ended for a reason of its own.
            self.saves.forget(one)
            if one.phase is Phase.SAVING:
                one.end(at=at)
