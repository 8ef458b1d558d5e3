"""The companion: what is changed of running jobs next, and what is shown of that.

First how many workers they have (state.scaling), then the CPU of their pods: signals -> what each
policy advises -> one choice -> one operation in flight for each job. It is pulled, like the
planner: `steps` returns what is to be written, `finish` takes in the outcome. Only jobs whose pods
run are touched, so no placement waits for it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

from kfext.core.companion.arbitration import arbitrate
from kfext.core.companion.cadence import Cadence, neighbourhoods
from kfext.core.companion.policy import Policy
from kfext.core.companion.proposal import Proposal, restricts
from kfext.core.companion.registry import POLICIES
from kfext.core.companion.restoring import is_resized, restoring
from kfext.core.companion.shown import Shown
from kfext.core.companion.signals import JobSignal, Signals
from kfext.core.companion.trial import WINDOWS_BEFORE, begin_trial
from kfext.core.lifecycle.steps import Resize, Step
from kfext.core.settings.table import Settings
from kfext.model.moment import Moment
from kfext.names import RESIZED, SCALED
from kfext.state.cluster import Cluster
from kfext.state.companion_words import shown_of
from kfext.state.neighbours import charge, judged
from kfext.state.operations import Operations
from kfext.state.progress import JobsProgress
from kfext.state.scaling.scaling import Scaling
from kfext.state.tracked_job import TrackedJob
from kfext.state.watched_job import WatchedJob
from kfext.state.watched_jobs import WatchedJobs

LOOK_SECONDS = 10.0
"""Seconds between two looks at all jobs that opted in."""
MOST_BEGUN = 16
"""Operations that begin after one look."""

News = tuple[TrackedJob, str, Shown | None]
"""A job, the type of the condition that is new, and what to show; None: the condition is gone."""
_Begun = list[tuple[WatchedJob, Resize | None]]


class Companion:
    """Decides on the size and the CPU of jobs that opted in.

    `scaling` decides on their size.
    `failures`: errors of ours in the last `steps`, each with a job that it was about.
    `settings_of` returns what holds for a job; `changes` counts those to a namespace's quotas.
    """

    def __init__(
        self,
        cluster: Cluster,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
        changes: Callable[[str], int],
        scaling: Scaling,
    ) -> None:
        self.failures: list[tuple[TrackedJob, Exception]] = []
        self._scaling = scaling
        self._scaled: set[str] = set()
        self._operations = Operations(cluster, progress.uses, changes)
        self._errors = scaling.failures
        self._jobs = WatchedJobs(cluster, progress, settings_of, self._is_occupied, self._errors)
        scaling.leave_out(self._has_operation)
        self._cadences = {policy.name: Cadence() for policy in POLICIES}
        self._looked = -math.inf
        self._first = 0

    def steps(self, now: Moment) -> list[tuple[TrackedJob, Step]]:
        """Return what is to be written now; each job is busy until `finish`."""
        scaled = self._scaling.steps(now)
        self._scaled |= {tracked.job.uid for tracked, _ in scaled}
        self._decide(scaled, now)
        resized: list[tuple[TrackedJob, Step]] = []
        # Without what was decided on their size the first jobs would be busy for ever.
        with self._errors.about(scaled[0][0]) if scaled else nullcontext():
            resized = self._resizes(now)
        self._decide(resized, now)
        self.failures = self._errors.take()
        return [*scaled, *resized]

    def next_look(self) -> float:
        """Return when to look again at the latest, in monotonic seconds."""
        return self._scaling.next_look()

    def note_start(self, now: Moment) -> None:
        """Take in that a job is started."""
        self._scaling.note_start(now.monotonic)

    def _decide(self, steps: Sequence[tuple[TrackedJob, Step]], now: Moment) -> None:
        for tracked, step in steps:
            tracked.decide(step, at=now.monotonic)
            tracked.by_companion = True

    def _resizes(self, now: Moment) -> list[tuple[TrackedJob, Step]]:
        at = now.monotonic
        begun: _Begun = []
        for one in self._jobs.by_uid.values():
            with self._errors.about(one.tracked):
                begun.append((one, self._operations.advance(one, now=at)))
        if at - self._looked >= LOOK_SECONDS or self._jobs.any_has_left():
            seconds = min(at - self._looked, 2 * LOOK_SECONDS)
            self._looked = at
            self._jobs.enrol(at)
            begun += self._look(now, seconds=seconds)
        return [(one.tracked, one.dated(step, now)) for one, step in begun if step is not None]

    def finish(self, tracked: TrackedJob, *, complete: bool, final: str, now: float) -> None:
        """Take in what came of a step; `final`: why the API server would refuse it again."""
        uid = tracked.job.uid
        if uid in self._scaled:
            self._scaled.discard(uid)
            self._scaling.finish(tracked, complete=complete, final=final, now=now)
            return
        watched = self._jobs.by_uid.get(uid)
        if watched is not None:
            self._operations.finish(watched, complete=complete, final=final, now=now)

    def _is_occupied(self, watched: WatchedJob, now: float) -> bool:
        """Return whether nothing is tried on the CPU of a job for now."""
        changing = self._scaling.changing(watched.tracked.job.uid)
        return changing or self._operations.paused(watched, now)

    def _has_operation(self, uid: str) -> bool:
        watched = self._jobs.by_uid.get(uid)
        return watched is not None and watched.operation is not None

    def news(self) -> list[News]:
        """Return the jobs of which something else is to be shown than before."""
        return [
            *((tracked, RESIZED, shown) for tracked, shown in self._jobs.shown.news()),
            *((tracked, SCALED, shown) for tracked, shown in self._scaling.news()),
        ]

    def _look(self, now: Moment, *, seconds: float) -> _Begun:
        """Return what begins now: first what is given back, then what policies propose.

        An error of ours on neighbours leaves them with what is given back, and touches no others.
        """
        at = now.monotonic
        signals, ended = self._jobs.signals(at)
        due = {policy.name: self._due(policy, signals, at) for policy in POLICIES}
        groups = neighbourhoods(signals.jobs)
        self._first = (self._first + 1) % max(1, len(groups))
        begun: _Begun = []
        for group in (*groups[self._first :], *groups[: self._first]):
            nodes = {node for job in group for node in job.nodes}
            here = Signals({node: signals.nodes[node] for node in nodes}, group)
            with self._errors.about(self._jobs.by_uid[group[0].uid].tracked):
                company = here.company
                for job in group:
                    self._jobs.by_uid[job.uid].meet(company)
                back = list(self._give_back(here, at))
                begun += back
                touched = {one.tracked.job.uid for one, _ in back}
                charge(here, self._jobs.by_uid, seconds=seconds, now=now)
                proposals = judged(here, self._jobs.by_uid, ended=ended)
                for policy in POLICIES:
                    proposals += self._advised(policy, here, due[policy.name])
                open_to = [one for one in proposals if one.job not in touched]
                ripe = [one for one in open_to if self._ripe(one)]
                early = {one.job for one in open_to} - {one.job for one in ripe}
                chosen = arbitrate(ripe, here)
                most = max(0, MOST_BEGUN - len(begun))
                begun += [self._begin(proposal, here) for proposal in chosen.act[:most]]
                would = {one.job: one for one in chosen.observe}
                for job in group:
                    decided = any(job.uid in of for of in due.values())
                    self._jobs.by_uid[job.uid].early = job.uid in early
                    self._show(job, here, would.get(job.uid), decided=decided, now=at)
        return begun

    def _show(
        self, job: JobSignal, here: Signals, would: Proposal | None, *, decided: bool, now: float
    ) -> None:
        one = self._jobs.by_uid[job.uid]
        paused = self._operations.paused(one, now)
        self._jobs.shown.show(one, shown_of(one, job, here, would, decided=decided, paused=paused))

    def _due(self, policy: Policy, signals: Signals, now: float) -> frozenset[str]:
        """Return the jobs that a policy looks at now."""
        takers = [job for job in signals.jobs if policy.takes(job)]
        due = self._cadences[policy.name].due(
            takers, interval=lambda job: policy.of(job, "interval"), now=now
        )
        return frozenset(job.uid for job in due)

    def _advised(self, policy: Policy, here: Signals, due: frozenset[str]) -> list[Proposal]:
        """Return what a policy proposes for neighbours, and note which jobs it leaves alone."""
        jobs = tuple(job for job in here.jobs if job.uid in due or not policy.takes(job))
        if not any(job.uid in due for job in jobs):
            return []
        advice = policy.propose(Signals(here.nodes, jobs))
        for job in jobs:
            self._jobs.by_uid[job.uid].stood_down[policy.name] = advice.stood_down.get(job.uid, "")
        return list(advice.proposals)

    def _give_back(self, here: Signals, now: float) -> Iterator[tuple[WatchedJob, Resize | None]]:
        """Yield the steps that restore what the user wrote, whatever else is under way."""
        for job in here.jobs:
            one = self._jobs.by_uid[job.uid]
            pods, state = self._jobs.pods(one), one.tracked.state.cpu
            one.see(pods)
            writing = one.operation is not None and one.operation.writing
            paused = self._operations.paused(one, now, restoring=True)
            if one.tracked.busy or writing or paused:
                continue
            back = restoring(
                job,
                here,
                pods=pods,
                state=state,
                seen=one.seen,
                chosen=one.chosen,
                undo=one.undo,
                unmeasured=now - one.measured_at,
            )
            if back is not None:
                if one.operation is None or not one.operation.restores:
                    resized = is_resized(job, here)
                    step = self._operations.begin(
                        one, back.proposal, resized=resized, rests=back.rests
                    )
                    yield one, step
            elif not one.chosen and one.operation is None and not is_resized(job, here):
                yield one, self._operations.forget(one)

    def _ripe(self, proposal: Proposal) -> bool:
        """Return whether enough has been seen to tell later what a proposal has brought.

        What is given back need not show a gain, so it never waits.
        """
        if proposal.measure is None:
            return True
        served = self._jobs.by_uid[proposal.serves].history.of(proposal.measure)
        return proposal.expected is not None or len(served) >= WINDOWS_BEFORE

    def _begin(self, proposal: Proposal, here: Signals) -> tuple[WatchedJob, Resize | None]:
        one = self._jobs.by_uid[proposal.job]
        served = self._jobs.by_uid[proposal.serves].history
        trial = begin_trial(proposal, served.of(proposal.measure) if proposal.measure else ())
        job = here.job(proposal.job)
        step = self._operations.begin(
            one,
            proposal,
            resized=job is not None and is_resized(job, here),
            restricts=job is not None and restricts(proposal, job, here),
            trial=trial,
            rests={proposal.policy: proposal.reason} if proposal.rests else {},
        )
        return one, step
