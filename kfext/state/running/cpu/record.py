"""The record of the CPU of a job that the companion follows. Times are monotonic."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from kfext.core.progress.reported import Reported
from kfext.model.backoff import exponential_backoff
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.policy import PolicyChoice
from kfext.model.verdict import Verdict
from kfext.state.reports.uses import Uses
from kfext.state.running.cpu.history import History, Work
from kfext.state.running.cpu.resize import RESIZE
from kfext.state.running.cpu.restoring import cpu_of, last_written
from kfext.state.running.cpu.shift import SHIFT
from kfext.state.running.operation import ResizeOperation, Trial
from kfext.state.running.policy import SignalPolicy
from kfext.state.running.running_job import Record, RunningJob, live_pods

CPU_POLICIES: tuple[SignalPolicy, ...] = (RESIZE, SHIFT)
EARLY_SECONDS = 120.0
"""A job that reports nothing for this long counts as a job without progress."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 300.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of the CPU changes of a job after `failures` in a row.

    `changes`: the number of changes of the namespace's quotas; another change ends the pause.
    `lasting`: whether nothing else ends the pause, because a quota or a LimitRange refused.
    `restoring`: whether the last failure was a restore. Otherwise a restore does not wait.
    """

    until: float
    failures: int
    changes: int
    lasting: bool
    restoring: bool

    def holds(self, now: float, *, changes: int, restoring: bool = False) -> bool:
        """Return whether the pause still applies; a lasting pause does not apply to a restore."""
        if changes != self.changes:
            return False
        if restoring:
            return self.restoring and now < self.until
        return self.lasting or now < self.until


@dataclass(slots=True)
class CpuRecord(Record):
    """The record of the CPU of a job.

    `began`: when the controller began to follow the job. `work`: the CPU time of its steps.
    `company`: the uids and limits of the pods on its nodes that belong to jobs with opt-in.
    `unfit`: why no policy visits the job, or empty. `unread`: as in JobSignal.
    `measured_at`: when the CPU use of all its pods was last known, or the job was first followed.
    `ineligible`: by policy, why the job is ineligible, or empty.
    `early`: whether a proposal waits for measurements.
    `pause`: the pause after the failures since the last success, if any.
    `refused`: why the last change failed, until a change succeeds.
    `undo`: the policy of an incomplete change that is to be restored, and why.
    `seen`: by pod uid, the CPU that kfext wrote last and that was observed on the pod.
    """

    began: float = -math.inf
    work: Work = field(default_factory=Work)
    history: History = field(default_factory=History)
    trial: Trial | None = None
    operation: ResizeOperation | None = None
    unfit: str = ""
    unread: str = ""
    measured_at: float = -math.inf
    ineligible: dict[str, str] = field(default_factory=dict)
    company: frozenset[tuple[str, int | None]] = frozenset()
    early: bool = False
    pause: Pause | None = None
    refused: Verdict | None = None
    undo: tuple[str, Verdict] | None = None
    seen: dict[str, PodCpu] = field(default_factory=dict)

    def see(self, pods: Iterable[Pod], state: CpuState) -> None:
        """Record the pods on which the last written CPU was observed."""
        before, self.seen = self.seen, {}
        for pod in pods:
            last = last_written(pod, state)
            if last is not None and last in {cpu_of(pod), before.get(pod.uid)}:
                self.seen[pod.uid] = last

    def fail(self, now: float, *, lasting: bool, restoring: bool, changes: int) -> None:
        """Record a failure; consecutive failures double the pause. A lasting refusal stays."""
        failures = self.pause.failures + 1 if self.pause else 1
        if self.pause is not None and self.pause.changes == changes:
            lasting |= self.pause.lasting
        pause = exponential_backoff(failures, first=_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)
        self.pause = Pause(now + pause, failures, changes, lasting=lasting, restoring=restoring)

    def set_neighbours(self, company: frozenset[tuple[str, int | None]]) -> None:
        """Record the pods that share its nodes; a change makes earlier measurements useless.

        Different pods end a trial, because its effect can no longer be judged.
        """
        if company == self.company:
            return
        if {uid for uid, _ in company} != {uid for uid, _ in self.company}:
            self.trial = None
            if self.operation is not None:
                self.operation.trial = None
        self.history.forget()
        self.company = company

    def remaining(self, reported: Reported | None, now: Moment, *, since: float) -> float | None:
        """Return the core-seconds to the end, infinite while unknown, None without progress.

        `since`: the start of the job, in epoch seconds.
        """
        if reported is None or not reported.progress.metric:
            return math.inf if now.monotonic - self.began < EARLY_SECONDS else None
        remaining, overdue = self.work.remaining(reported.progress), reported.progress.overdue
        return math.inf if remaining is not None and overdue(now.wall, since=since) else remaining


def record_of(job: RunningJob) -> CpuRecord:
    """Return the record of the CPU of a job."""
    return job.record(CpuRecord)


def cpu_policies(job: RunningJob) -> dict[str, PolicyChoice]:
    """Return by name the chosen policies for the CPU of a job."""
    names = (policy.name for policy in CPU_POLICIES)
    return {name: job.chosen[name] for name in names if name in job.chosen}


def all_measured(pods: tuple[Pod, ...], uses: Uses) -> bool:
    """Return whether the CPU use of all pods is known."""
    return all(uses.use_of(pod.uid) for pod in live_pods(pods))
