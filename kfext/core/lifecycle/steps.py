"""The steps that the controller can carry out for a job: the vocabulary of core.lifecycle."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kfext.model.cpu_size import CpuSize
from kfext.model.gpu_share import GpuShare
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to write. `phase` is None for a job that is not ours.

    `again` is when to look again if nothing happens before, in seconds; None: only on an event.
    """

    phase: str | None
    verdict: Verdict | None = None
    again: float | None = None


@dataclass(frozen=True, slots=True)
class Unsuspend:
    """Unsuspend the job under a plan: one patch of the job.

    `network`: which network its pods get and why, None if no other was requested.
    `interfaces`: those for its traffic on the host network.
    `state`: the state to write, of a job that starts with fewer workers than the user asked for.
    """

    plan: Plan
    verdict: Verdict
    network: Verdict | None = None
    interfaces: tuple[str, ...] = ()
    state: JobState | None = None


@dataclass(frozen=True, slots=True)
class Replan:
    """Replace the plan of a job whose pods still wait behind the gate: one patch of the job.

    `network` says why its pods keep their own network, of a job that kfext did not start itself.
    """

    plan: Plan
    verdict: Verdict
    network: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """Pin each gated pod to its node and remove our gate: one patch of each pod.

    `shares`: by type in lower case, on which terms its pods have parts of GPUs.
    """

    pins: tuple[tuple[Pod, str], ...]
    shares: Mapping[str, GpuShare] = field(default_factory=dict)

    def share_of(self, pod: Pod) -> GpuShare | None:
        """Return the terms for one of the pods, None if it shares no GPU."""
        return self.shares.get(pod.replica.type) if pod.replica else None


@dataclass(frozen=True, slots=True)
class Suspend:
    """Suspend the job again and forget its plan: one patch of the job.

    `workers`: with how many it is to start again, None for as many as the user asked for.
    """

    state: JobState
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """Forget the plan of a job that somebody else has suspended: one patch of the job."""

    state: JobState


@dataclass(frozen=True, slots=True)
class DeleteUnbound:
    """Note the strike on the job, then delete pods that kube-scheduler did not bind."""

    pods: tuple[Pod, ...]
    state: JobState


@dataclass(frozen=True, slots=True)
class Release:
    """Release the job for good, then delete pinned pods that cannot be bound."""

    pods: tuple[Pod, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Ungate:
    """Remove our gate, and nothing else, from pods of a job that kfext has released."""

    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class SaveState:
    """Write only the state of the job; if it was resumed by hand, forget that we suspended it.

    `workers`: how many a job is to have that Kueue has taken over, None for as many as now.
    """

    state: JobState
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class Resize:
    """Note the sizes on the job, then resize pods in place: one patch of each.

    Without sizes only the state is written.
    """

    sizes: tuple[tuple[Pod, CpuSize], ...]
    state: JobState
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RequestCheckpoint:
    """Ask a job for a checkpoint: one patch of each pod.

    `number`: that of the request, larger than those before it; the job repeats it as its answer.
    """

    pods: tuple[Pod, ...]
    number: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Rescale:
    """Give a running job another number of workers under a new plan: one patch of the job."""

    plan: Plan
    workers: int
    state: JobState
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RestartWorkers:
    """Note on the job why, then delete pods that the operator creates again.

    It is for workers that hang since others have gone.
    """

    pods: tuple[Pod, ...]
    state: JobState
    verdict: Verdict


Step = (
    Wait
    | Unsuspend
    | Replan
    | Pin
    | Suspend
    | ForgetPlan
    | DeleteUnbound
    | Release
    | Ungate
    | SaveState
    | Resize
    | RequestCheckpoint
    | Rescale
    | RestartWorkers
)
