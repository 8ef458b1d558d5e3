"""The settings of a job, from the present namespaces and policies."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kfext.core.lifecycle.network import host_network_request
from kfext.core.lifecycle.situation import HostNetworkRequest
from kfext.core.settings.resolve import settings_of
from kfext.core.settings.table import Settings
from kfext.core.settings.values import HOST
from kfext.model.job import TrainingJob
from kfext.model.namespace import Namespace
from kfext.model.network_policy import NetworkPolicy
from kfext.model.policy import TrainingPolicy
from kfext.state.tracked_job import TrackedJob


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings of a job, and its request for the host network, if any."""

    settings: Settings
    host_network: HostNetworkRequest | None


_Sources = tuple[int, Namespace | None, Mapping[str, NetworkPolicy] | None]
"""The version of the TrainingPolicies, the namespace, and its network policies by name."""


class SettingsSource:
    """Namespaces and policies as last seen.

    `opted` is called with the name of a namespace that was opted in or out.
    """

    def __init__(self) -> None:
        self.opted: Callable[[str], None] = lambda namespace: None
        self._namespaces: dict[str, Namespace] = {}
        self._policies: dict[str, TrainingPolicy] = {}
        self._version = 0
        self._network_policies: dict[str, Mapping[str, NetworkPolicy]] = {}
        self._resolved: dict[str, tuple[_Sources, TrainingJob, JobSettings]] = {}

    def observe_namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        """Record the present version of a namespace; `new` is None when it is gone."""
        name = new.name if new is not None else old.name if old is not None else ""
        before = self._namespaces.pop(name, None)
        if new is not None:
            self._namespaces[name] = new
        if bool(before and before.managed) != self.is_managed(name):
            self.opted(name)

    def observe_network_policy(self, old: NetworkPolicy | None, new: NetworkPolicy | None) -> None:
        """Record the present version of a network policy; `new` is None when it is gone."""
        seen = new or old
        if seen is None:
            return
        # A new mapping shows `of_tracked` that settings from the old mapping are outdated.
        by_name = dict(self._network_policies.pop(seen.namespace, {}))
        by_name.pop(seen.name, None)
        if new is not None:
            by_name[new.name] = new
        if by_name:
            self._network_policies[seen.namespace] = by_name

    def observe_policy(self, policy: TrainingPolicy) -> None:
        """Record the present version of a policy."""
        self._version += 1
        self._policies[policy.name] = policy

    def forget_policy(self, name: str) -> None:
        """Forget a policy that is gone."""
        self._version += 1
        self._policies.pop(name, None)

    def is_managed(self, namespace: str) -> bool:
        """Return whether a namespace is opted in."""
        seen = self._namespaces.get(namespace)
        return seen is not None and seen.managed

    def namespaces(self) -> dict[str, Namespace]:
        """Return all namespaces by name."""
        return dict(self._namespaces)

    def network_policies(self) -> tuple[NetworkPolicy, ...]:
        """Return all network policies."""
        policies = self._network_policies.values()
        return tuple(policy for by_name in policies for policy in by_name.values())

    def policies(self) -> Iterable[TrainingPolicy]:
        """Return all policies."""
        return self._policies.values()

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        self._resolved.pop(uid, None)

    def of_tracked(self, tracked: TrackedJob) -> JobSettings:
        """Return the settings of a job, resolved again only if their sources have changed."""
        job = tracked.job
        resolved = self._resolved.get(job.uid)
        sources = self._sources(job.namespace)
        if resolved is None or resolved[0] != sources or resolved[1] is not job:
            resolved = self._resolved[job.uid] = (sources, job, self.of(job))
        return resolved[2]

    def _sources(self, namespace: str) -> _Sources:
        """Return the sources of the settings of jobs in a namespace."""
        seen, network = self._namespaces.get(namespace), self._network_policies.get(namespace)
        return self._version, seen, network

    def of(self, job: TrainingJob) -> JobSettings:
        """Return the present settings of a job."""
        namespace = self._namespaces.get(job.namespace, Namespace(job.namespace))
        settings = settings_of(job, namespace, self._policies.values())
        if settings.network != HOST:
            return JobSettings(settings, None)
        request = host_network_request(
            job,
            settings,
            namespace_labels=namespace.labels,
            network_policies=self._network_policies.get(job.namespace, {}).values(),
        )
        return JobSettings(settings, request)
