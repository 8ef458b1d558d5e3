"""Watches the gangs of a namespace, and records which were partly bound, and for how long.

A gang is *half* while some but not all of its planned pods are bound, for more than GRACE_SECONDS,
and it has never been whole. The planned pods are the pods in its current spec: an elastic job may
start with fewer pods than were submitted. Only jobs that kfext has planned count; jobs that it
released before they had a pod are counted separately.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from e2e.harness.jobs import PLURAL, jobs_path, size, suspended
from e2e.harness.kube import Kube, Object
from kfext import names

GRACE_SECONDS = 5.0
INTERVAL_SECONDS = 0.5


@dataclass(slots=True)
class Gang:
    """The observations of one job. Times are in seconds since the watch began.

    `planned`: whether kfext ever planned it. `apart`: whether it was released while no pod was
        bound: then plain Kubernetes alone decides which of its pods are bound.
    `starts`: how often it was unsuspended before it was whole. `lost`: whether it later lost a pod.
    `stretches`: how long it was partly bound each time. `held`: how long it had a bound pod.
    `ended_as`: the numbers of bound and of planned pods when it was last partly bound.
    """

    name: str
    planned: bool = False
    apart: bool = False
    starts: int = 0
    wanted: int = 0
    bound: int = 0
    whole_at: float | None = None
    lost: bool = False
    held: float = 0.0
    pod_seconds: float = 0.0
    stretches: list[float] = field(default_factory=list)
    ended_as: tuple[int, int] = (0, 0)
    _suspended: bool = True
    _held_nothing: bool = True
    _part_since: float | None = None
    _seen_at: float | None = None

    def observe(self, job: Object, pods: Iterable[Object], *, at: float) -> None:
        passed = 0.0 if self._seen_at is None else at - self._seen_at
        self._seen_at = at
        annotations = job["metadata"].get("annotations", {})
        waits = suspended(job)
        if names.RELEASED in annotations and self._held_nothing:
            self.apart = True
        self.planned |= names.PLAN in annotations
        if self._suspended and not waits and self.whole_at is None:
            self.starts += 1
        self._suspended = waits
        live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        self.bound = sum(bool(pod["spec"].get("nodeName")) for pod in live)
        self.wanted = size(job)
        if names.RELEASED not in annotations:
            self._held_nothing = waits or not self.bound
        self.held += passed if self.bound else 0.0
        self.pod_seconds += passed * self.bound
        if self.bound >= self.wanted and self.whole_at is None:
            self.whole_at = at
        self.lost |= self.whole_at is not None and self.bound < self.wanted
        part = self.whole_at is None and 0 < self.bound < self.wanted
        if part and self._part_since is None:
            self._part_since = at
            self.stretches.append(0.0)
        if part and self._part_since is not None:
            self.stretches[-1] = at - self._part_since
            self.ended_as = (self.bound, self.wanted)
        if not part:
            self._part_since = None

    @property
    def half(self) -> list[float]:
        """The lengths of the stretches in which the gang was half."""
        return [stretch for stretch in self.stretches if stretch > GRACE_SECONDS]


@dataclass(frozen=True, slots=True)
class Account:
    """All gangs of a namespace. `limit`: for how many seconds a gang may be half."""

    gangs: tuple[Gang, ...]
    limit: float

    @property
    def by_kfext(self) -> list[Gang]:
        """The gangs that kfext placed; the properties below are about these gangs."""
        return [gang for gang in self.gangs if gang.planned and not gang.apart]

    @property
    def half(self) -> list[Gang]:
        """The gangs that were half at some time."""
        return [gang for gang in self.by_kfext if gang.half]

    @property
    def too_long(self) -> list[Gang]:
        """The gangs that were half for longer than the limit."""
        return [gang for gang in self.half if max(gang.half) > self.limit]

    @property
    def share_half(self) -> float:
        """The fraction of the time with a bound pod in which gangs were half, over all gangs."""
        held = sum(gang.held for gang in self.by_kfext)
        return sum(sum(gang.half) for gang in self.by_kfext) / held if held else 0.0

    def figures(self) -> dict[str, float]:
        times = sorted(gang.whole_at for gang in self.by_kfext if gang.whole_at is not None)
        return {
            "jobs": len(self.gangs),
            "placed by kfext": len(self.by_kfext),
            "half": len(self.half),
            "half for too long": len(self.too_long),
            "gang-seconds half": round(sum(sum(gang.half) for gang in self.by_kfext), 1),
            "gang-seconds": round(sum(gang.held for gang in self.by_kfext)),
            "whole": len(times),
            "whole after, mean s": round(sum(times) / len(times), 2) if times else 0.0,
            "whole after, last s": round(times[-1], 1) if times else 0.0,
            "all jobs whole": sum(gang.whole_at is not None for gang in self.gangs),
            "started over twice": sum(gang.starts > 2 for gang in self.by_kfext),
            "pod-seconds": round(sum(gang.pod_seconds for gang in self.gangs)),
            "lost a member": sum(gang.lost for gang in self.by_kfext),
            "half apart": sum(bool(gang.half) for gang in self.gangs if gang not in self.by_kfext),
        }

    def lines(self) -> Iterator[str]:
        """Yield a line for each gang that was half, the longest first."""
        half = [gang for gang in self.gangs if gang.half]
        for gang in sorted(half, key=lambda gang: -max(gang.half)):
            bound, wanted = gang.ended_as
            where = "" if gang in self.by_kfext else ", left to plain Kubernetes"
            times = ", ".join(f"{stretch:.0f}" for stretch in gang.half)
            yield f"{gang.name}: {bound} of {wanted} pods bound for {times} s{where}"


def watch(kube: Kube, namespace: str, *, seconds: float, limit: float) -> Account:
    """Observe the jobs and pods of a namespace for `seconds`, twice a second."""
    gangs: dict[str, Gang] = {}
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        observe(kube, namespace, gangs, at=at)
        time.sleep(max(0.0, INTERVAL_SECONDS - (time.monotonic() - began - at)))
    return Account(tuple(gangs.values()), limit)


def observe(kube: Kube, namespace: str, gangs: dict[str, Gang], *, at: float) -> None:
    jobs = [
        {**job, "kind": kind} for kind in PLURAL for job in kube.items(jobs_path(namespace, kind))
    ]
    by_job: dict[str, list[Object]] = {}
    for pod in kube.items(f"/api/v1/namespaces/{namespace}/pods"):
        owners = pod["metadata"].get("ownerReferences", [])
        by_job.setdefault(owners[0]["uid"] if owners else "", []).append(pod)
    for job in jobs:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        gangs.setdefault(name, Gang(name)).observe(job, by_job.get(uid, []), at=at)
