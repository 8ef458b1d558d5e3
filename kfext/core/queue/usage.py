"""The usage of the cluster by namespaces, and the order of waiting jobs that follows from it.

A part of the cluster is a dominant part: the largest of its parts of CPU, memory and each type of
device (Ghodsi et al., DRF, NSDI 2011). Usage is such parts over time, and halves in each half-life,
as in HTCondor. The look-ahead is kfext's own: it adds the capacity that the namespace of a job
holds and the requests of earlier jobs, so that namespaces alternate within one round.
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
"""Held capacity and earlier requests count as used for this part of the window."""


def window(half_life: float) -> float:
    """Return the usage of a namespace that always holds the whole cluster, in cluster-seconds."""
    return half_life / math.log(2)


def usage_after(seconds: float, used: float, *, held: float, half_life: float) -> float:
    """Return the usage after some seconds with a part `held` of the cluster."""
    most = window(half_life)
    return used - math.expm1(-seconds / most) * (held * most - used)


def part_of(requests: Iterable[Resources], capacity: Mapping[str, float]) -> float:
    """Return the part of the cluster that requests have in sum, at most 1.

    `capacity`: the capacity of the cluster, by resource that counts.
    """
    total: dict[str, float] = {}
    for each in requests:
        for resource, number in each.items():
            name, unit = (NATIVE_GPU, UNITS) if resource.startswith(SLOT) else (resource, 1)
            total[name] = total.get(name, 0.0) + number / unit
    parts = (number / capacity[name] for name, number in total.items() if capacity.get(name))
    return min(max(parts, default=0.0), 1.0)


def requests_of(job: TrainingJob) -> list[Resources]:
    """Return the requests of the pods of a job, including its GPU shares."""
    shares = ((group.share, group.replicas) for group in job.groups)
    parts = [{resource_of(0): share.units * number} for share, number in shares if share]
    return [job.requests, *parts]


@dataclass(slots=True)
class NamespaceUsage:
    """The usage of a namespace in cluster-seconds, the part that it holds, and its waiting jobs."""

    used: float = 0.0
    weight: float = 1.0
    held: float = 0.0
    waiting: float = 0

    def projected(self, ahead: float, *, half_life: float) -> float:
        """Return the usage that orders a waiting job: the least is first, and weight 0 is last.

        `ahead`: the part of the cluster that earlier jobs of its namespace request.
        """
        counted = _LOOK_AHEAD * window(half_life) * (self.held + ahead)
        return (self.used + counted) / self.weight if self.weight else math.inf


@dataclass(slots=True)
class UsageRecord:
    """The usage of all namespaces at a time in epoch seconds, or 0.0 without a time."""

    at: float = 0.0
    half_life: float = 1.0
    namespaces: dict[str, NamespaceUsage] = field(default_factory=dict)

    def rescale(self, half_life: float) -> None:
        """Change the half-life; the mean of each namespace stays, at most the whole cluster."""
        factor, self.half_life = half_life / self.half_life, half_life
        for usage in self.namespaces.values():
            usage.used = min(usage.used * factor, window(half_life))

    def mean(self, namespace: str) -> float:
        """Return the mean part of the cluster that a namespace held, weighted to recent times."""
        return self.namespaces[namespace].used / window(self.half_life)

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
