"""A proposal that is being carried out: one stage of sizes after the other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kfext.core.companion.proposal import Proposal, Rank, Stage
from kfext.core.companion.trial import Trial
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict

KUBELET_SECONDS = 60.0
"""How long the kubelet may take to set the limits of a stage."""
MEASURE_SECONDS = 180.0
"""How long new measurements are waited for."""
MEASUREMENTS = 2
"""How often the use must be measured anew: the first window may have begun before the change."""


class Phase(Enum):
    """What an operation waits for: the API server, the kubelets, or new measurements."""

    WRITING = "writing"
    SETTING = "setting"
    MEASURING = "measuring"


@dataclass(slots=True)
class Operation:
    """A proposal and how far it is. `since`: when it came into its phase, monotonic.

    `trial`: what begins once all is written. `rests`: the policies that leave the job alone from
        then on, and why. `by`: the policies to which the sizes are due. `undo`: what it is to
        restore, and why, if that was not a proposal. `measured`: how often each pod had been
        measured when all was set.
    """

    proposal: Proposal
    trial: Trial | None = None
    rests: Mapping[str, str] = field(default_factory=dict)
    by: frozenset[str] = frozenset()
    undo: tuple[str, Verdict] | None = None
    stage: int = 0
    phase: Phase = Phase.WRITING
    since: float = 0.0
    measured: Mapping[str, int] = field(default_factory=dict)

    @property
    def sizes(self) -> Stage:
        """The sizes of its present stage."""
        stages = self.proposal.stages
        return stages[self.stage] if self.stage < len(stages) else ()

    @property
    def restores(self) -> bool:
        """Whether it gives back what was taken."""
        return self.proposal.rank is Rank.RESTORE

    @property
    def writing(self) -> bool:
        """Whether the step of its present stage is to be written, or is being."""
        return self.phase is Phase.WRITING

    @property
    def is_set(self) -> bool:
        """Whether the kubelets have set all sizes, and only new measurements are waited for."""
        return self.phase is Phase.MEASURING

    @property
    def last(self) -> bool:
        """Whether no stage follows."""
        return self.stage + 1 >= len(self.proposal.stages)


def why_not_set(operation: Operation, pods: Iterable[Pod], *, now: float) -> Verdict | None:
    """Return why the kubelets will not set the sizes of a stage, None while they may."""
    sizes = {size.pod for size in operation.sizes}
    for pod in pods:
        if pod.uid in sizes and pod.resize_problem is not None:
            return pod.resize_problem
    if now - operation.since >= KUBELET_SECONDS:
        message = f"the kubelet has not set the CPU limits in {KUBELET_SECONDS:g} s"
        return Verdict("NotSet", message)
    return None


def all_set(operation: Operation, pods: Iterable[Pod]) -> bool:
    """Return whether the kubelets have set the sizes of a stage; a pod that has gone needs none."""
    wanted = {size.pod: size.limit for size in operation.sizes}
    return all(
        pod.trainer is not None and pod.trainer.given == wanted[pod.uid]
        for pod in pods
        if pod.uid in wanted
    )
