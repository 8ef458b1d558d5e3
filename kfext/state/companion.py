"""The companion: the one loop that changes jobs that run, and what is shown of that.

Each turn: signals -> what each policy proposes -> one choice -> at most one operation in flight for
each job. First how many workers jobs have, which the policy `scale` searches on the ledger, then
the CPU of their pods, for which policies see signals alone. It is pulled, like the planner: `steps`
returns what is to be written, `finish` records the outcome. Only jobs whose pods run are touched,
so no placement waits for it.
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
from kfext.state.rescaling import PAUSE_SECONDS, Found, Rescaling
from kfext.state.resizing import Resizing
from kfext.state.room import ScaleRoom
from kfext.state.running_job import RunningJob, is_ours
from kfext.state.running_jobs import News, RunningJobs
from kfext.state.scale_policy import ScaleProposals
from kfext.state.scale_search import ScaleSearch
from kfext.state.tracked_job import TrackedJob

LOOK_SECONDS = 10.0
"""Seconds between two looks at the CPU of all jobs that opted in."""
SIZE_LOOK_SECONDS = 5.0
"""Seconds between two looks at which jobs wait and which may grow."""
FOLLOW_SECONDS = 1.0
"""Seconds between two looks at a change of size that is under way."""
_RETRY_SECONDS = 30.0

_Steps = list[tuple[TrackedJob, Step]]


class Companion:
    """Decides on the size and the CPU of jobs that opted in.

    `failures`: errors of kfext's in the last `steps`, each with a job that it was about.
    `settings_of` returns what holds for a job.
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
        """Return what is to be written now; each job is busy until `finish`."""
        rescaled = self._size_steps(now)
        self._decide(rescaled, now)
        resized: _Steps = []
        # Without what was decided on their size the first jobs would be busy for ever.
        with self._errors.about(rescaled[0][0]) if rescaled else nullcontext():
            resized = self._cpu_steps(now)
        self._decide(resized, now)
        self.failures = self._errors.take()
        return [*rescaled, *resized]

    def next_look(self) -> float:
        """Return when to look again at the latest, in monotonic seconds; infinity if never."""
        if not self._jobs.scaled:
            return math.inf
        look = self._sizes_looked + SIZE_LOOK_SECONDS
        return min(look, self._followed + FOLLOW_SECONDS) if self._jobs.any_rescaled else look

    def finish(self, tracked: TrackedJob, *, complete: bool, final: str, now: float) -> None:
        """Record what came of a step; `final`: why the API server would refuse it again."""
        uid = tracked.job.uid
        if tracked.step == Resize.__name__:
            if (job := self._jobs.resized.get(uid)) is not None:
                self._resizing.finish(job, complete=complete, final=final, now=now)
        elif (job := self._jobs.scaled.get(uid)) is not None:
            self._finish_size(job, complete=complete, final=final, now=now)

    def news(self) -> list[News]:
        """Return what is to be shown of jobs and was not shown before."""
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
        found: list[Found] = []
        for job in self._jobs.scaled.values():
            if looks or job.size.operation is not None:
                found += self._followed_up(job, now)
        found += self._rescaling.steps(now)
        if looks:
            self._begin_sizes(self._scale.propose(now), at)
            found += self._rescaling.steps(now)
            for job in self._jobs.scaled.values():
                with self._errors.about(job.tracked):
                    self._show_size(job, now)
        if self._jobs.any_moves(at):
            self._scale.note_act(at)
        return [(job.tracked, step) for job, step in found]

    def _followed_up(self, job: RunningJob, now: Moment) -> list[Found]:
        """Return what is to be written of a job; an error of kfext's there touches no other job."""
        found: list[Found] | None = None
        with self._errors.about(job.tracked):
            found = list(self._following.steps(job, now))
        if found is None:
            job.size.end(at=now.monotonic, pause=PAUSE_SECONDS)
        return found or []

    def _begin_sizes(self, proposals: Sequence[Proposal], at: float) -> None:
        """Begin what is chosen, in the order in which it was proposed.

        What jobs give up for a waiting job begins together; growth that is not written yet gives
        way to it.
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
                operation.restarted = bool(final)  # not all of its workers were replaced
            elif not complete:
                operation.requested, size.asks_at = 0, now + SIZE_LOOK_SECONDS  # it is asked again
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
        if unmanaged or (job.scale_mode is Mode.OFF and not is_ours(job.tracked)):
            self._jobs.shown.show(job, names.SCALED, None)
            return
        ready = self._rescaling.readiness(job, now=now.wall)
        autoscaler = self._queue.autoscaler
        shown = size_shown(job, ready, now=now.monotonic, autoscaler=autoscaler)
        self._jobs.shown.show(job, names.SCALED, shown)
