"""A policy: how a job opts in to it, its parameters, and what it proposes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kfext.core.settings.table import Settings
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.verdict import Verdict
from kfext.state.running.proposal import Proposal
from kfext.state.running.signals import JobSignal, Signals


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that the TrainingPlan of a job has while the job opts in to one of some policies.

    `action`: the verb for what its policies do, in events.
    `refused`: the reason when the API server refused that, which is also an event.
    `reasons`: all reasons that it may show.
    """

    type: str
    action: str
    refused: str
    reasons: frozenset[str]


@dataclass(frozen=True, slots=True)
class ConditionStatus:
    """What a condition shows.

    `holds`: whether kfext gave the job something, such as CPU limits, that its user did not write;
        None: unknown.
    `verdict`: what was done last, what would be done, or why nothing is done.
    """

    holds: bool | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Advice:
    """The proposals of a policy; `ineligible`: by uid, a sentence why it leaves a job alone."""

    proposals: tuple[Proposal, ...] = ()
    ineligible: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant of a policy that an administrator may set.

    `effect`: what it means, in Markdown. `type`: of its value in the schema.
    """

    default: float
    minimum: float
    maximum: float
    effect: str
    type: str = "number"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of the companion.

    `name`: its key in `spec.companion` of a TrainingPolicy. `effect`: what it does, in Markdown.
    `condition`: where its work is shown; the executor of this condition carries it out.
    `max_mode`: the highest mode that the settings of a job allow.
    `evidence`: a row of docs/reports on what it gains, or the file of a case that needs it.
    `parameters`: by name, the constants that an administrator may set.
    `without_act`: a sentence on what the other modes do, if they do anything.
    """

    name: str
    effect: str
    condition: Condition
    max_mode: Callable[[Settings], Mode]
    evidence: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    without_act: str = field(default="", kw_only=True)

    def effective(self, settings: Settings) -> PolicyChoice:
        """Return how the policy runs for a job."""
        return settings.choice(self.name, self.max_mode(settings))

    def parameter(self, settings: Settings, name: str) -> float:
        """Return a parameter by the settings of a job."""
        chosen = settings.companion.get(self.name, PolicyChoice()).parameters
        return chosen.get(name, self.parameters[name].default)

    def applies_to(self, job: JobSignal) -> bool:
        """Return whether the policy may decide on a job."""
        return self.name in job.policies and self.name not in job.disabled


@dataclass(frozen=True, slots=True)
class SignalPolicy(Policy):
    """A policy that decides by signals alone.

    `propose`: what the policy would do now. It keeps no state: equal signals get equal advice.
    `interval`: the seconds between two looks at a job.
    """

    propose: Callable[[Signals], Advice] = field(kw_only=True)
    interval: float = field(kw_only=True)

    def eligible_jobs(
        self, signals: Signals, why_not: Callable[[JobSignal], str | None]
    ) -> tuple[list[JobSignal], dict[str, str]]:
        """Return the jobs that the policy may change, and by uid why it leaves others alone."""
        jobs = [job for job in signals.jobs if self.applies_to(job)]
        ineligible = {job.uid: why for job in jobs if (why := why_not(job))}
        return [job for job in jobs if job.uid not in ineligible], ineligible


def chosen_policies(policies: Iterable[Policy], settings: Settings) -> dict[str, PolicyChoice]:
    """Return by name the policies that hold for a job, and how each runs."""
    choices = {policy.name: policy.effective(settings) for policy in policies}
    return {name: choice for name, choice in choices.items() if choice.mode is not Mode.OFF}
