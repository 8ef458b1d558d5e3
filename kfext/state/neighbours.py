"""One look at the CPU of jobs that share nodes: charges, undone changes and new operations."""

from collections.abc import Collection, Iterator, Mapping
from typing import assert_never

from kfext import names
from kfext.core.companion.arbitration import Cadence, arbitrate, neighbourhoods
from kfext.core.companion.contest import contests
from kfext.core.companion.operation import WINDOWS_BEFORE, Outcome, Phase, begin_trial
from kfext.core.companion.policy import SignalPolicy
from kfext.core.companion.proposal import Proposal, restricts
from kfext.core.companion.registry import SIGNAL_POLICIES
from kfext.core.companion.restoring import is_resized, restoring
from kfext.core.companion.signals import Budget, JobSignal, Signals, use_of
from kfext.core.lifecycle.steps import Resize
from kfext.core.progress.followed import INTERVAL
from kfext.model.moment import Moment
from kfext.model.timestamps import past
from kfext.state.companion_words import cpu_shown
from kfext.state.resizing import Resizing
from kfext.state.running_job import CpuRecord, RunningJob
from kfext.state.running_jobs import RunningJobs

MOST_BEGUN = 16
"""The most operations that begin after one look."""
_FRESH = WINDOWS_BEFORE * INTERVAL
"""After this many seconds the use of a job is known well enough to stand for the time before."""

Begun = list[tuple[RunningJob, Resize | None]]
_Due = Mapping[str, frozenset[str]]
"""By the name of a policy, the uids of the jobs that it visits now."""


class Neighbours:
    """Visits jobs that share nodes, group by group."""

    def __init__(self, jobs: RunningJobs, resizing: Resizing) -> None:
        self._jobs = jobs
        self._resizing = resizing
        self._cadences = {policy.name: Cadence() for policy in SIGNAL_POLICIES}
        self._first = 0

    def look(self, now: Moment, *, seconds: float) -> Begun:
        """Return the operations that begin now; `seconds`: since the last look.

        After an error of kfext on neighbours, they only get back what was taken. The error affects
        no other jobs.
        """
        signals, ended = self._jobs.signals(now.monotonic)
        due = {policy.name: self._due(policy, signals, now.monotonic) for policy in SIGNAL_POLICIES}
        groups = neighbourhoods(signals.jobs)
        self._first = (self._first + 1) % max(1, len(groups))
        begun: Begun = []
        for group in (*groups[self._first :], *groups[: self._first]):
            nodes = {node for job in group for node in job.nodes}
            here = Signals({node: signals.nodes[node] for node in nodes}, group)
            with self._jobs.failures.about(self._job(group[0]).tracked):
                for job in group:
                    self._job(job).cpu.meet(here.company)
                begun += (back := list(self._give_back(here, now.monotonic)))
                records = {job.uid: self._job(job).cpu for job in group}
                charge(here, records, seconds=seconds, now=now)
                proposals = judged(here, records, ended=ended)
                for policy in SIGNAL_POLICIES:
                    proposals += self._advised(policy, here, due[policy.name])
                touched = {running.uid for running, _ in back}
                open_to = [proposal for proposal in proposals if proposal.job not in touched]
                most = max(0, MOST_BEGUN - len(begun))
                begun += self._choose(open_to, here, due, most=most, now=now.monotonic)
        return begun

    def _choose(
        self, proposals: list[Proposal], here: Signals, due: _Due, *, most: int, now: float
    ) -> Begun:
        """Begin the chosen proposals for neighbours, and set what each job shows."""
        ripe = [proposal for proposal in proposals if self._ripe(proposal)]
        early = {proposal.job for proposal in proposals} - {proposal.job for proposal in ripe}
        chosen = arbitrate(ripe, here)
        begun = [self._begin(proposal, here) for proposal in chosen.act[:most]]
        would = {proposal.job: proposal for proposal in chosen.observe}
        for job in here.jobs:
            running = self._job(job)
            running.cpu.early = job.uid in early
            decided = any(job.uid in uids for uids in due.values())
            paused = self._resizing.paused(running, now)
            shown = cpu_shown(
                running, job, here, would.get(job.uid), decided=decided, paused=paused
            )
            self._jobs.shown.show(running, names.RESIZED, shown)
        return begun

    def _job(self, signal: JobSignal) -> RunningJob:
        return self._jobs.resized[signal.uid]

    def _due(self, policy: SignalPolicy, signals: Signals, now: float) -> frozenset[str]:
        """Return the jobs that a policy visits now."""
        takers = [job for job in signals.jobs if policy.takes(job)]
        due = self._cadences[policy.name].due(
            takers, interval=lambda job: policy.of(job, "interval"), now=now
        )
        return frozenset(job.uid for job in due)

    def _advised(self, policy: SignalPolicy, here: Signals, due: frozenset[str]) -> list[Proposal]:
        """Return a policy's proposals for neighbours, and record the jobs that it leaves alone."""
        jobs = tuple(job for job in here.jobs if job.uid in due or not policy.takes(job))
        if not any(job.uid in due for job in jobs):
            return []
        advice = policy.propose(Signals(here.nodes, jobs))
        for job in jobs:
            self._job(job).cpu.stood_down[policy.name] = advice.stood_down.get(job.uid, "")
        return list(advice.proposals)

    def _give_back(self, here: Signals, now: float) -> Iterator[tuple[RunningJob, Resize | None]]:
        """Yield the steps that restore the user's limits, whatever else is under way."""
        for job in here.jobs:
            running = self._job(job)
            cpu, operation = running.cpu, running.cpu.operation
            pods, state = self._jobs.pods(running), running.tracked.state.cpu
            cpu.see(pods, state)
            writing = operation is not None and operation.phase is Phase.WRITING
            paused = self._resizing.paused(running, now, restoring=True)
            if running.tracked.busy or writing or paused:
                continue
            back = restoring(
                job,
                here,
                pods=pods,
                state=state,
                seen=cpu.seen,
                chosen=running.cpu_policies,
                undo=cpu.undo,
                unmeasured=now - cpu.measured_at,
            )
            if back is not None:
                if operation is None or not operation.restores:
                    resized = is_resized(job, here)
                    step = self._resizing.begin(
                        running, back.proposal, resized=resized, rests=back.rests
                    )
                    yield running, step
            elif not running.cpu_policies and operation is None and not is_resized(job, here):
                yield running, self._resizing.forget(running)

    def _ripe(self, proposal: Proposal) -> bool:
        """Return whether enough is known to judge the effect of a proposal later.

        A proposal that gives back need not show a gain, so it never waits.
        """
        if proposal.measure is None:
            return True
        served = self._jobs.resized[proposal.serves].cpu.history.of(proposal.measure)
        return proposal.expected is not None or len(served) >= WINDOWS_BEFORE

    def _begin(self, proposal: Proposal, here: Signals) -> tuple[RunningJob, Resize | None]:
        running = self._jobs.resized[proposal.job]
        served = self._jobs.resized[proposal.serves].cpu.history
        trial = begin_trial(proposal, served.of(proposal.measure) if proposal.measure else ())
        job = here.job(proposal.job)
        step = self._resizing.begin(
            running,
            proposal,
            resized=job is not None and is_resized(job, here),
            restricts=job is not None and restricts(proposal, job, here),
            trial=trial,
            rests={proposal.policy: proposal.reason} if proposal.rests else {},
        )
        return running, step


def charge(here: Signals, records: Mapping[str, CpuRecord], *, seconds: float, now: Moment) -> None:
    """Add to each budget what the job used, and lost or lent below an equal share.

    `seconds`: since the last call.
    """
    _count_from_states(here, records, now.wall)
    spans = {job.uid: _span(job, records[job.uid], seconds, now) for job in here.jobs}
    for node, contest in contests(here.jobs, here).items():
        capped = len(contest.jobs) > 1 and any(cap is not None for cap in contest.present.values())
        # After a restart kfext soon knows that CPU is lent, but long not which job gets it.
        lends, equal = capped and contest.ordered, contest.equal()
        for job in contest.jobs:
            use = use_of(job.on(node))
            if use is not None:
                record = records[job.uid]
                record.peak = max(record.peak, use)
                record.budget = record.budget.after(
                    use=use,
                    equal=equal[job.uid] if lends else contest.size // len(contest.jobs),
                    cap=contest.present[job.uid],
                    seconds=spans[job.uid],
                    lends=lends,
                )


def _count_from_states(here: Signals, records: Mapping[str, CpuRecord], now: float) -> None:
    """Count uncharged jobs from the time when another controller counted their neighbours.

    A job that gets CPU is not resized, so its state has no budget. What it has borrowed since then
    counts; otherwise a restart would give another turn to a job that understates its work.
    """
    group = [records[job.uid] for job in here.jobs]
    counted = max((past(record.counted_at, now=now) for record in group), default=0.0)
    for record in group:
        if record.budget == Budget():
            record.counted_at = record.counted_at or counted


def _span(job: JobSignal, record: CpuRecord, seconds: float, now: Moment) -> float:
    """Return the seconds to charge a job for, including seconds that were never counted.

    A controller that dies has counted more than it wrote, and nothing was counted since then. The
    present use of the job stands for that time, because its limits are still the last ones written.
    """
    if not record.counted_at:
        return seconds
    if job.use is None or now.monotonic - record.began < _FRESH:
        return 0.0
    # A job with younger pods was suspended meanwhile, or a pod was replaced.
    since = max(record.counted_at, *(pod.created for pod in job.pods))
    record.counted_at = 0.0
    return max(0.0, now.wall - since)


def judged(
    here: Signals, records: Mapping[str, CpuRecord], *, ended: Collection[str]
) -> list[Proposal]:
    """Return the proposals to undo; `ended`: the jobs with a window that has just ended.

    A trial without a gain stays until its undoing begins.
    """
    undone = []
    for job in here.jobs:
        record = records[job.uid]
        if record.trial is None:
            continue
        if record.trial.proposal.serves in ended and not job.in_flight:
            record.trial = record.trial.with_window(here)
        outcome = record.trial.outcome(here)
        match outcome:
            case Outcome.RUNNING:
                pass
            case Outcome.FAILED:
                if (undo := record.trial.undo(here)) is not None:
                    undone.append(undo)
            case Outcome.GAINED | Outcome.MOOT:
                record.trial = None
            case _:
                assert_never(outcome)
    return undone
