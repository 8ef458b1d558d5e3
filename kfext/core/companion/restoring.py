"""When what the user wrote is restored although no policy proposes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kfext.core.companion.owned import changed_by_others
from kfext.core.companion.proposal import Proposal, give_back
from kfext.core.companion.signals import JobSignal, Signals
from kfext.model.cpu_state import CpuState
from kfext.model.pod import Pod
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.qos import QoS
from kfext.model.verdict import Verdict

_INFEASIBLE = "Infeasible"
_BY_KFEXT = ""
UNMEASURED_SECONDS = 300.0
"""How long limits are kept of a job of which a pod is missing, or its CPU use is not known."""


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
    """Return what is to be restored of a job, None if nothing is.

    `seen`: by the uids of pods, the last limits of ours that they were seen to have. `chosen`: the
    policies that the user and the administrator allow. `undo`: a policy whose sizes were not all
    written or set, and why. `unmeasured`: for how many seconds the CPU use of all its pods has not
    been known.
    """
    changed = next(
        (pod for pod in pods if changed_by_others(pod, state, seen=seen.get(pod.uid))), None
    )
    if changed is not None and chosen and not chosen.keys() <= state.rests.keys():
        reason = f"the CPU of pod {changed.name} was changed by somebody else: that is the new wish"
        return _back(job, signals, reason, rests=dict.fromkeys(chosen, reason))
    if undo is not None:
        policy, why = undo
        reason = f"not all CPU limits were set: {why.message or why.reason}"
        rests = {policy: reason} if why.reason == _INFEASIBLE else {}
        back = _back(job, signals, reason, rests=rests)
        if back is not None:
            return back
    if not job.whole and any(pod.qos is QoS.GUARANTEED for pod in job.pods):
        # What others of the job have beyond their requests may be what a new pod needs to start.
        reason = "a pod of the job does not run, and needs what it requests"
        back = _back(job, signals, reason)
        if back is not None:
            return back
    allowed = {name for name, one in job.policies.items() if one.mode is Mode.ACT}
    acting = allowed - state.rests.keys()
    if is_resized(job, signals) and not state.by <= acting:
        gone = sorted(state.by - acting)
        return _back(job, signals, f"{' and '.join(gone)} may not act on the job any more")
    if is_resized(job, signals) and unmeasured >= UNMEASURED_SECONDS:
        # Nothing would raise its limits when its neighbours end, or end what it loses by them.
        reason = f"the CPU use of all its pods has not been known for {UNMEASURED_SECONDS:g} s"
        return _back(job, signals, reason)
    return None


def is_resized(job: JobSignal, signals: Signals) -> bool:
    """Return whether pods of a job have other limits than the user's."""
    return any(pod.limit is not None and pod.limit != signals.open_limit(pod) for pod in job.pods)


def _back(
    job: JobSignal, signals: Signals, reason: str, *, rests: Mapping[str, str] | None = None
) -> Restoring | None:
    proposal = give_back(_BY_KFEXT, job, signals, reason=reason, rests=bool(rests))
    return None if proposal is None else Restoring(proposal, rests or {})
