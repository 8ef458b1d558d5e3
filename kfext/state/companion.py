"""The companion: which CPU sizes of running jobs are written next, and what is shown of that.

Signals -> what each policy advises -> one choice -> one operation in flight for each job. It is
pulled, like the planner: `steps` returns what is to be written, `finish` takes in the outcome. Only
jobs whose pods run are touched, so no placement waits for it.
"""

import math
from collections.abc import Callable, Iterable, Iterator

from kfext import names
from kfext.core.companion.arbitration import arbitrate
from kfext.core.companion.cadence import Cadence, neighbourhoods
from kfext.core.companion.choices import chosen_policies
from kfext.core.companion.policy import Policy
from kfext.core.companion.proposal import Proposal
from kfext.core.companion.registry import POLICIES
from kfext.core.companion.restoring import is_resized, restoring
from kfext.core.companion.shown import Shown
from kfext.core.companion.signals import JobSignal, Signals
from kfext.core.companion.stand_down import why_stand_down
from kfext.core.companion.trial import begin_trial
from kfext.core.lifecycle.steps import Resize
from kfext.core.settings.resolve import Settings
from kfext.model.cpu_state import CpuState
from kfext.model.moment import Moment
from kfext.model.policy import PolicyChoice
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.companion_words import shown_of
from kfext.state.neighbours import charge, judged
from kfext.state.operations import Operations
from kfext.state.progress import JobsProgress
from kfext.state.signals import job_signal, signals_of
from kfext.state.tracked_job import TrackedJob
from kfext.state.watched_job import WatchedJob, all_measured, is_whole, live_pods, watch

LOOK_SECONDS = 10.0
"""Seconds between two looks at all jobs that opted in."""
MOST_BEGUN = 16
"""Operations that begin after one look."""

_Begun = list[tuple[WatchedJob, Resize | None]]


class Companion:
    """Decides on the CPU of jobs that opted in.

    `failures`: errors of ours in the last look, each with a job that it was about.
    `settings_of` returns what holds for a job; `changes` counts those to a namespace's quotas.
    """

    def __init__(
        self,
        cluster: Cluster,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
        changes: Callable[[str], int],
    ) -> None:
        self._cluster = cluster
        self._progress = progress
        self._settings_of = settings_of
        self._operations = Operations(cluster, progress.uses, changes)
        self._cadences = {policy.name: Cadence() for policy in POLICIES}
        self._watched: dict[str, WatchedJob] = {}
        self.failures: list[tuple[TrackedJob, Exception]] = []
        self._first = 0
        self._looked = -math.inf
        self._news: dict[str, TrackedJob] = {}

    def steps(self, now: Moment) -> list[tuple[TrackedJob, Resize]]:
        """Return what is to be written now; each job is busy until `finish`."""
        at = now.monotonic
        begun = [(one, self._operations.advance(one, now=at)) for one in self._watched.values()]
        if at - self._looked >= LOOK_SECONDS:
            seconds = min(at - self._looked, 2 * LOOK_SECONDS)
            self._looked, self.failures = at, []
            self._enrol(at)
            begun += self._look(at, seconds=seconds)
        steps = [(one.tracked, step) for one, step in begun if step is not None]
        for tracked, step in steps:
            tracked.decide(step, at=at)
        return steps

    def finish(self, tracked: TrackedJob, *, complete: bool, final: str, now: float) -> None:
        """Take in what came of a step; `final`: why the API server would refuse it again."""
        watched = self._watched.get(tracked.job.uid)
        if watched is not None:
            self._operations.finish(watched, complete=complete, final=final, now=now)

    def news(self) -> list[tuple[TrackedJob, Shown | None]]:
        """Return the jobs of which something else is to be shown than before; None: nothing."""
        news, self._news = self._news, {}
        known = self._watched
        return [(one, known[uid].shown if uid in known else None) for uid, one in news.items()]

    # --- what is watched ------------------------------------------------------------------------

    def _enrol(self, now: float) -> None:
        """Watch the jobs that opted in, and those that have not got back what was taken."""
        before, self._watched = self._watched, {}
        for uid, tracked in self._cluster.jobs.items():
            job = tracked.job
            ended = job.finished or job.suspend or job.deleting
            if not ended and (tracked.state.cpu != CpuState() or self._policies(tracked)):
                self._watched[uid] = before.get(uid) or watch(tracked, now)
        for uid in (before.keys() - self._watched.keys()) & self._cluster.jobs.keys():
            self._news[uid] = before[uid].tracked

    def _policies(self, tracked: TrackedJob) -> dict[str, PolicyChoice]:
        """Return the policies that may look at a job."""
        if tracked.phase is None or tracked.job.released:
            return {}
        return chosen_policies(self._settings_of(tracked))

    def _signals(self, now: float) -> tuple[Signals, set[str]]:
        """Return the signals of all watched jobs that run, and those with a window that ended."""
        found: list[JobSignal] = []
        ended = set()
        for uid, one in self._watched.items():
            pods = self._cluster.pods(uid)
            one.unfit = why_stand_down(one.tracked.job, live_pods(pods)) or ""
            one.chosen = self._policies(one.tracked)
            reported = self._progress.reported(uid)
            signal = job_signal(
                one,
                pods,
                reported,
                self._progress.uses,
                in_flight=self._in_flight(one, now),
            )
            if reported is not None and one.history.take(reported.progress, signal.use, now=now):
                ended.add(uid)
            if signal.pods:
                found.append(signal)
            elif one.chosen and one.unfit:
                unfit = Verdict(names.REASON_STANDS_DOWN, one.unfit)
                self._tell(one, Shown(resized=False, verdict=unfit))
        running = self._progress.running()
        return signals_of(self._cluster, found, self._progress.uses, measured=running), ended

    def _in_flight(self, one: WatchedJob, now: float) -> bool:
        """Return whether a job has to wait: for a write, a kubelet, new figures or a pod."""
        pods = self._cluster.pods(one.tracked.job.uid)
        return (
            one.tracked.busy
            or one.operation is not None
            or self._operations.paused(one, now)
            or not is_whole(one, pods)
            or not all_measured(pods, self._progress.uses)
        )

    # --- what is decided ------------------------------------------------------------------------

    def _look(self, now: float, *, seconds: float) -> _Begun:
        """Return what begins now: first what is given back, then what policies propose.

        An error of ours on neighbours leaves them as they are, and touches no others.
        """
        signals, ended = self._signals(now)
        due = {policy.name: self._due(policy, signals, now) for policy in POLICIES}
        groups = neighbourhoods(signals.jobs)
        self._first = (self._first + 1) % max(1, len(groups))
        begun: _Begun = []
        for group in (*groups[self._first :], *groups[: self._first]):
            nodes = {node for job in group for node in job.nodes}
            here = Signals({node: signals.nodes[node] for node in nodes}, group)
            try:
                company = here.company
                for job in group:
                    self._watched[job.uid].meet(company, now=now)
                charge(here, self._watched, seconds=seconds)
                proposals = judged(here, self._watched, ended=ended)
                for policy in POLICIES:
                    proposals += self._advised(policy, here, due[policy.name])
                most = max(0, MOST_BEGUN - len(begun))
                found, would = self._choose(proposals, here, now=now, most=most)
                begun += found
                for job in group:
                    decided = any(job.uid in of for of in due.values())
                    self._show(job, here, would.get(job.uid), decided=decided, now=now)
            except Exception as error:
                self.failures.append((self._watched[group[0].uid].tracked, error))
        return begun

    def _choose(
        self, proposals: Iterable[Proposal], here: Signals, *, now: float, most: int
    ) -> tuple[_Begun, dict[str, Proposal]]:
        """Return what begins among neighbours, and by job what a policy would do that may not.

        What is given back is not counted: at most `most` proposals of policies are carried out.
        """
        begun = list(self._give_back(here, now))
        touched = {one.tracked.job.uid for one, _ in begun}
        chosen = arbitrate(
            (one for one in proposals if one.job not in touched and self._ripe(one, now)), here
        )
        begun += [self._begin(proposal, here) for proposal in chosen.act[:most]]
        return begun, {one.job: one for one in chosen.observe}

    def _show(
        self, job: JobSignal, here: Signals, would: Proposal | None, *, decided: bool, now: float
    ) -> None:
        one = self._watched[job.uid]
        paused = self._operations.paused(one, now)
        self._tell(one, shown_of(one, job, here, would, decided=decided, paused=paused))

    def _tell(self, one: WatchedJob, shown: Shown | None) -> None:
        """Have something shown of a job, if it is news."""
        if shown != one.shown:
            one.shown = shown
            self._news[one.tracked.job.uid] = one.tracked

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
            self._watched[job.uid].stood_down[policy.name] = advice.stood_down.get(job.uid, "")
        return list(advice.proposals)

    def _give_back(self, here: Signals, now: float) -> Iterator[tuple[WatchedJob, Resize | None]]:
        """Yield the steps that restore what the user wrote, whatever else is under way."""
        for job in here.jobs:
            one = self._watched[job.uid]
            writing = one.operation is not None and one.operation.writing
            paused = self._operations.paused(one, now, restoring=True)
            if one.tracked.busy or writing or paused:
                continue
            state = one.tracked.state.cpu
            back = restoring(
                job,
                here,
                pods=live_pods(self._cluster.pods(job.uid)),
                state=state,
                chosen=one.chosen,
                undo=one.undo,
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

    def _ripe(self, proposal: Proposal, now: float) -> bool:
        """Return whether enough has been seen to tell later what a proposal has brought.

        What is given back need not show a gain, so it never waits.
        """
        if proposal.measure is None:
            return True
        served = self._watched[proposal.serves].history.of(proposal.measure)
        return bool(served) and not self._watched[proposal.job].fresh(now)

    def _begin(self, proposal: Proposal, here: Signals) -> tuple[WatchedJob, Resize | None]:
        one = self._watched[proposal.job]
        served = self._watched[proposal.serves].history
        trial = begin_trial(proposal, served.of(proposal.measure) if proposal.measure else ())
        job = here.job(proposal.job)
        step = self._operations.begin(
            one,
            proposal,
            resized=job is not None and is_resized(job, here),
            trial=trial,
            rests={proposal.policy: proposal.reason} if proposal.rests else {},
        )
        return one, step
