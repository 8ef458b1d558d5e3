"""The rollout of new CPU for the pods of a job, in stages.

Each stage is checked against the present pods. If the controller dies, the state of the job shows
which CPU kfext wrote, and the next controller decides again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from kfext import names
from kfext.core.lifecycle.steps import Resize
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import CpuState
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.state.mirror.cluster import Cluster
from kfext.state.reports.uses import Uses
from kfext.state.running.cpu.record import record_of
from kfext.state.running.cpu.restoring import Owner, changed_by_others, owner_of, with_sizes
from kfext.state.running.operation import (
    MEASURE_SECONDS,
    MEASUREMENTS,
    Phase,
    ResizeOperation,
    Trial,
    all_set,
    why_not_set,
)
from kfext.state.running.proposal import Proposal
from kfext.state.running.running_job import RunningJob, live_pods

_LASTING_REFUSALS = (
    *("exceeded quota", "failed quota", "maximum cpu usage", "minimum cpu usage"),
    "cpu max limit to request ratio",
)
"""Texts in the API server's response after a refusal by a quota or a LimitRange. kfext observes
these objects and retries only after they change. The cause of any other refusal may end without a
sign, so kfext retries."""


class ResizeRollout:
    """Begins and continues operations; `changes` returns how often a namespace's quotas changed."""

    def __init__(self, cluster: Cluster, uses: Uses, changes: Callable[[str], int]) -> None:
        self._cluster = cluster
        self._uses = uses
        self._changes = changes

    def paused(self, job: RunningJob, now: float, *, restoring: bool = False) -> bool:
        """Return whether the back-off after a failed change of a job lasts; `now`: monotonic.

        `restoring`: whether a restore is to begin.
        """
        changes = self._changes(job.tracked.job.namespace)
        back_off = record_of(job).back_off
        return back_off is not None and back_off.holds(now, changes=changes, restoring=restoring)

    def begin(
        self, job: RunningJob, proposal: Proposal, *, resized: bool, trial: Trial | None = None
    ) -> Resize | None:
        """Begin to carry out a proposal; return the step of its first stage, or None.

        `resized`: whether the CPU of any pod differs from the user's now. `trial`: the trial to
        begin after the last stage.
        """
        cpu = record_of(job)
        undo, cpu.trial, cpu.undo = cpu.undo, None, None
        operation = ResizeOperation(proposal, trial=trial)
        operation.undo = undo
        before = job.tracked.state.cpu.by if resized else frozenset()
        operation.by = before if operation.restores else before | {proposal.policy}
        cpu.operation = operation
        return self._stage(job, operation)

    def advance(self, job: RunningJob, *, now: float) -> Resize | None:
        """Return the next step of an operation once the last step has taken effect."""
        operation = record_of(job).operation
        if operation is None or job.tracked.busy:
            return None
        pods = self._pods(job)
        match operation.phase:
            case Phase.WRITING:
                self._break_off(job, operation, "a step was not written, after an error of kfext")
            case Phase.SETTLING:
                if all_set(operation, pods):
                    return self._next_stage(job, operation, now=now)
                if why := why_not_set(operation, pods, now=now):
                    self._fail(job, why, shown=f"{why.reason}: {why.message}", now=now)
            case Phase.MEASURING:
                late = now - operation.since >= MEASURE_SECONDS
                counts = ((self._measured(pod), operation.measured.get(pod.uid, 0)) for pod in pods)
                if late or all(count - before >= MEASUREMENTS for count, before in counts):
                    self._end(job, operation.trial)
            case Phase.SAVING | Phase.TRIAL:
                pass  # a resize needs no checkpoint, and its trial follows the operation
            case _:
                assert_never(operation.phase)
        return None

    def _next_stage(
        self, job: RunningJob, operation: ResizeOperation, *, now: float
    ) -> Resize | None:
        """Return the step of the next stage; after the last stage the CPU use is measured."""
        if not operation.last:
            operation.stage += 1
            operation.phase = Phase.WRITING
            return self._stage(job, operation)
        operation.enter(Phase.MEASURING, at=now)
        pods = self._pods(job)
        operation.measured = {pod.uid: self._measured(pod) for pod in pods}
        return None

    def finish(self, job: RunningJob, *, complete: bool, final: str, now: float) -> None:
        """Record the outcome of a write; `final`: why it was refused for good, or empty."""
        operation = record_of(job).operation
        if complete:
            if operation is not None and operation.sizes:
                operation.enter(Phase.SETTLING, at=now)
            else:
                self._end(job, None)
            return
        lasting = any(text in final for text in _LASTING_REFUSALS)
        why = final or "a pod changed, or the API server did not answer"
        refused = Verdict(names.REASON_RESIZE_REFUSED, why)
        self._fail(job, refused, shown=final, now=now, lasting=lasting)

    def forget(self, job: RunningJob) -> Resize:
        """Return the step that removes the record of the CPU of a job."""
        message = "the CPU is as the user wrote it, and kfext has removed its record"
        state = replace(job.tracked.state, cpu=CpuState())
        return Resize((), state, Verdict(names.REASON_CPU_RESTORED, message))

    def _stage(self, job: RunningJob, operation: ResizeOperation) -> Resize | None:
        """Return the step of the current stage, or end the operation if a pod has changed."""
        tracked = job.tracked
        pods = {pod.uid: pod for pod in self._pods(job)}
        sizes = tuple(
            (pods[size.pod], CpuSize(size.limit, size.request))
            for size in operation.sizes
            if size.pod in pods
        )
        if len(sizes) < len(operation.sizes):
            self._break_off(job, operation, "a pod of the job is gone")
            return None
        before = tracked.state.cpu
        if any(_is_changed(pod, operation, job) for pod, _ in sizes):
            self._break_off(job, operation, "another client changed the CPU of a pod")
            return None
        proposal = operation.proposal
        cpu = replace(
            with_sizes(before, sizes, policies=operation.by, pods=pods.values()),
            disabled={**before.disabled, **dict.fromkeys(proposal.disabled, proposal.reason)},
        )
        reason = names.REASON_CPU_RESTORED if operation.restores else names.REASON_CPU_MOVED
        return Resize(sizes, replace(tracked.state, cpu=cpu), Verdict(reason, proposal.reason))

    def _break_off(self, job: RunningJob, operation: ResizeOperation, why: str) -> None:
        """End an operation before its current stage; earlier stages are to be restored."""
        record_of(job).operation, record_of(job).undo = None, operation.undo
        if operation.stage and not operation.restores:
            record_of(job).undo = operation.proposal.policy, Verdict("BrokenOff", why)

    def _fail(
        self, job: RunningJob, why: Verdict, *, shown: str, now: float, lasting: bool = False
    ) -> None:
        """Record that a stage was not written, or that a kubelet did not set it.

        `shown`: the message for the user, or empty if a retry may succeed.
        `lasting`: whether only a change of a quota ends the back-off.
        """
        operation = record_of(job).operation
        restoring = operation is None or operation.restores
        changes = self._changes(job.tracked.job.namespace)
        record_of(job).fail(now, lasting=lasting, restoring=restoring, changes=changes)
        if shown:
            record_of(job).refused = Verdict(names.REASON_RESIZE_REFUSED, shown)
        record_of(job).operation = None
        if operation is not None:
            # Some pods may be written: kfext restores them, or retries the restore.
            policy = operation.proposal.policy
            record_of(job).undo = (policy, why) if policy else operation.undo

    def _end(self, job: RunningJob, trial: Trial | None) -> None:
        cpu = record_of(job)
        restored = cpu.operation is not None and cpu.operation.restores
        cpu.operation, cpu.trial = None, trial
        if not restored:
            # A successful restore does not show that the failed write would succeed now.
            cpu.back_off = cpu.refused = None

    def _pods(self, job: RunningJob) -> tuple[Pod, ...]:
        return live_pods(self._cluster.pods(job.uid))

    def _measured(self, pod: Pod) -> int:
        measured = self._uses.use_of(pod.uid)
        return measured.number if measured else 0


def _is_changed(pod: Pod, operation: ResizeOperation, job: RunningJob) -> bool:
    """Return whether another client changed a value that an operation would overwrite.

    A restore continues if another client has put back the user's CPU.
    """
    state = job.tracked.state.cpu
    if operation.restores:
        return owner_of(pod, state) is Owner.OTHER
    return changed_by_others(pod, state, observed=record_of(job).observed.get(pod.uid))
