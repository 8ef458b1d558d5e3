"""The quotas of each namespace, and the pods of started jobs that are not charged yet."""

from collections import Counter
from collections.abc import Iterator

from kfext.core.queue.priority import Classes, default_class
from kfext.core.queue.quota import QuotaView, demand
from kfext.model.charge import PodCharge
from kfext.model.quantity import CPU
from kfext.model.quota import LimitRange, Quota
from kfext.names import REASON_QUOTA
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob


class Quotas:
    """ResourceQuotas and LimitRanges as last seen.

    A larger quota counts from the next call of `offer`, like free capacity on the ledger. Nothing
    is stored for a namespace without quotas and LimitRanges.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._quotas: dict[str, dict[str, Quota]] = {}
        self._ranges: Counter[str] = Counter()
        self._changes: dict[str, int] = {}
        self._withheld: dict[str, dict[str, Quota]] = {}
        self._last_change = 0
        cluster.claim_tracker.limited = self._quotas.keys()

    def observe_quota(self, old: Quota | None, new: Quota | None) -> None:
        """Record the present version of a quota; `new` is None when the quota is gone."""
        if old is not None:
            quotas = self._quotas.pop(old.namespace, {})
            quotas.pop(old.name, None)
            self._quotas |= {old.namespace: quotas} if quotas else {}
        if new is not None:
            self._quotas.setdefault(new.namespace, {})[new.name] = new
        if old is not None and (new is None or _may_admit_more(old, new)):
            withheld = self._withheld.setdefault(old.namespace, {})
            withheld[old.name] = old.tightened(withheld.get(old.name))
        if old is None or new is None or _may_admit_more(old, new):
            self._count_change(old or new)

    def observe_limit_range(self, old: LimitRange | None, new: LimitRange | None) -> None:
        """Record the present version of a LimitRange; `new` is None when it is gone."""
        if new is not None:
            self._ranges[new.namespace] += 1
        if old is not None:
            self._ranges[old.namespace] -= 1
            if self._ranges[old.namespace] <= 0:
                del self._ranges[old.namespace]
        self._count_change(old or new)

    def _count_change(self, changed: Quota | LimitRange | None) -> None:
        if changed is None:
            return
        self._last_change += 1
        self._changes[changed.namespace] = self._last_change
        if changed.namespace not in self._quotas and changed.namespace not in self._ranges:
            del self._changes[changed.namespace]
            self._withheld.pop(changed.namespace, None)
        self._cluster.mark_queue(changed.namespace, stopped_by=REASON_QUOTA)

    def cpu_headroom(self, namespace: str) -> int | None:
        """Return the CPU requests that the quotas of a namespace still admit; None means no limit.

        A tenth of each quota stays free for new pods.
        """
        free = [
            quota.hard[key] - quota.hard[key] // 10 - quota.used.get(key, 0)
            for quota in self._quotas.get(namespace, {}).values()
            for key in (CPU, f"requests.{CPU}")
            if key in quota.hard
        ]
        return min(free, default=None)

    def offer(self) -> None:
        """Let the larger quotas count."""
        self._withheld.clear()

    def changes(self, namespace: str) -> int:
        """Return the number of the last change that may end a refusal in a namespace, else 0."""
        return self._changes.get(namespace, 0)

    def all(self) -> tuple[Quota, ...]:
        """Return every quota."""
        return tuple(quota for quotas in self._quotas.values() for quota in quotas.values())

    def limit_ranges(self) -> frozenset[str]:
        """Return the namespaces that have a LimitRange."""
        return frozenset(self._ranges)

    def view_of(self, tracked: TrackedJob, classes: Classes) -> QuotaView:
        """Return the quotas that apply to a job."""
        namespace = tracked.job.namespace
        quotas = self._quotas.get(namespace)
        withheld = self._withheld.get(namespace, {})
        if not quotas:
            return QuotaView()
        return QuotaView(
            quotas=tuple(quota.tightened(withheld.get(name)) for name, quota in quotas.items()),
            pending=self._pending(namespace, excluding=tracked),
            sharing=self._sharing(namespace),
            default_class=default_class(classes).name,
            defaulted=namespace in self._ranges,
        )

    def _pending(self, namespace: str, *, excluding: TrackedJob) -> Counter[PodCharge]:
        """Count, by charge, the pods of a namespace's jobs that the operator still has to create.

        A job that is stopped for a move will start again, so its pods count too.
        """
        total: Counter[PodCharge] = Counter()
        for uid in {*self._cluster.backlog.jobs(), *self._moving_jobs()}:
            tracked = self._cluster.jobs[uid]
            if tracked.job.namespace == namespace and tracked is not excluding:
                total += demand(tracked.job, self._cluster.pods(uid))
        return total

    def _moving_jobs(self) -> Iterator[str]:
        for uid in self._cluster.holds.holders():
            tracked = self._cluster.jobs.get(uid)
            if tracked is not None and tracked.job.suspend and tracked.state.move.source:
                yield uid

    def _sharing(self, namespace: str) -> Counter[PodCharge]:
        """Count, by charge, the pods of a namespace that have shares of GPUs."""
        total: Counter[PodCharge] = Counter()
        for uid in self._cluster.claim_tracker.cards.demand.by_job:
            tracked = self._cluster.jobs.get(uid)
            if tracked is not None and tracked.job.namespace == namespace:
                groups = {group.type.lower(): group for group in tracked.job.groups}
                pods = self._cluster.pods(uid)
                types = (pod.replica.type for pod in pods if pod.replica and not pod.finished)
                total.update(groups[type_].charge for type_ in types if type_ in groups)
        return total


def _may_admit_more(old: Quota, new: Quota) -> bool:
    """Return whether a changed quota may admit more pods than the old quota."""
    if old.rules != new.rules or old.hard != new.hard:
        return True
    return any(new.used.get(key, 0) < number for key, number in old.used.items())
