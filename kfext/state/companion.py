"""The companion: the loop that changes running jobs and shows the changes.

Each turn: signals -> proposals of each policy -> one choice -> at most one operation in flight for
each job. The companion first decides on the number of workers, which `scale` searches on the
ledger, then on the CPU of pods, with policies that see only signals. `steps` returns the steps to
write, `finish` records the outcome. Only jobs with running pods change, so no placement waits.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from kfext import names
from kfext.core.companion.arbitration import arbitrate
from kfext.core.companion.operation import Phase
from kfext.core.companion.proposal import Proposal, Rank
from kfext.core.lifecycle.steps import Resize, Step
from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.model.policy import Mode
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.companion_words import size_shown
from kfext.state.following import Following
from kfext.state.neighbours import Begun, Neighbours
from kfext.state.progress import JobsProgress
from kfext.state.queue import Queue
from kfext.state.rescaling import PAUSE_SECONDS, Rescaling, SizeStep
from kfext.state.resizing import Resizing
from kfext.state.room import ScaleRoom
from kfext.state.running_job import RunningJob, has_kfext_size
from kfext.state.running_jobs import News, RunningJobs
from kfext.state.scale_policy import ScaleProposals
from kfext.state.scale_search import ScaleSearch
from kfext.state.tracked_job import TrackedJob

LOOK_SECONDS = 10.0
"""Seconds between two looks at the CPU of all jobs that opted in."""
SIZE_LOOK_SECONDS = 5.0
"""Seconds between two looks at the jobs that wait and the jobs that may grow."""
FOLLOW_SECONDS = 1.0
"""Seconds between two looks at a change of size that is under way."""
_RETRY_SECONDS = 30.0

_Steps = list[tuple[TrackedJob, Step]]


class Companion:
    """Decides on the size and the CPU of jobs that opted in.

    `failures`: errors of kfext in the last `steps`, each with a job.
    `settings_of` returns the settings of a job.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self.failures: list[tuple[TrackedJob, Exception]] = []
        self._queue = queue
        self._jobs = jobs = RunningJobs(cluster, progress, settings_of)
        self._errors = jobs.failures
        room = ScaleRoom(cluster, queue)
        searches = {
            mode: ScaleSearch(queue, room, progress, settings_of)
            for mode in (Mode.ACT, Mode.OBSERVE)
        }
        self._rescaling = Rescaling(
            cluster,
            queue,
            progress,
            search=searches[Mode.ACT],
            room=room,
            settings_of=settings_of,
            failures=self._errors,
        )
        self._scale = ScaleProposals(
            cluster,
            queue,
            jobs,
            self._rescaling,
            room=room,
            searches=searches,
            settings_of=settings_of,
        )
        self._following = Following(cluster, progress, jobs, self._rescaling)
        self._resizing = Resizing(cluster, progress.uses, queue.quotas.changes)
        self._neighbours = Neighbours(jobs, self._resizing)
        jobs.adopted = self._rescaling.keep_room
        jobs.paused = self._resizing.paused
        self._looked = self._sizes_looked = self._followed = -math.inf

    def steps(self, now: Moment) -> _Steps:
        """Return the steps to write now; each job is busy until `finish`."""
        rescaled = self._size_steps(now)
        self._decide(rescaled, now)
        resized: _Steps = []
        # If an error dropped the steps of `rescaled`, their jobs would be busy without end.
        with self._errors.about(rescaled[0][0]) if rescaled else nullcontext():
            resized = self._cpu_steps(now)
        self._decide(resized, now)
        self.failures = self._errors.take()
        return [*rescaled, *resized]

    def next_look(self) -> float:
        """Return when the next look is due, in monotonic seconds; infinity: never."""
        if not self._jobs.scaled:
            return math.inf
        look = self._sizes_looked + SIZE_LOOK_SECONDS
        return min(look, self._followed + FOLLOW_SECONDS) if self._jobs.any_rescaled else look

    def finish(self, tracked: TrackedJob, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a step; `final`: why the API server would refuse it again."""
        uid = tracked.job.uid
        if tracked.step == Resize.__name__:
            if (job := self._jobs.resized.get(uid)) is not None:
                self._resizing.finish(job, complete=complete, final=final, now=now)
        elif (job := self._jobs.scaled.get(uid)) is not None:
            self._finish_size(job, complete=complete, final=final, now=now)

    def news(self) -> list[News]:
        """Return the conditions to show that changed since the last call."""
        return self._jobs.shown.news()

    def _decide(self, steps: Sequence[tuple[TrackedJob, Step]], now: Moment) -> None:
        for tracked, step in steps:
            tracked.decide(step, at=now.monotonic)
            tracked.by_companion = True

    # --- the CPU of pods ------------------------------------------------------------------------

    def _cpu_steps(self, now: Moment) -> _Steps:
        at = now.monotonic
        begun: Begun = []
        for job in self._jobs.resized.values():
            with self._errors.about(job.tracked):
                begun.append((job, self._resizing.advance(job, now=at)))
        if at - self._looked >= LOOK_SECONDS or self._jobs.any_has_left():
            seconds = min(at - self._looked, 2 * LOOK_SECONDS)
            self._looked = at
            self._jobs.enrol_cpu(now)
            begun += self._neighbours.look(now, seconds=seconds)
        return [(job.tracked, job.cpu.dated(step, now)) for job, step in begun if step is not None]

    # --- the number of workers ------------------------------------------------------------------

    def _size_steps(self, now: Moment) -> _Steps:
        at = now.monotonic
        looks, self._followed = at - self._sizes_looked >= SIZE_LOOK_SECONDS, at
        if looks:
            self._sizes_looked = at
            self._jobs.enrol_sizes(now)
        steps: list[SizeStep] = []
        for job in self._jobs.scaled.values():
            if looks or job.size.operation is not None:
                steps += self._followed_up(job, now)
        steps += self._rescaling.steps(now)
        if looks:
            self._begin_sizes(self._scale.propose(now), at)
            steps += self._rescaling.steps(now)
            for job in self._jobs.scaled.values():
                with self._errors.about(job.tracked):
                    self._show_size(job, now)
        if self._jobs.any_moves(at):
            self._scale.record_act(at)
        return [(job.tracked, step) for job, step in steps]

    def _followed_up(self, job: RunningJob, now: Moment) -> list[SizeStep]:
        """Return the steps of a job; an error of kfext on the job affects no other job."""
        steps: list[SizeStep] | None = None
        with self._errors.about(job.tracked):
            steps = list(self._following.steps(job, now))
        if steps is None:
            job.size.end(at=now.monotonic, pause=PAUSE_SECONDS)
        return steps or []

    def _begin_sizes(self, proposals: Sequence[Proposal], at: float) -> None:
        """Begin the chosen proposals, in the order in which they were proposed.

        All givers of a waiting job begin together; growth that is not written yet gives way to
        them.
        """
        if not proposals:
            return
        jobs = self._jobs.scaled
        giving = [
            proposal
            for proposal in proposals
            if proposal.rank is Rank.RESCUE and jobs[proposal.job].scale_mode is Mode.ACT
        ]
        if giving:
            self._rescaling.drop_growth(at=at)
        chosen = arbitrate(proposals, self._jobs.size_signals())
        acting = {proposal.job: proposal for proposal in chosen.act}
        begun = [proposal for proposal in proposals if acting.get(proposal.job) is proposal]
        groups: list[list[Proposal]] = []
        for proposal in begun:
            if groups and proposal.rank is groups[-1][0].rank is Rank.RESCUE:
                groups[-1].append(proposal)
            else:
                groups.append([proposal])
        for group in groups:
            self._rescaling.begin([(jobs[proposal.job], proposal) for proposal in group], at=at)
        for proposal in chosen.observe:
            jobs[proposal.job].size.would = proposal

    def _finish_size(self, job: RunningJob, *, complete: bool, final: str, now: float) -> None:
        size, operation = job.size, job.size.operation
        if operation is None:
            size.resting = None if complete else size.resting
            return
        if operation.phase is not Phase.WRITING:
            if not complete and operation.phase is Phase.SETTLING:
                operation.restarted = bool(final)  # not all workers were replaced
            elif not complete:
                operation.requested, size.asks_at = 0, now + SIZE_LOOK_SECONDS  # ask again
            return
        if complete:
            size.expected, size.refused = operation.change.workers, None
            size.settled_at = now
            size.changed_at = job.tracked.state.scale.changed_at
            size.enter(Phase.SETTLING, at=now)
            return
        self._queue.promises.drop(job.uid)
        if final:
            size.refused = Verdict(names.REASON_SCALE_REFUSED, final)
        size.end(at=now, pause=PAUSE_SECONDS if final else _RETRY_SECONDS)

    def _show_size(self, job: RunningJob, now: Moment) -> None:
        unmanaged = job.tracked.phase is None
        if unmanaged or (job.scale_mode is Mode.OFF and not has_kfext_size(job.tracked)):
            self._jobs.shown.show(job, names.SCALED, None)
            return
        ready = self._rescaling.readiness(job, now=now.wall)
        autoscaler = self._queue.autoscaler
        shown = size_shown(job, ready, now=now.monotonic, autoscaler=autoscaler)
        self._jobs.shown.show(job, names.SCALED, shown)
