"""The usage of the cluster by namespaces, and the order of waiting jobs that follows from it.

A namespace's fraction of the cluster is its dominant share: the largest of its fractions of the
cluster's CPU, memory and each device type (Ghodsi et al., DRF, NSDI 2011). Usage is this fraction
summed over time, in cluster-seconds, and decays with a half-life, as in HTCondor. The look-ahead is
kfext's own: it adds the capacity that the namespace of a job holds and the requests of the
namespace's earlier jobs, so that namespaces alternate within one round.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from kfext.model.gpu import SLOT, UNITS, resource_of
from kfext.model.job import TrainingJob
from kfext.model.quantity import Resources
from kfext.model.tolerant import json_object, mapping
from kfext.names import NATIVE_GPU

_LOOK_AHEAD = 0.25
"""Held capacity and earlier requests count as usage: times this fraction of `full_usage`."""


def full_usage(half_life: float) -> float:
    """Return the usage of a namespace that always holds the whole cluster, in cluster-seconds."""
    return half_life / math.log(2)


def usage_after(seconds: float, used: float, *, held: float, half_life: float) -> float:
    """Return the usage `used` after some seconds in which the fraction `held` was held."""
    most = full_usage(half_life)
    return used - math.expm1(-seconds / most) * (held * most - used)


def dominant_share(requests: Iterable[Resources], capacity: Mapping[str, float]) -> float:
    """Return the dominant share of all these requests together, at most 1.

    `capacity`: the capacity of the cluster by resource; other resources are ignored.
    """
    total: dict[str, float] = {}
    for resources in requests:
        for resource, number in resources.items():
            name, unit = (NATIVE_GPU, UNITS) if resource.startswith(SLOT) else (resource, 1)
            total[name] = total.get(name, 0.0) + number / unit
    shares = (number / capacity[name] for name, number in total.items() if capacity.get(name))
    return min(max(shares, default=0.0), 1.0)


def requests_of(job: TrainingJob) -> list[Resources]:
    """Return the requests of the pods of a job, including its GPU shares."""
    shares = ((group.share, group.replicas) for group in job.groups)
    # Any slot will do: `dominant_share` counts all slots as GPUs.
    cards = [{resource_of(0): share.units * number} for share, number in shares if share]
    return [job.requests, *cards]


@dataclass(slots=True)
class NamespaceUsage:
    """The usage of a namespace.

    `used`: its usage in cluster-seconds.
    `weight`: its weight; usage is divided by it.
    `held`: the fraction of the cluster that it holds now.
    `waiting`: the number of its waiting jobs.
    """

    used: float = 0.0
    weight: float = 1.0
    held: float = 0.0
    waiting: float = 0

    def projected(self, ahead: float, *, half_life: float) -> float:
        """Return the usage that orders a waiting job: the lowest is first, and weight 0 is last.

        `ahead`: the fraction of the cluster that earlier jobs of its namespace request.
        """
        counted = _LOOK_AHEAD * full_usage(half_life) * (self.held + ahead)
        return (self.used + counted) / self.weight if self.weight else math.inf


@dataclass(slots=True)
class UsageRecord:
    """The usage of all namespaces.

    `at`: when it was last updated, in epoch seconds; 0.0 before the first update.
    """

    at: float = 0.0
    half_life: float = 1.0
    namespaces: dict[str, NamespaceUsage] = field(default_factory=dict)

    def rescale(self, half_life: float) -> None:
        """Change the half-life; each namespace keeps its mean, capped at the whole cluster."""
        factor, self.half_life = half_life / self.half_life, half_life
        for usage in self.namespaces.values():
            usage.used = min(usage.used * factor, full_usage(half_life))

    def mean(self, namespace: str) -> float:
        """Return the mean fraction of the cluster that a namespace held, weighted towards now."""
        return self.namespaces[namespace].used / full_usage(self.half_life)

    def encode(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self))


def decode_usage(written: str) -> UsageRecord:
    """Return the record in a text; missing and malformed usage counts as 0. Never raises."""
    raw = json_object(written)
    namespaces = {
        str(name): NamespaceUsage(
            *(_number(mapping(fields).get(key)) for key in NamespaceUsage.__slots__)
        )
        for name, fields in mapping(raw.get("namespaces")).items()
    }
    half_life = max(_number(raw.get("half_life")), 1.0)
    return UsageRecord(_number(raw.get("at")), half_life, namespaces)


def _number(value: object) -> float:
    """Return a number of a record; 0.0 for anything else, such as NaN."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1e12 else 0.0
