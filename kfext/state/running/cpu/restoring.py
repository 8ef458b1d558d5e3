"""Who last set the CPU of a pod, and when the user's CPU is restored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import REMEMBERED, CpuState, PodCpu
from kfext.model.pod import Pod
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.qos import QoS
from kfext.model.verdict import Verdict
from kfext.state.running.proposal import Proposal, restore_proposal
from kfext.state.running.signals import JobSignal, Signals


class Owner(Enum):
    """Who last set the CPU of a pod: the user, kfext, or another client after kfext."""

    USER = "user"
    KFEXT = "kfext"
    OTHER = "other"


def owner_of(pod: Pod, state: CpuState) -> Owner:
    """Return who last set the CPU of a pod. CPU that was never changed is the user's."""
    requested, cpu = requested_of(pod, state), cpu_of(pod)
    if cpu is None or requested in {None, cpu}:
        return Owner.USER
    return Owner.KFEXT if cpu in _written(pod, state) else Owner.OTHER


def changed_by_others(pod: Pod, state: CpuState, *, observed: PodCpu | None) -> bool:
    """Return whether another client has changed the CPU of a pod since kfext wrote it.

    `observed`: the last CPU written by kfext that was observed on the pod, or None. Without it, a
    pod may have the user's CPU because the write by kfext never arrived.
    """
    requested, cpu = requested_of(pod, state), cpu_of(pod)
    if requested is None or cpu is None:
        return False
    put_back = observed is not None and cpu == requested != observed == last_written(pod, state)
    return put_back or owner_of(pod, state) is Owner.OTHER


def cpu_of(pod: Pod) -> PodCpu | None:
    """Return the CPU in the spec of a pod, or None without a known training container."""
    return None if pod.trainer is None else PodCpu(pod.trainer.request, pod.trainer.limit)


def requested_of(pod: Pod, state: CpuState) -> PodCpu | None:
    """Return the recorded CPU that the user wrote for a pod, or None without a record."""
    return state.requested_of(pod.replica.type, pod.replica.index) if pod.replica else None


def with_sizes(
    state: CpuState,
    sizes: Iterable[tuple[Pod, CpuSize]],
    *,
    policies: frozenset[str],
    pods: Iterable[Pod] = (),
) -> CpuState:
    """Return the state to write before the new sizes of pods.

    A write may be lost with the controller, or take effect although its response was lost. So the
    present CPU of a pod and the CPU of earlier attempts also count as written by kfext.
    `policies`: the policies that set any CPU which kfext wrote. `pods`: all pods of the job.
    """
    sizes = tuple(sizes)
    types = {pod.replica.type for pod, _ in sizes if pod.replica}
    requested, written = dict(state.requested), dict(state.written)
    for pod in (*(pod for pod, _ in sizes), *pods):
        # Until kfext resizes the first pod of a type, its pods have the user's CPU.
        cpu = cpu_of(pod)
        if cpu is None or pod.replica is None or pod.replica.type in state.requested:
            continue
        if pod.replica.type in types and cpu != requested.setdefault(pod.replica.type, cpu):
            requested[_name(pod)] = cpu
    for pod, size in sizes:
        cpu = cpu_of(pod)
        if cpu is None or pod.replica is None:
            continue
        present = () if owner_of(pod, state) is Owner.USER else (cpu,)
        request, limit = size.request, size.limit
        new = PodCpu(cpu.request if request is None else request, limit or cpu.limit)
        by_kfext = dict.fromkeys((new, *present, *_written(pod, state)))
        written[_name(pod)] = tuple(by_kfext)[:REMEMBERED]
    return replace(state, requested=requested, written=written, by=policies)


def last_written(pod: Pod, state: CpuState) -> PodCpu | None:
    """Return the last CPU that kfext wrote, or was about to write, for a pod, or None."""
    return next(iter(_written(pod, state)), None)


def _written(pod: Pod, state: CpuState) -> tuple[PodCpu, ...]:
    return state.written_of(pod.replica.type, pod.replica.index) if pod.replica else ()


def _name(pod: Pod) -> str:
    return f"{pod.replica.type}-{pod.replica.index}" if pod.replica else ""


_INFEASIBLE = "Infeasible"


def due_restore(
    job: JobSignal,
    signals: Signals,
    *,
    pods: Sequence[Pod],
    state: CpuState,
    observed: Mapping[str, PodCpu],
    chosen: Mapping[str, PolicyChoice],
    undo: tuple[str, Verdict] | None,
) -> Proposal | None:
    """Return the proposal to restore the user's CPU of a job now, or None.

    `chosen`: the policies that the user and the administrator allow. After a change by another
        client, the proposal only disables them.
    `observed`: the last CPU written by kfext, by uid of the pods on which it was observed.
    `undo`: the policy of an incomplete change, and why it is incomplete.
    """
    changed = next(
        (pod for pod in pods if changed_by_others(pod, state, observed=observed.get(pod.uid))), None
    )
    if changed is not None and chosen and not chosen.keys() <= state.disabled.keys():
        reason = f"another client changed the CPU of pod {changed.name}; kfext leaves it unchanged"
        return restore_proposal("", job, reason=reason, disabled=chosen)
    if undo is not None:
        policy, why = undo
        reason = f"not all CPU was set: {why.message or why.reason}"
        disabled = [policy] if why.reason == _INFEASIBLE else []
        if (restore := restore_proposal("", job, reason=reason, disabled=disabled)) is not None:
            return restore
    reason = _why_restore(job, signals, state)
    return restore_proposal("", job, reason=reason) if reason else None


def _why_restore(job: JobSignal, signals: Signals, state: CpuState) -> str:
    """Return the reason to restore the user's CPU of a job, other than a fault, or empty."""
    if not job.whole and job.resized and any(pod.qos is QoS.GUARANTEED for pod in job.pods):
        # A new pod may need CPU that was shifted from it to other pods of the job.
        return "a pod of the job does not run, and needs the CPU that it requests"
    allowed = {name for name, choice in job.policies.items() if choice.mode is Mode.ACT}
    acting = allowed - state.disabled.keys()
    if job.resized and not state.by <= acting:
        return f"{' and '.join(sorted(state.by - acting))} may no longer change the job"
    for node in job.nodes:
        if signals.nodes[node].awaited and any(pod.extra > 0 for pod in job.on(node)):
            return f"another pod needs the free CPU of {node}"
    return ""
