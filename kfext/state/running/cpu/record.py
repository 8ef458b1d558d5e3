"""The record of the CPU of a job that the companion follows. Times are in monotonic seconds."""

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
"""A job that has reported nothing after this time counts as a job without progress."""
_FIRST_BACK_OFF_SECONDS, _LONGEST_BACK_OFF_SECONDS = 30.0, 300.0


@dataclass(frozen=True, slots=True)
class BackOff:
    """The back-off of the CPU changes of a job after `failures` in a row; it ends at `until`.

    `changes`: how often the namespace's quotas had changed; a further change ends the back-off.
    `lasting`: whether only such a change ends it, because a quota or a LimitRange refused.
    `restoring`: whether the failed change was a restore; otherwise a restore need not wait.
    """

    until: float
    failures: int
    changes: int
    lasting: bool
    restoring: bool

    def holds(self, now: float, *, changes: int, restoring: bool = False) -> bool:
        """Return whether the back-off lasts; a restore waits for `until` at most."""
        if changes != self.changes:
            return False
        if restoring:
            return self.restoring and now < self.until
        return self.lasting or now < self.until


@dataclass(slots=True)
class CpuRecord(Record):
    """The record of the CPU of a job.

    `began`: when the controller began to follow the job. `work`: the CPU time of its steps.
    `unfit`, `unread`: why no policy visits the job, why its progress is unknown; or empty.
    `measured_at`: when the CPU use of all its pods was last known, or the job was first followed.
    `ineligible`: why the job is ineligible, or empty, by name of a policy.
    `pod_limits`: the uids and limits of the pods that share its nodes, as in Signals.
    `early`: whether a proposal waits for measurements.
    `back_off`: the back-off after the failures since the last success, if any.
    `refused`: why the last change failed, until a change succeeds.
    `undo`: the policy of an incomplete change that is to be restored, and why it is incomplete.
    `observed`: the last CPU written by kfext, by uid of the pods on which it was observed.
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
    pod_limits: frozenset[tuple[str, int | None]] = frozenset()
    early: bool = False
    back_off: BackOff | None = None
    refused: Verdict | None = None
    undo: tuple[str, Verdict] | None = None
    observed: dict[str, PodCpu] = field(default_factory=dict)

    def observe_written(self, pods: Iterable[Pod], state: CpuState) -> None:
        """Record the pods on which the last written CPU was observed."""
        before, self.observed = self.observed, {}
        for pod in pods:
            last = last_written(pod, state)
            if last is not None and last in {cpu_of(pod), before.get(pod.uid)}:
                self.observed[pod.uid] = last

    def fail(self, now: float, *, lasting: bool, restoring: bool, changes: int) -> None:
        """Record a failure, as in BackOff; each failure in a row doubles the back-off."""
        failures = self.back_off.failures + 1 if self.back_off else 1
        if self.back_off is not None and self.back_off.changes == changes:
            lasting |= self.back_off.lasting
        back_off = exponential_backoff(
            failures, first=_FIRST_BACK_OFF_SECONDS, longest=_LONGEST_BACK_OFF_SECONDS
        )
        until = now + back_off
        self.back_off = BackOff(until, failures, changes, lasting=lasting, restoring=restoring)

    def set_neighbours(self, pod_limits: frozenset[tuple[str, int | None]]) -> None:
        """Record the pods that share its nodes; if they changed, forget earlier measurements.

        Different pods end a trial, because the effect of its change can no longer be judged.
        """
        if pod_limits == self.pod_limits:
            return
        if {uid for uid, _ in pod_limits} != {uid for uid, _ in self.pod_limits}:
            self.trial = None
            if self.operation is not None:
                self.operation.trial = None
        self.history.forget()
        self.pod_limits = pod_limits

    def remaining(self, reported: Reported | None, now: Moment, *, started: float) -> float | None:
        """Return the core-seconds to the end of the job; infinity means unknown, None no progress.

        `started`: the start of the job, in epoch seconds.
        """
        if reported is None or not reported.progress.metric:
            return math.inf if now.monotonic - self.began < EARLY_SECONDS else None
        remaining, overdue = self.work.remaining(reported.progress), reported.progress.overdue
        return math.inf if remaining is not None and overdue(now.wall, since=started) else remaining


def record_of(job: RunningJob) -> CpuRecord:
    """Return the record of the CPU of a job."""
    return job.record(CpuRecord)


def cpu_policies(job: RunningJob) -> dict[str, PolicyChoice]:
    """Return the chosen CPU policies of a job, by name."""
    names = (policy.name for policy in CPU_POLICIES)
    return {name: job.chosen[name] for name in names if name in job.chosen}


def all_measured(pods: tuple[Pod, ...], uses: Uses) -> bool:
    """Return whether the CPU use of all pods is known."""
    return all(uses.use_of(pod.uid) for pod in live_pods(pods))
