"""The executor that changes the CPU of pods: policies decide on groups of jobs that share nodes."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar

from kfext import names
from kfext.core.lifecycle.steps import Resize
from kfext.model.cpu_state import CpuState
from kfext.model.moment import Moment
from kfext.model.policy import PolicyChoice
from kfext.model.timestamps import written_time
from kfext.model.verdict import Verdict
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.cpu.cadence import RESIZED, Cadence, neighbourhoods
from kfext.state.running.cpu.cpu_signals import CpuSignals
from kfext.state.running.cpu.record import CPU_POLICIES, CpuRecord, cpu_policies, record_of
from kfext.state.running.cpu.restoring import due_restore
from kfext.state.running.cpu.rollout import ResizeRollout
from kfext.state.running.cpu.words import cpu_shown
from kfext.state.running.executor import TURN_SECONDS, Executor, Steps
from kfext.state.running.operation import WINDOWS_BEFORE, Phase, Trial
from kfext.state.running.policy import Condition, ConditionStatus, SignalPolicy
from kfext.state.running.proposal import Change, Chosen, PodSizes, Proposal
from kfext.state.running.running_job import RunningJob, live_pods
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.signals import JobSignal, Signals

MAX_BEGUN = 16
"""The most operations that begin after a scan."""
_Due = Mapping[str, frozenset[str]]
"""The uids of the jobs on which a policy decides now, by name of the policy."""


@dataclass(slots=True)
class _Scan:
    """A scan of all jobs; `ended`, `begun` and `early` are uids of jobs.

    `groups`: the groups of jobs that share nodes, in the order of their turns; a group with an
        error of kfext is dropped. `due`: the jobs on which each policy decides.
    `ended`: jobs with a window that just ended. `begun`: jobs with an operation that began now.
    `early`: jobs with a proposal that has too few measurements for a trial.
    """

    groups: list[Signals]
    due: _Due
    ended: Collection[str]
    begun: set[str] = field(default_factory=set)
    early: set[str] = field(default_factory=set)


class CpuExecutor(Executor):
    """Moves CPU between the pods of jobs."""

    change: ClassVar[type[Change]] = PodSizes
    condition: ClassVar[Condition] = RESIZED
    scan_seconds: ClassVar[float] = TURN_SECONDS

    def __init__(self, running: RunningJobs) -> None:
        super().__init__(running)
        changes = running.queue.quotas.changes
        self._stages = ResizeRollout(running.cluster, running.progress.uses, changes)
        self._signals = CpuSignals(running, self._stages.paused)
        self._cadences = {policy.name: Cadence() for policy in CPU_POLICIES}
        self._scan: _Scan | None = None
        self._first = 0
        self._shrinking: tuple[RunningJob, ...] = ()

    def follows(
        self, tracked: TrackedJob, chosen: dict[str, PolicyChoice], job: RunningJob | None
    ) -> bool:
        """Return whether a job opted in, or has CPU that kfext set."""
        training = tracked.job
        if training.finished or training.suspend or training.deleting:
            return False
        return tracked.state.cpu != CpuState() or any(
            policy.name in chosen for policy in CPU_POLICIES
        )

    def on_added(self, job: RunningJob, now: Moment) -> None:
        """Begin to follow the CPU of a job."""
        job.replace_record(CpuRecord(began=now.monotonic, measured_at=now.monotonic))

    def on_removed(self, job: RunningJob, now: Moment) -> None:
        """Forget the CPU of a job."""
        job.replace_record(CpuRecord())

    def needs_early_scan(self) -> bool:
        """Return whether lowered requests have freed CPU for other pods, or signals need a scan."""
        busy = {Phase.WRITING, Phase.SETTLING}
        operations = (record_of(job).operation for job in self._shrinking)
        has_shrunk = self._shrinking and not any(
            operation is not None and operation.phase in busy for operation in operations
        )
        return bool(has_shrunk) or self._signals.needs_early_scan()

    def advance(self, now: Moment) -> Steps:
        """Continue operations, and restore CPU that kfext may no longer change."""
        at = now.monotonic
        begun: list[tuple[RunningJob, Resize | None]] = []
        for job in self.jobs.values():
            with self.running.failures.collect_errors_of(job.tracked):
                begun.append((job, self._stages.advance(job, now=at)))
        self._scan = None
        if self.scanning:
            self._shrinking = ()
            self._scan = scan = self._new_scan(now)
            for group in list(scan.groups):
                with self._visit(scan, group):
                    for signal in group.jobs:
                        record_of(self.jobs[signal.uid]).set_neighbours(group.pod_limits)
                    for job, step in self._restore(group, at):
                        scan.begun.add(job.uid)
                        begun.append((job, step))
        return _steps_of(begun)

    def propose(self, now: Moment) -> list[Proposal]:
        """Return the proposals of the policies after a scan, and to undo failed trials."""
        scan, proposals = self._scan, list[Proposal]()
        if scan is None:
            return proposals
        for group in list(scan.groups):
            with self._visit(scan, group):
                records = {job.uid: record_of(self.jobs[job.uid]) for job in group.jobs}
                advice = undo_proposals(group, records, ended=scan.ended)
                for policy in CPU_POLICIES:
                    advice += self._advice(policy, group, scan.due[policy.name])
                judgeable = [proposal for proposal in advice if self._can_be_judged(proposal)]
                not_early = {proposal.job for proposal in judgeable} | scan.begun
                scan.early |= {proposal.job for proposal in advice} - not_early
                busy = scan.begun | {job.uid for job in group.jobs if job.in_flight}
                proposals += [proposal for proposal in judgeable if proposal.job not in busy]
        return proposals

    def begin(self, chosen: Chosen, now: Moment) -> Steps:
        """Begin the chosen proposals of each group, and update the condition of each job."""
        scan = self._scan
        if scan is None:
            return []
        begun: list[tuple[RunningJob, Resize | None]] = []
        acting = {proposal.job: proposal for proposal in chosen.act}
        dry_run = {proposal.job: proposal for proposal in chosen.observe}
        for group in list(scan.groups):
            with self._visit(scan, group):
                due = [(acting[job.uid], job) for job in group.jobs if job.uid in acting]
                for proposal, job in sorted(due, key=lambda pair: chosen.act.index(pair[0])):
                    if len(scan.begun) < MAX_BEGUN:
                        scan.begun.add(proposal.job)
                        why = f"{written_time(now.wall)}: {proposal.reason}"
                        begun.append(self._begin(replace(proposal, reason=why), job))
                for job in group.jobs:
                    self._show(job, scan, dry_run.get(job.uid), now.monotonic)
        self._shrinking = tuple(job for job, step in begun if step is not None and _shrinks(step))
        return _steps_of(begun)

    def finish(self, job: RunningJob, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a write."""
        self._stages.finish(job, complete=complete, final=final, now=now)

    # --- a scan of all jobs ---------------------------------------------------------------------

    def _new_scan(self, now: Moment) -> _Scan:
        at = now.monotonic
        jobs: list[JobSignal] = []
        ended = set()
        for job in self.jobs.values():
            with self.running.failures.collect_errors_of(job.tracked):
                signal, has_ended = self._signals.signal_of(job, now)
                if has_ended:
                    ended.add(job.uid)
                if signal.pods:
                    jobs.append(signal)
                elif cpu_policies(job) and record_of(job).unfit:
                    unfit = Verdict(names.REASON_STANDS_DOWN, record_of(job).unfit)
                    self.running.shown.show(
                        job, RESIZED.type, ConditionStatus(holds=False, verdict=unfit)
                    )
        signals = self._signals.with_nodes(jobs, now.wall)
        due = {policy.name: self._due(policy, signals, at) for policy in CPU_POLICIES}
        groups = neighbourhoods(signals.jobs)
        self._first = (self._first + 1) % max(1, len(groups))
        turns = (*groups[self._first :], *groups[: self._first])
        return _Scan([_among(group, signals) for group in turns], due, ended)

    @contextmanager
    def _visit(self, scan: _Scan, group: Signals) -> Iterator[None]:
        """Drop a group from a scan after an error of kfext, so that no other group is affected."""
        scan.groups.remove(group)
        with self.running.failures.collect_errors_of(self.jobs[group.jobs[0].uid].tracked):
            yield
            scan.groups.append(group)

    def _due(self, policy: SignalPolicy, signals: Signals, now: float) -> frozenset[str]:
        jobs = [job for job in signals.jobs if policy.applies_to(job)]
        due = self._cadences[policy.name].due(jobs, interval=policy.interval, now=now)
        return frozenset(job.uid for job in due)

    def _advice(self, policy: SignalPolicy, group: Signals, due: frozenset[str]) -> list[Proposal]:
        """Return a policy's proposals for a group, and record why its jobs are ineligible."""
        jobs = tuple(job for job in group.jobs if job.uid in due or not policy.applies_to(job))
        if not any(job.uid in due for job in jobs):
            return []
        advice = policy.propose(replace(group, jobs=jobs))
        for job in jobs:
            record = record_of(self.jobs[job.uid])
            record.ineligible[policy.name] = advice.ineligible.get(job.uid, "")
        return list(advice.proposals)

    def _restore(self, group: Signals, now: float) -> Iterator[tuple[RunningJob, Resize | None]]:
        """Yield the steps that restore the user's CPU, whatever else is in progress."""
        for job in group.jobs:
            running = self.jobs[job.uid]
            cpu, operation = record_of(running), record_of(running).operation
            pods, state = live_pods(self._cluster.pods(job.uid)), running.tracked.state.cpu
            cpu.observe_written(pods, state)
            writing = operation is not None and operation.phase is Phase.WRITING
            paused = self._stages.paused(running, now, restoring=True)
            if running.tracked.busy or writing or paused:
                continue
            restore = due_restore(
                job,
                group,
                pods=pods,
                state=state,
                observed=cpu.observed,
                chosen=cpu_policies(running),
                undo=cpu.undo,
            )
            if restore is not None:
                if operation is None or not operation.restores:
                    yield running, self._stages.begin(running, restore, resized=job.resized)
            elif not cpu_policies(running) and operation is None and not job.resized:
                yield running, self._stages.forget(running)

    def _can_be_judged(self, proposal: Proposal) -> bool:
        """Return whether there are enough measurements for the trial of a proposal, if any."""
        if proposal.measure is None:
            return True
        history = record_of(self.jobs[proposal.job]).history
        return len(history.values_of(proposal.measure)) >= WINDOWS_BEFORE

    def _begin(self, proposal: Proposal, job: JobSignal) -> tuple[RunningJob, Resize | None]:
        running, measure = self.jobs[job.uid], proposal.measure
        trial = Trial(proposal, record_of(running).history.values_of(measure)) if measure else None
        return running, self._stages.begin(running, proposal, resized=job.resized, trial=trial)

    def _show(self, job: JobSignal, scan: _Scan, dry_run: Proposal | None, now: float) -> None:
        running = self.jobs[job.uid]
        record_of(running).early = job.uid in scan.early
        decided = any(job.uid in uids for uids in scan.due.values())
        paused = self._stages.paused(running, now)
        shown = cpu_shown(running, job, dry_run, decided=decided, paused=paused)
        self.running.shown.show(running, RESIZED.type, shown)


def _among(group: tuple[JobSignal, ...], signals: Signals) -> Signals:
    """Return the signals of a group of jobs that share nodes."""
    nodes = {node for job in group for node in job.nodes}
    return replace(signals, nodes={node: signals.nodes[node] for node in nodes}, jobs=group)


def _shrinks(step: Resize) -> bool:
    """Return whether a step lowers the request of a pod, so that other pods may grow."""
    return any(
        size.request is not None and pod.trainer is not None and size.request < pod.trainer.request
        for pod, size in step.sizes
    )


def _steps_of(begun: list[tuple[RunningJob, Resize | None]]) -> Steps:
    return [(job.tracked, step) for job, step in begun if step is not None]


def undo_proposals(
    group: Signals, records: Mapping[str, CpuRecord], *, ended: Collection[str]
) -> list[Proposal]:
    """Return the proposals to undo changes with a failed trial, which stays until its undo begins.

    `records`: the records of the jobs, by uid. `ended`: the jobs with a window that has just ended.
    """
    proposals = []
    for job in group.jobs:
        record = records[job.uid]
        if record.trial is None:
            continue
        if job.uid in ended and not job.in_flight:
            record.trial = record.trial.with_window(job)
        gained = record.trial.gained()
        if gained is False and (undo := record.trial.undo(job)) is not None:
            proposals.append(undo)
        elif gained:
            record.trial = None
    return proposals
