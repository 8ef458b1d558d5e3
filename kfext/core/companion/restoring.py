"""Who set the CPU limit of a pod, and when the user's CPU is restored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from kfext.core.companion.proposal import Proposal, restore_proposal
from kfext.core.companion.signals import JobSignal, Signals
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import REMEMBERED, AskedCpu, CpuState
from kfext.model.pod import Pod
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.qos import QoS
from kfext.model.verdict import Verdict


class Owner(Enum):
    """Who set a limit: the user, kfext, or another client after kfext."""

    USER = "user"
    KFEXT = "kfext"
    OTHER = "other"


def owner_of(pod: Pod, state: CpuState) -> Owner:
    """Return who set the CPU limit of a pod. A limit that was never changed is the user's.

    A pod without a limit is new and was never resized, because a limit cannot be removed.
    """
    asked = asked_of(pod, state)
    if pod.trainer is None or asked is None or pod.trainer.limit in {None, asked.limit}:
        return Owner.USER
    return Owner.KFEXT if pod.trainer.limit in state.written.get(_name(pod), ()) else Owner.OTHER


def changed_by_others(pod: Pod, state: CpuState, *, seen: int | None) -> bool:
    """Return whether another client has changed the CPU of a pod since kfext wrote its limit.

    `seen`: the limit last seen on the pod, if kfext wrote it last. Without it, the pod may have the
    user's limit because kfext's write never arrived.
    """
    asked, cpu = asked_of(pod, state), pod.trainer
    if asked is None or cpu is None:
        return False
    written = state.written.get(_name(pod), ())
    put_back = seen is not None and cpu.limit == asked.limit != seen == last_written(pod, state)
    requests = {asked.request, *written}
    return put_back or cpu.request not in requests or owner_of(pod, state) is Owner.OTHER


def asked_of(pod: Pod, state: CpuState) -> AskedCpu | None:
    """Return the size that the user asked for, or None for a type that kfext has not recorded."""
    return state.asked_of(pod.replica.type, pod.replica.index) if pod.replica else None


def noted(
    state: CpuState,
    sizes: Iterable[tuple[Pod, CpuSize]],
    *,
    by: frozenset[str],
    pods: Iterable[Pod] = (),
) -> CpuState:
    """Return the state to write before new sizes.

    A write may be lost with the controller, or take effect although its answer was lost. So the
    present limit of a pod and the last limit that was to be written also count as kfext's.
    `by`: the policies that account for all of kfext's limits. `pods`: all pods of the job.
    """
    sizes = tuple(sizes)
    types = {pod.replica.type for pod, _ in sizes if pod.replica}
    asked, written = dict(state.asked), dict(state.written)
    for pod in (*(pod for pod, _ in sizes), *pods):
        # Until kfext resizes the first pod of a type, its pods have what the user wrote.
        if pod.trainer is None or pod.replica is None or pod.replica.type in state.asked:
            continue
        cpu = AskedCpu(pod.trainer.request, pod.trainer.limit)
        if pod.replica.type in types and cpu != asked.setdefault(pod.replica.type, cpu):
            asked[_name(pod)] = cpu
    for pod, size in sizes:
        if pod.trainer is None or pod.replica is None:
            continue
        if owner_of(pod, state) is Owner.USER:
            present: tuple[int, ...] = ()
        else:
            present = () if pod.trainer.limit is None else (pod.trainer.limit,)
        limits = dict.fromkeys((size.limit, *present, *written.get(_name(pod), ())))
        written[_name(pod)] = tuple(limits)[:REMEMBERED]
    return replace(state, asked=asked, written=written, by=by)


def last_written(pod: Pod, state: CpuState) -> int | None:
    """Return the limit that kfext last wrote for a pod, or was about to write, or None."""
    return next(iter(state.written.get(_name(pod), ())), None)


def _name(pod: Pod) -> str:
    return f"{pod.replica.type}-{pod.replica.index}" if pod.replica else ""


_INFEASIBLE = "Infeasible"
_BY_KFEXT = ""
UNMEASURED_SECONDS = 300.0
"""How long the limits of a job stay while a pod is missing or its CPU use is unknown."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """A proposal to restore sizes; `rests`: the policies that rest from then on, and why."""

    proposal: Proposal
    rests: Mapping[str, str] = field(default_factory=dict)


def restoring(
    job: JobSignal,
    signals: Signals,
    *,
    pods: Sequence[Pod],
    state: CpuState,
    seen: Mapping[str, int],
    chosen: Mapping[str, PolicyChoice],
    undo: tuple[str, Verdict] | None,
    unmeasured: float,
) -> Restoring | None:
    """Return what is to be restored of a job, or None.

    `seen`: by pod uid, the last limit of kfext's that was seen on the pod.
    `chosen`: the policies that the user and the administrator allow.
    `undo`: a policy with sizes that were not all written or set, and why.
    `unmeasured`: for how many seconds the CPU use of some pod has been unknown.
    """
    changed = next(
        (pod for pod in pods if changed_by_others(pod, state, seen=seen.get(pod.uid))), None
    )
    if changed is not None and chosen and not chosen.keys() <= state.rests.keys():
        reason = f"another client changed the CPU of pod {changed.name}: that is the new wish"
        return _back(job, signals, reason, rests=dict.fromkeys(chosen, reason))
    if undo is not None:
        policy, why = undo
        reason = f"not all CPU limits were set: {why.message or why.reason}"
        rests = {policy: reason} if why.reason == _INFEASIBLE else {}
        back = _back(job, signals, reason, rests=rests)
        if back is not None:
            return back
    if not job.whole and any(pod.qos is QoS.GUARANTEED for pod in job.pods):
        # A new pod may need the CPU that other pods of the job have beyond their requests.
        reason = "a pod of the job does not run, and needs what it requests"
        back = _back(job, signals, reason)
        if back is not None:
            return back
    allowed = {name for name, choice in job.policies.items() if choice.mode is Mode.ACT}
    acting = allowed - state.rests.keys()
    if is_resized(job, signals) and not state.by <= acting:
        gone = sorted(state.by - acting)
        return _back(job, signals, f"{' and '.join(gone)} may not act on the job any more")
    if is_resized(job, signals) and unmeasured >= UNMEASURED_SECONDS:
        # No policy would raise its limits when neighbours end, or stop what it loses to them.
        reason = f"the CPU use of all its pods has not been known for {UNMEASURED_SECONDS:g} s"
        return _back(job, signals, reason)
    return None


def is_resized(job: JobSignal, signals: Signals) -> bool:
    """Return whether pods of a job have other limits than the user's."""
    return any(pod.limit is not None and pod.limit != signals.open_limit(pod) for pod in job.pods)


def _back(
    job: JobSignal, signals: Signals, reason: str, *, rests: Mapping[str, str] | None = None
) -> Restoring | None:
    proposal = restore_proposal(_BY_KFEXT, job, signals, reason=reason, rests=bool(rests))
    return None if proposal is None else Restoring(proposal, rests or {})
