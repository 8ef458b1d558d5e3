"""The jobs whose size may change: which they are, and what is known of them."""

from collections.abc import Callable
from dataclasses import replace

from kfext.core import words
from kfext.core.elastic import asked_workers, workers_of
from kfext.core.scale import parameters
from kfext.core.scale.change import Cause, Change, Phase
from kfext.core.scale.sizes import Sizes, sizes_of
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.moment import Moment
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.timestamps import past
from kfext.state.cluster import Cluster
from kfext.state.failures import Failures
from kfext.state.progress import JobsProgress
from kfext.state.scaling.follow_up import STEP_SECONDS
from kfext.state.scaling.scaled_job import (
    ScaledJob,
    all_running,
    is_edited,
    is_ours,
    scaled,
)
from kfext.state.shown_jobs import ShownJobs
from kfext.state.tracked_job import TrackedJob

ADOPT_SECONDS = 600.0
"""How long after a change a new controller follows it to its end."""


class ScaledJobs:
    """The jobs `by_uid`; `shown` keeps what is to be shown of them.

    `settings_of` returns what holds for a job.
    `adopted` is called with a job of which a written change is followed that was not begun here.
    """

    def __init__(
        self,
        cluster: Cluster,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
        failures: Failures,
    ) -> None:
        self.by_uid: dict[str, ScaledJob] = {}
        self.shown = ShownJobs()
        self.adopted: Callable[[ScaledJob, Moment], None] = lambda one, now: None
        self._cluster = cluster
        self._progress = progress
        self._settings_of = settings_of
        self._failures = failures

    @property
    def any_changes(self) -> bool:
        """Whether the size of any of them is being changed."""
        return any(one.change is not None for one in self.by_uid.values())

    def any_moves(self, at: float) -> bool:
        """Return whether pods come or go for a change, or a job is on trial; `at` is monotonic.

        A job that is slow to its first step at a new size, or prints seldom, is not waited for.
        """
        return any(
            one.phase is not Phase.STEPPING or at - one.since < STEP_SECONDS
            for one in self.by_uid.values()
            if one.change is not None
        )

    def enrol(self, now: Moment) -> None:
        """Follow the jobs that opted in, and those that have another size by kfext's hand.

        And those that somebody edited after kfext and that opted out, so that this is forgotten. A
        job stays as it was, followed or not, if an error of ours is about it.
        """
        before, self.by_uid = self.by_uid, {}
        for uid, tracked in self._cluster.jobs.items():
            one = before.get(uid)
            with self._failures.about(tracked):
                one = self._enrolled(tracked, one, now)
            if one is not None:
                self.by_uid[uid] = one
        for uid in before.keys() - self.by_uid.keys():
            self._progress.await_checkpoint(uid, awaited=False)
            before[uid].end(at=now.monotonic)
        self.shown.follow(self.by_uid, self._cluster.jobs)

    def _enrolled(
        self, tracked: TrackedJob, known: ScaledJob | None, now: Moment
    ) -> ScaledJob | None:
        """Return a job as it is followed from now on, None if it is not."""
        choice, job = self._choice(tracked), tracked.job
        if job.finished or job.deleting or job.released:
            return None
        changes = is_ours(tracked) or (known is not None and known.change is not None)
        edited = is_edited(tracked) and self.has_opted_out(tracked)
        noted = bool(tracked.state.scale.rests) or edited
        if choice.mode is Mode.OFF and not (changes or noted):
            return None
        one = known or self._met(tracked, choice, now)
        one.choice = choice
        return one

    def sizes_of(self, tracked: TrackedJob) -> Sizes:
        """Return how many workers a job has and may have; no others if it has not opted in."""
        asked = asked_workers(tracked.job, tracked.state)
        elastic = self._settings_of(tracked).elastic or Range(asked, asked)
        return sizes_of(tracked.job, elastic, asked=asked)

    def has_opted_out(self, tracked: TrackedJob) -> bool:
        """Return whether a job has opted out, whatever the policy may do."""
        return self._settings_of(tracked).elastic is None

    def adopt(self, one: ScaledJob, now: Moment) -> None:
        """Follow a change that was written, though its answer never came."""
        known, present = one.tracked.state.scale, workers_of(one.tracked.job)
        one.sizes = replace(one.sizes, now=known.before or present)
        cause = Cause(known.cause) if known.cause in tuple(Cause) else Cause.REGROW
        why = f"{words.workers(one.sizes.now)} become {present}"
        one.begin(Change(cause, present, why), Phase.SETTLING, at=now.monotonic)
        one.expected, one.settled_at = present, now.monotonic
        one.changed_at = known.changed_at
        self.adopted(one, now)

    def _choice(self, tracked: TrackedJob) -> PolicyChoice:
        if tracked.phase is None or tracked.job.released:
            return PolicyChoice(mode=Mode.OFF)
        return parameters.choice_of(self._settings_of(tracked))

    def _met(self, tracked: TrackedJob, choice: PolicyChoice, now: Moment) -> ScaledJob:
        """Begin to follow a job; a change of an earlier controller is followed to its end.

        Unless somebody edited the job since, while no controller was there.
        """
        self.shown.hide(tracked)  # until it is known what to show
        one = scaled(tracked, choice, self.sizes_of(tracked))
        one.starts = not all_running(tracked, self._cluster.pods(one.uid))
        known = tracked.state.scale
        if is_edited(tracked):
            one.expected = tracked.state.admitted
        elif known.cause and now.wall - past(known.changed_at, now=now.wall) < ADOPT_SECONDS:
            self.adopt(one, now)
        return one
