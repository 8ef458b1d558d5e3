"""Whether the resource quotas of a namespace allow all pods of a job.

If a quota stops a gang half-way, the gang occupies nodes and never starts, so a job fits only with
enough quota for all its pods. A quota counts a pod in `used` once the pod is created, so the pods
that started jobs still lack are passed as `pending`. Source: kubernetes apiserver
pkg/admission/plugin/resourcequota CheckRequest.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kfext.model.charge import GPUS, PodCharge
from kfext.model.gpu import UNITS
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.model.quantity import amount_text
from kfext.model.quota import Quota, resource_of
from kfext.model.verdict import Verdict
from kfext.names import REASON_QUOTA

Demand = Mapping[PodCharge, int]
"""The number of pods to create, by their charge to quotas."""

NO_RAISE = -(2**40)
"""As the headroom of CPU requests: they may move between jobs, but their sum may not rise."""
_PER_REPLICA = ("services", "count/services")
"""The quota resources of the headless Service that the Training Operator creates per replica."""
_CAUSES = 3
"""The most shortages in a message."""


def demand(job: TrainingJob, pods: Iterable[Pod] = ()) -> Counter[PodCharge]:
    """Return the demand of the pods that the operator has yet to create for a job.

    `pods`: its existing pods. A terminating pod is one of them, because quotas count it until its
        deletion and its successor is only created then.
    """
    present = Counter(pod.replica.type for pod in pods if pod.replica)
    due: Counter[PodCharge] = Counter()
    for group in job.groups:
        due[group.charge] += max(group.replicas - present[group.type.lower()], 0)
    return +due


@dataclass(frozen=True, slots=True)
class QuotaView:
    """The quotas of a namespace, and its pods that they do not count yet.

    `pending`: the demand of jobs in the namespace that were started before this job.
    `sharing`: the pods there that share GPUs. Kubernetes' quotas do not count GPU shares; here they
        count as fractions of GPUs.
    `default_class`: the name of the PriorityClass of pods that name none.
    `defaulted`: whether the namespace may have a LimitRange, which adds missing requests and limits
        to pods.
    """

    quotas: tuple[Quota, ...] = ()
    pending: Demand = field(default_factory=dict)
    sharing: Demand = field(default_factory=dict)
    default_class: str = ""
    defaulted: bool = True

    def shortage(self, need: Demand, *, recreated: bool = False) -> Verdict | None:
        """Return a verdict on the quotas that would refuse a pod or Service of a job, or None.

        `need`: the demand of the job.
        `recreated`: whether the pods exist, so that `used` has them, and would be recreated.
        """
        never: list[str] = []
        for_now: list[str] = []
        for quota in sorted(self.quotas, key=lambda quota: quota.name):
            covered = self._covered(quota, need)
            if not self.defaulted:
                never += _unstated(quota, covered, total=sum(need.values()))
            usage, ahead = _usage(quota, covered), _usage(quota, self._covered(quota, self.pending))
            shared = _shared_gpus(quota, self._covered(quota, self.sharing))
            for key, wanted in sorted(usage.items()):
                hard = quota.hard[key] * _scale(key)
                used = quota.used.get(key, 0) * _scale(key) + shared[key] - recreated * wanted
                if wanted > hard:
                    never.append(_never(quota, key, wanted))
                elif used + ahead[key] + wanted > hard:
                    for_now.append(_not_now(quota, key, used=used, wanted=wanted, ahead=ahead[key]))
        shortages = [*never, *for_now]
        return Verdict(REASON_QUOTA, "; ".join(shortages[:_CAUSES])) if shortages else None

    def _covered(self, quota: Quota, demand_: Demand) -> Demand:
        return {
            charge: count
            for charge, count in demand_.items()
            if quota.covers(charge, default_class=self.default_class)
        }


def _usage(quota: Quota, demand_: Demand) -> Counter[str]:
    """Return the charge of pods and their services to the resources that the quota limits."""
    usage = _shared_gpus(quota, demand_)
    for charge, count in demand_.items():
        for key, number in charge.usage:
            if key in quota.hard:
                usage[key] += count * number * _scale(key)
        # Scopes apply to pods: a quota with a scope counts no services.
        if charge.served and not quota.rules:
            usage.update({key: count for key in _PER_REPLICA if key in quota.hard})
    return usage


def _shared_gpus(quota: Quota, demand_: Demand) -> Counter[str]:
    """Return the hundredths of GPUs that pods share, if the quota limits GPUs."""
    units = sum(charge.parts * count for charge, count in demand_.items())
    return Counter({GPUS: units} if units and GPUS in quota.hard else {})


def _scale(key: str) -> int:
    """Return the units per 1 of a quota resource: GPUs are counted in hundredths."""
    return UNITS if key == GPUS else 1


def _unstated(quota: Quota, demand_: Demand, *, total: int) -> Iterator[str]:
    limited = {key if "." in key else f"requests.{key}" for key in quota.hard}
    refused = {charge: limited.intersection(charge.unstated) for charge in demand_}
    missing = sorted(set().union(*refused.values()))
    if missing:
        count = sum(demand_[charge] for charge, names in refused.items() if names)
        yield (
            f"{count} of {total} pods have a container without {' and '.join(missing)}, which "
            f"{_named(quota)} requires of every container, so the API server refuses them"
        )


def _never(quota: Quota, key: str, wanted: int) -> str:
    return (
        f"the job needs {_number(key, wanted)} {key}, "
        f"but {_named(quota)} allows only {_number(key, quota.hard[key] * _scale(key))} in all"
    )


def _not_now(quota: Quota, key: str, *, used: int, wanted: int, ahead: int) -> str:
    hard = quota.hard[key] * _scale(key)
    promised = f", {_number(key, ahead)} promised to jobs just started" if ahead else ""
    short = used + ahead + wanted - hard
    return (
        f"{_named(quota)} allows {_number(key, hard)} {key}: {_number(key, used)} used{promised}, "
        f"the job needs {_number(key, wanted)}, {_number(key, short)} short"
    )


def _named(quota: Quota) -> str:
    return f"quota {quota.namespace}/{quota.name}"


def _number(key: str, number: int) -> str:
    resource = resource_of(key)
    if key == GPUS:
        return f"{number / UNITS:g}"
    return amount_text(resource, number).removesuffix(resource).rstrip()
