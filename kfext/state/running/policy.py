"""A policy: its opt-in, its parameters and its proposals."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kfext.core.settings.table import Settings
from kfext.model.policy import Mode, PolicyChoice
from kfext.model.verdict import Verdict
from kfext.state.running.proposal import Proposal
from kfext.state.running.signals import JobSignal, Signals


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in the TrainingPlan of a job that opts in to at least one of its policies.

    `action`: the verb that names the change in events.
    `refused`: the reason after a refusal by the API server; it is also the reason of an event.
    `reasons`: all reasons that the condition may have.
    """

    type: str
    action: str
    refused: str
    reasons: frozenset[str]


@dataclass(frozen=True, slots=True)
class ConditionStatus:
    """The status, reason and message of a condition.

    `holds`: whether the job now has a value that kfext wrote, such as a CPU limit; None means
        unknown.
    `verdict`: the last change, the proposal of a dry run, or why nothing changes.
    """

    holds: bool | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Advice:
    """The proposals of a policy; `ineligible`: by uid, a sentence on why a job is ineligible."""

    proposals: tuple[Proposal, ...] = ()
    ineligible: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number of a policy that an administrator may set.

    `effect`: its meaning, in Markdown. `type`: the type of its value in the CRD's schema.
    """

    default: float
    minimum: float
    maximum: float
    effect: str
    type: str = "number"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of the companion.

    `name`: its key in `spec.companion` of a TrainingPolicy. `effect`: its effect, in Markdown.
    `condition`: the condition that shows its changes; the executor with this condition makes them.
    `max_mode` returns the highest mode that the settings of a job allow.
    `evidence`: a table row of docs/reports with its gain, or the file of a test that needs it.
    `parameters`: its parameters, by name.
    `without_act`: a sentence on what happens in the modes `observe` and `off`, or empty.
    """

    name: str
    effect: str
    condition: Condition
    max_mode: Callable[[Settings], Mode]
    evidence: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    without_act: str = field(default="", kw_only=True)

    def effective(self, settings: Settings) -> PolicyChoice:
        """Return the mode and the parameters of the policy for a job."""
        return settings.choice(self.name, self.max_mode(settings))

    def parameter(self, settings: Settings, name: str) -> float:
        """Return the value of a parameter for a job."""
        chosen = settings.companion.get(self.name, PolicyChoice()).parameters
        return chosen.get(name, self.parameters[name].default)

    def applies_to(self, job: JobSignal) -> bool:
        """Return whether the policy may decide on a job."""
        return self.name in job.policies and self.name not in job.disabled


@dataclass(frozen=True, slots=True)
class SignalPolicy(Policy):
    """A policy that decides from signals alone.

    `propose` returns the advice; it keeps no state, so equal signals lead to equal advice.
    `interval`: the seconds between two decisions on the same job.
    """

    propose: Callable[[Signals], Advice] = field(kw_only=True)
    interval: float = field(kw_only=True)

    def eligible_jobs(
        self, signals: Signals, why_not: Callable[[JobSignal], str | None]
    ) -> tuple[list[JobSignal], dict[str, str]]:
        """Return the jobs that the policy may change, and why the others are ineligible, by uid."""
        jobs = [job for job in signals.jobs if self.applies_to(job)]
        ineligible = {job.uid: why for job in jobs if (why := why_not(job))}
        return [job for job in jobs if job.uid not in ineligible], ineligible


def chosen_policies(policies: Iterable[Policy], settings: Settings) -> dict[str, PolicyChoice]:
    """Return the modes and parameters of the policies that are not off for a job, by name."""
    choices = {policy.name: policy.effective(settings) for policy in policies}
    return {name: choice for name, choice in choices.items() if choice.mode is not Mode.OFF}
