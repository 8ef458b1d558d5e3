"""The terms of a pod that kube-scheduler judges and kfext does not model, in words.

kube-scheduler refuses a pin to a node that such a term excludes, so pods with such terms are not
pinned. Preferred terms exclude no node and do not count. Source: kubernetes
pkg/scheduler/framework/plugins: interpodaffinity, podtopologyspread, dynamicresources,
gangscheduling, volumerestrictions, nodevolumelimits.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kfext.model.gang_terms import AFFINITY, ANTI_AFFINITY, affinity, anti_affinity
from kfext.model.tolerant import mapping, sequence

JUDGED_VOLUMES = (
    "ephemeral",
    "awsElasticBlockStore",
    "azureDisk",
    "cinder",
    "gcePersistentDisk",
    "iscsi",
    "portworxVolume",
    "rbd",
    "vsphereVolume",
)
"""The types of volumes, besides claims, that may exclude a node: disks for a single node or pod, or
with a limited number per node."""


def unmodelled(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the terms of a pod spec that only kube-scheduler understands. Never raises."""
    return tuple(dict.fromkeys(_terms(spec)))


def _terms(spec: Mapping[str, Any]) -> Iterator[str]:
    if affinity(spec) is None:
        yield AFFINITY
    if anti_affinity(spec) is None:
        yield ANTI_AFFINITY
    for spread in map(mapping, sequence(spec.get("topologySpreadConstraints"))):
        if spread.get("whenUnsatisfiable") != "ScheduleAnyway":
            yield "topologySpreadConstraints with DoNotSchedule"
    # kube-scheduler's own gangs: workloadRef in Kubernetes 1.35, schedulingGroup in later versions.
    for field in ("resourceClaims", "workloadRef", "schedulingGroup"):
        if spec.get(field):
            yield field
    for volume in map(mapping, sequence(spec.get("volumes"))):
        yield from (f"a volume of type {type_}" for type_ in JUDGED_VOLUMES if volume.get(type_))
