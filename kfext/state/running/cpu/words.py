"""The condition `Resized` of a job that opted in: its status, reason and message."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kfext import names
from kfext.core.eligibility import why_managed
from kfext.core.progress.reported import Reported
from kfext.core.settings.values import MetricsSource
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import MAX_RESIZED, CpuState
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import METRICS, REASON_RECOGNISED
from kfext.state.running.cpu.record import cpu_policies, record_of
from kfext.state.running.cpu.resize import RESIZE
from kfext.state.running.cpu.restoring import with_sizes
from kfext.state.running.policy import ConditionStatus
from kfext.state.running.proposal import Proposal
from kfext.state.running.running_job import RunningJob
from kfext.state.running.signals import JobSignal


def cpu_shown(
    job: RunningJob, signal: JobSignal, dry_run: Proposal | None, *, decided: bool, paused: bool
) -> ConditionStatus | None:
    """Return the status of the condition of a job, or None without opt-in.

    `dry_run`: the proposal of a policy that may only observe. `decided`: whether a policy has just
    visited the job; otherwise, and while the job is resized, the last message stays.
    `paused`: whether the back-off after a failed change lasts.
    """
    verdict = next(_verdicts(job, signal, dry_run, paused=paused), None)
    resized = _resized(job, signal)
    if verdict is None and cpu_policies(job):
        before = job.shown.get(names.RESIZED)
        if record_of(job).early and not resized:
            message = "there are too few measurements yet to judge a change"
            verdict = Verdict(names.REASON_TOO_EARLY, message)
        elif before is None or (decided and not resized):
            verdict = _nothing_to_move(_ineligible(job, signal))
        else:
            verdict = before.verdict
    return None if verdict is None else ConditionStatus(resized, verdict)


def _resized(job: RunningJob, signal: JobSignal) -> bool:
    """Return whether the CPU of pods differs from the user's, or is about to."""
    operation = record_of(job).operation
    return signal.resized or (operation is not None and not operation.restores)


def _verdicts(
    job: RunningJob, signal: JobSignal, dry_run: Proposal | None, *, paused: bool
) -> Iterator[Verdict]:
    """Yield the verdicts that may replace the last message, the most important first."""
    cpu, policies = record_of(job), signal.policies
    if paused and cpu.refused is not None:
        yield cpu.refused
    if cpu.operation is not None:
        restores = cpu.operation.restores
        reason = names.REASON_CPU_RESTORED if restores else names.REASON_CPU_MOVED
        yield Verdict(reason, cpu.operation.proposal.reason)
    if cpu_policies(job) and cpu.unfit:
        yield Verdict(names.REASON_STANDS_DOWN, cpu.unfit)
    if dry_run is not None:
        yield Verdict(names.REASON_WOULD_MOVE, dry_run.reason)
    disabled = job.tracked.state.cpu.disabled
    if reasons_disabled := [disabled[name] for name in policies if name in disabled]:
        yield Verdict(names.REASON_RESTS, _listed(reasons_disabled))
    reasons = _ineligible(job, signal)
    if policies and len(reasons) == len(policies):
        yield Verdict(names.REASON_STANDS_DOWN, _listed(reasons.values()))
    if policies and signal.use is None:
        if cpu.unread:
            yield Verdict(names.REASON_STANDS_DOWN, cpu.unread)
        yield Verdict(names.REASON_TOO_EARLY, "the CPU use of its pods is not known yet")
    if not signal.known and RESIZE.name in policies.keys() - reasons.keys():
        yield Verdict(names.REASON_TOO_EARLY, "its progress is not known yet")


def _ineligible(job: RunningJob, signal: JobSignal) -> dict[str, str]:
    """Return why the job is ineligible, by name of each policy that cannot change it."""
    return {name: why for name in signal.policies if (why := record_of(job).ineligible.get(name))}


def _nothing_to_move(reasons: Mapping[str, str]) -> Verdict:
    """Return the verdict that nothing changes; `reasons`: as from `_ineligible`."""
    why = [f"it is ineligible for {name}: {reason}" for name, reason in reasons.items()]
    message = "; ".join(["no change is worth a write", *why])
    return Verdict(names.REASON_NOTHING_TO_MOVE, message)


def _listed(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))


def why_no_resize(job: TrainingJob, pods: Sequence[Pod], state: CpuState) -> str:
    """Return why no policy may change the CPU of a job's pods; empty means that a policy may."""
    if why := why_managed(job):
        return why
    unlike = len(with_sizes(state, ((pod, CpuSize()) for pod in pods), policies=frozenset()).unlike)
    if len(pods) + unlike > MAX_RESIZED:
        varied = f", {unlike} of them with their own CPU" if unlike else ""
        limit = f"at most {MAX_RESIZED}, where a pod with its own CPU counts twice"
        return f"it has {len(pods)} pods{varied}; kfext changes the CPU of {limit}"
    for pod in pods:
        if pod.trainer is None or pod.replica is None:
            return (
                f"pod {pod.name} has no container {job.kind.container} with its own resources, "
                "so the training container is unknown"
            )
        if pod.trainer.restarts:
            return f"a resize restarts the container of pod {pod.name}, by its resizePolicy"
    return ""


def why_unread(reported: Reported | None, *, source: MetricsSource, remaining: float | None) -> str:
    """Return why the end of a job is unknown; empty if it is known or not expected yet.

    `source`: the source of its progress. `remaining`: the core-seconds to its end, or None.
    """
    if not source.is_log:
        return f"{METRICS} is {source.source}, so kfext reads neither its progress nor its CPU use"
    if reported is None or reported.known is None or remaining is not None:
        return ""
    if reported.known.reason != REASON_RECOGNISED:
        return reported.known.message
    return "its log shows no total of steps, so its end is unknown"
