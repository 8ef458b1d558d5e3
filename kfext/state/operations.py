"""The operations on the CPU of jobs, at most one for each job, from the first write to the last.

Every stage is checked against the pods as they are then. A controller that dies leaves sizes that
are ours by the state of the job, and its successor decides afresh.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never

from kfext import names
from kfext.core.companion.operation import (
    MEASURE_SECONDS,
    MEASUREMENTS,
    Operation,
    Phase,
    Trial,
    all_set,
    why_not_set,
)
from kfext.core.companion.proposal import Proposal
from kfext.core.companion.restoring import Owner, changed_by_others, noted, owner_of
from kfext.core.lifecycle.steps import Resize
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import CpuState
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.uses import Uses
from kfext.state.watched_job import WatchedJob, live_pods

_LASTING = (
    *("exceeded quota", "failed quota", "maximum cpu usage", "minimum cpu usage"),
    "cpu max limit to request ratio",
)
"""In the answer of the API server where a quota or a LimitRange refuses: the same is refused until
these change, which is seen. What else refuses may change unseen."""


class Operations:
    """Begins and follows operations. `changes` counts those to the quotas of a namespace."""

    def __init__(self, cluster: Cluster, uses: Uses, changes: Callable[[str], int]) -> None:
        self._cluster = cluster
        self._uses = uses
        self._changes = changes

    def paused(self, watched: WatchedJob, now: float, *, restoring: bool = False) -> bool:
        """Return whether nothing is tried on a job for now, after a failure."""
        changes = self._changes(watched.tracked.job.namespace)
        pause = watched.pause
        return pause is not None and pause.holds(now, changes=changes, restoring=restoring)

    def begin(
        self,
        watched: WatchedJob,
        proposal: Proposal,
        *,
        resized: bool,
        restricts: bool = True,
        trial: Trial | None = None,
        rests: Mapping[str, str] | None = None,
    ) -> Resize | None:
        """Begin to carry out a proposal.

        `resized`: whether pods have other limits than the user's now. `restricts`: whether
        a limit is lowered; all of ours are attributed to this policy then. `trial`: begins once all
        is written. `rests`: the policies that rest from then on, and why.
        """
        undo, watched.trial, watched.undo = watched.undo, None, None
        operation = Operation(proposal, trial=trial, rests=dict(rests or {}))
        operation.undo = undo
        before = watched.tracked.state.cpu.by if resized else frozenset()
        takes = restricts and not operation.restores
        operation.by = before | {proposal.policy} if takes else before
        watched.operation = operation
        return self._stage(watched, watched.operation)

    def advance(self, watched: WatchedJob, *, now: float) -> Resize | None:
        """Return the next step of an operation once the one before has taken effect."""
        operation = watched.operation
        if operation is None or watched.tracked.busy:
            return None
        pods = self._pods(watched)
        match operation.phase:
            case Phase.WRITING:
                why_not = "a step was not written, after an error of kfext"
                self._break_off(watched, operation, why_not)
            case Phase.SETTING:
                if all_set(operation, pods):
                    return self._next_stage(watched, operation, now=now)
                if why := why_not_set(operation, pods, now=now):
                    self._fail(watched, operation, why, now=now)
            case Phase.MEASURING:
                late = now - operation.since >= MEASURE_SECONDS
                counts = ((self._measured(pod), operation.measured.get(pod.uid, 0)) for pod in pods)
                if late or all(now - then >= MEASUREMENTS for now, then in counts):
                    self._end(watched, operation.trial)
            case _:
                assert_never(operation.phase)
        return None

    def _next_stage(
        self, watched: WatchedJob, operation: Operation, *, now: float
    ) -> Resize | None:
        """Return the step of the next stage; after the last stage the CPU use is measured."""
        if not operation.last:
            operation.stage += 1
            operation.phase = Phase.WRITING
            return self._stage(watched, operation)
        operation.phase, operation.since = Phase.MEASURING, now
        pods = self._pods(watched)
        operation.measured = {pod.uid: self._measured(pod) for pod in pods}
        return None

    def finish(self, watched: WatchedJob, *, complete: bool, final: str, now: float) -> None:
        """Take in what came of a write; `final`: why it was refused."""
        operation = watched.operation
        if complete:
            if operation is not None and operation.sizes:
                operation.phase, operation.since = Phase.SETTING, now
            else:
                self._end(watched, None)
            return
        lasting = any(answer in final for answer in _LASTING)
        restoring = operation is None or operation.restores
        self._pause(watched, now, lasting=lasting, restoring=restoring)
        if final:
            watched.refused = Verdict(names.REASON_RESIZE_REFUSED, final)
        watched.operation = None
        if operation is not None:
            # A part may be written: that is to be restored, and a restore to be tried again.
            why = final or "a pod changed, or the API server did not answer"
            policy, refused = operation.proposal.policy, names.REASON_RESIZE_REFUSED
            watched.undo = (policy, Verdict(refused, why)) if policy else operation.undo

    def forget(self, watched: WatchedJob) -> Resize:
        """Return the step that leaves no note of the CPU on a job."""
        message = "the CPU limits are the user's, and kfext has no note of them any more"
        state = replace(watched.tracked.state, cpu=CpuState())
        return Resize((), state, Verdict(names.REASON_CPU_RESTORED, message))

    def _stage(self, watched: WatchedJob, operation: Operation) -> Resize | None:
        """Return the step of the present stage; None, and no operation, if a pod has changed."""
        tracked = watched.tracked
        pods = {pod.uid: pod for pod in self._pods(watched)}
        sizes = tuple(
            (pods[size.pod], CpuSize(size.limit, size.request))
            for size in operation.sizes
            if size.pod in pods
        )
        if len(sizes) < len(operation.sizes):
            self._break_off(watched, operation, "a pod of the job has gone meanwhile")
            return None
        before = tracked.state.cpu
        if any(_is_changed(pod, operation, watched) for pod, _ in sizes):
            self._break_off(watched, operation, "the CPU of a pod was changed by somebody else")
            return None
        cpu = replace(
            noted(before, sizes, by=operation.by, pods=pods.values()),
            rests={**before.rests, **operation.rests},
            used=watched.budget.used,
            lost=watched.budget.lost,
            lent=watched.budget.lent,
            borrowed=watched.budget.borrowed,
        )
        reason = names.REASON_CPU_RESTORED if operation.restores else names.REASON_CPU_MOVED
        return Resize(
            sizes, replace(tracked.state, cpu=cpu), Verdict(reason, operation.proposal.reason)
        )

    def _break_off(self, watched: WatchedJob, operation: Operation, why: str) -> None:
        """End an operation before its present stage; what earlier stages took is to be restored."""
        watched.operation, watched.undo = None, operation.undo
        if operation.stage and not operation.restores:
            watched.undo = operation.proposal.policy, Verdict("BrokenOff", why)

    def _fail(self, watched: WatchedJob, operation: Operation, why: Verdict, *, now: float) -> None:
        """Take in that a kubelet did not set a stage."""
        self._pause(watched, now, lasting=False, restoring=operation.restores)
        watched.refused = Verdict(names.REASON_RESIZE_REFUSED, f"{why.reason}: {why.message}")
        watched.operation = None
        if not operation.restores:
            watched.undo = operation.proposal.policy, why

    def _end(self, watched: WatchedJob, trial: Trial | None) -> None:
        restored = watched.operation is not None and watched.operation.restores
        watched.operation, watched.trial = None, trial
        if not restored:
            # That the user's limits were restored is no success of what failed before.
            watched.pause = watched.refused = None

    def _pause(self, watched: WatchedJob, now: float, *, lasting: bool, restoring: bool) -> None:
        changes = self._changes(watched.tracked.job.namespace)
        watched.fail(now, lasting=lasting, restoring=restoring, changes=changes)

    def _pods(self, watched: WatchedJob) -> tuple[Pod, ...]:
        return live_pods(self._cluster.pods(watched.tracked.job.uid))

    def _measured(self, pod: Pod) -> int:
        measured = self._uses.of(pod.uid)
        return measured.number if measured else 0


def _is_changed(pod: Pod, operation: Operation, watched: WatchedJob) -> bool:
    """Return whether somebody else changed what an operation would overwrite.

    With another request, or with the user's limit put back, ours are restored all the same.
    """
    state = watched.tracked.state.cpu
    if operation.restores:
        return owner_of(pod, state) is Owner.OTHER
    return changed_by_others(pod, state, seen=watched.seen.get(pod.uid))
