"""What a policy is: a name, its parameters, and a function from signals to proposals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kfext.core.companion.proposal import Proposal
from kfext.core.companion.signals import JobSignal, Signals
from kfext.model.policy import PolicyChoice
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Shown:
    """One condition of a job that has opted in to a policy.

    `holds`: whether kfext gave it something else than the user wrote: CPU limits, or a size.
    `verdict`: what was done last, what would be done, or why nothing is; its reason is one of
        kfext.names.REASONS_RESIZED or REASONS_SCALED.
    """

    holds: bool
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Advice:
    """What a policy proposes; `stood_down`: by uid, why it leaves a job alone, as a sentence."""

    proposals: tuple[Proposal, ...] = ()
    stood_down: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy; `name` is its key in `spec.companion` of a TrainingPolicy.

    `parameters`: its constants with their defaults.
    `propose`: what it would do now. It keeps nothing: equal signals get equal advice.
    """

    name: str
    parameters: Mapping[str, float]
    propose: Callable[[Signals], Advice]

    def of(self, job: JobSignal, parameter: str) -> float:
        """Return a parameter as it holds for a job."""
        chosen = job.policies.get(self.name, PolicyChoice()).parameters
        return chosen.get(parameter, self.parameters[parameter])

    def takes(self, job: JobSignal) -> bool:
        """Return whether the policy may look at a job."""
        return self.name in job.policies and self.name not in job.rests

    def willing(
        self, signals: Signals, why_not: Callable[[JobSignal], str | None]
    ) -> tuple[list[JobSignal], dict[str, str]]:
        """Return the jobs that the policy takes, and by uid why it leaves others alone."""
        watched = [job for job in signals.jobs if self.takes(job)]
        stood_down = {job.uid: why for job in watched if (why := why_not(job))}
        return [job for job in watched if job.uid not in stood_down], stood_down
