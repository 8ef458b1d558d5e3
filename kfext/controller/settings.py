"""The settings that hold for a job, from what namespaces and policies say now."""

from collections.abc import Iterable
from dataclasses import dataclass

from kfext.core.settings import resolve
from kfext.core.validate import Range
from kfext.model.job import TrainingJob
from kfext.model.namespace import Namespace
from kfext.model.policy import Placement, TrainingPolicy, policy_for
from kfext.names import MANAGED


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What of the settings and the policy decides placement.

    `invalid` says what an edit spoilt on the job after its admission, empty if nothing.
    """

    colocation: str
    elastic: Range | None
    placement: Placement
    managed: bool
    invalid: str = ""


class SettingsSource:
    """Namespaces and policies as last seen; `version` counts what changed."""

    def __init__(self) -> None:
        self.version = 0
        self._namespaces: dict[str, Namespace] = {}
        self._policies: dict[str, TrainingPolicy] = {}

    def observe_namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        """Take in a namespace as it stands; None for `new` when it is gone."""
        self.version += 1
        if new is not None:
            self._namespaces[new.name] = new
        elif old is not None:
            self._namespaces.pop(old.name, None)

    def observe_policy(self, policy: TrainingPolicy) -> None:
        """Take in a policy as it stands."""
        self.version += 1
        self._policies[policy.name] = policy

    def forget_policy(self, name: str) -> None:
        """Take in that a policy is gone."""
        self.version += 1
        self._policies.pop(name, None)

    def policies(self) -> Iterable[TrainingPolicy]:
        """Return all policies."""
        return self._policies.values()

    def of(self, job: TrainingJob) -> JobSettings:
        """Return what holds for a job now."""
        namespace = self._namespaces.get(job.namespace, Namespace(job.namespace))
        policy = policy_for(self._policies.values(), namespace.labels)
        settings = resolve(
            job.annotations, namespace.annotations, policy, last_good=job.template_settings
        )
        return JobSettings(
            colocation=settings.colocation,
            elastic=settings.elastic,
            placement=policy.placement,
            managed=namespace.labels.get(MANAGED) == "true",
            invalid="; ".join(str(error) for error in settings.errors),
        )
