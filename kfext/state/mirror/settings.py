"""The settings of jobs, resolved from the present namespaces and policies."""

from collections.abc import Callable, Mapping

from kfext.core.lifecycle.network import host_network_request
from kfext.core.lifecycle.situation import HostNetworkRequest
from kfext.core.settings.resolve import settings_of
from kfext.core.settings.table import Settings, parsed
from kfext.core.settings.values import HOST
from kfext.model.job import TrainingJob
from kfext.model.label_selector import LabelSelector
from kfext.model.namespace import Namespace
from kfext.model.network_policy import NetworkPolicy
from kfext.model.parameters import Queueing
from kfext.model.policy import TrainingPolicy, policy_for
from kfext.names import QUEUE_WEIGHT
from kfext.state.mirror.tracked_job import TrackedJob

_Resolved = tuple[Settings, HostNetworkRequest | None]
_CacheKey = tuple[int, Namespace | None, Mapping[str, NetworkPolicy] | None]
"""The inputs of a job's settings besides the job: the number of changes of TrainingPolicies, the
namespace, and its network policies by name."""


class SettingsSource:
    """Resolves settings from namespaces and policies as last seen.

    Informers report namespaces and network policies; kopf reports TrainingPolicies.
    `namespaces`: the namespaces by name. `policies`: the TrainingPolicies by name.
    `queueing`: the queue parameters of the policy that applies to all namespaces.
    """

    def __init__(self) -> None:
        self._callbacks: list[Callable[[str], None]] = []
        self.namespaces: dict[str, Namespace] = {}
        self.policies: dict[str, TrainingPolicy] = {}
        self.queueing = Queueing()
        self._policy_changes = 0
        self._network_policies: dict[str, Mapping[str, NetworkPolicy]] = {}
        self._cache: dict[str, tuple[_CacheKey, TrainingJob, _Resolved]] = {}

    def follow(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with the name of each namespace that becomes managed or unmanaged."""
        self._callbacks.append(callback)

    def observe_namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        """Record the present version of a namespace; `new` is None when it is gone."""
        name = new.name if new is not None else old.name if old is not None else ""
        before = self.namespaces.pop(name, None)
        if new is not None:
            self.namespaces[name] = new
        if bool(before and before.managed) != self.is_managed(name):
            for callback in self._callbacks:
                callback(name)

    def observe_network_policy(self, old: NetworkPolicy | None, new: NetworkPolicy | None) -> None:
        """Record the present version of a network policy; `new` is None when it is gone."""
        seen = new or old
        if seen is None:
            return
        # The mapping is replaced, not changed: it is part of the cache key.
        by_name = dict(self._network_policies.pop(seen.namespace, {}))
        by_name.pop(seen.name, None)
        if new is not None:
            by_name[new.name] = new
        if by_name:
            self._network_policies[seen.namespace] = by_name

    def observe_policy(self, policy: TrainingPolicy) -> None:
        """Record the present version of a TrainingPolicy."""
        self.policies[policy.name] = policy
        self._count_policy_change()

    def forget_policy(self, name: str) -> None:
        """Forget a deleted TrainingPolicy."""
        self.policies.pop(name, None)
        self._count_policy_change()

    def _count_policy_change(self) -> None:
        self._policy_changes += 1
        policies = self.policies.values()
        general = (policy for policy in policies if policy.selector == LabelSelector())
        self.queueing = policy_for(general, {}).queue

    def queue_weight(self, namespace: str) -> float:
        """Return the weight of a namespace in the queue; a malformed weight counts as 1."""
        seen = self.namespaces.get(namespace, Namespace(namespace))
        (weight,) = parsed(QUEUE_WEIGHT, seen.annotations.get(QUEUE_WEIGHT)) or (1.0,)
        return float(weight)

    def is_managed(self, namespace: str) -> bool:
        """Return whether a namespace is managed."""
        seen = self.namespaces.get(namespace)
        return seen is not None and seen.managed

    def network_policies(self) -> tuple[NetworkPolicy, ...]:
        """Return all network policies."""
        policies = self._network_policies.values()
        return tuple(policy for by_name in policies for policy in by_name.values())

    def forget(self, uid: str) -> None:
        """Forget a deleted job."""
        self._cache.pop(uid, None)

    def settings_of(self, tracked: TrackedJob) -> Settings:
        """Return the settings of a job; they are resolved again only if a source has changed."""
        return self._resolve_cached(tracked)[0]

    def host_network(self, tracked: TrackedJob) -> HostNetworkRequest | None:
        """Return a job's request for the host network, or None for a job on the pod network."""
        return self._resolve_cached(tracked)[1]

    def _resolve_cached(self, tracked: TrackedJob) -> _Resolved:
        job = tracked.job
        key = self._cache_key(job.namespace)
        entry = self._cache.get(job.uid)
        if entry is None or entry[0] != key or entry[1] is not job:
            entry = self._cache[job.uid] = (key, job, self.resolve(job))
        return entry[2]

    def _cache_key(self, namespace: str) -> _CacheKey:
        seen, network = self.namespaces.get(namespace), self._network_policies.get(namespace)
        return self._policy_changes, seen, network

    def resolve(self, job: TrainingJob) -> _Resolved:
        """Return the present settings of a job, and its request for the host network, if any."""
        namespace = self.namespaces.get(job.namespace, Namespace(job.namespace))
        settings = settings_of(job, namespace, self.policies.values())
        if settings.network != HOST:
            return settings, None
        request = host_network_request(
            job,
            settings,
            namespace_labels=namespace.labels,
            network_policies=self._network_policies.get(job.namespace, {}).values(),
        )
        return settings, request
