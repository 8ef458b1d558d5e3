"""The slots that jobs need GPUs for, and the jobs that must not share a GPU again."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from kfext.model.constraints import Toleration
from kfext.model.gpu import Place

Tolerations = tuple[Toleration, ...]


class Apart:
    """The jobs, by uid, that must not share a GPU again because they lost too much to each other.

    The state of a job that had to leave names the other jobs. They are kept apart in both
    directions.
    """

    def __init__(self) -> None:
        self._left: dict[str, tuple[str, ...]] = {}
        self._leavers: dict[str, set[str]] = {}

    def record(self, job_uid: str, left: tuple[str, ...]) -> None:
        """Record the jobs that a job had to leave, in place of the earlier list."""
        before = self._left.pop(job_uid, ())
        if left:
            self._left[job_uid] = left
        for other in {*before}.difference(left):
            self._drop(other, job_uid)
        for other in {*left}.difference(before):
            self._leavers.setdefault(other, set()).add(job_uid)

    def forget(self, job_uid: str) -> None:
        """Forget a job that is gone."""
        self.record(job_uid, ())
        self._leavers.pop(job_uid, None)

    def of(self, job_uid: str) -> AbstractSet[str]:
        """Return the jobs that a job must not meet again; some of them may be gone."""
        return {*self._left.get(job_uid, ()), *self._leavers.get(job_uid, ())}

    def _drop(self, other: str, leaver: str) -> None:
        leavers = self._leavers.get(other, set())
        leavers.discard(leaver)
        if not leavers:
            self._leavers.pop(other, None)


class CardDemand:
    """The slots that need GPUs, each with the tolerations of its reservation pod.

    `by_job`: the slots of the plan of a job. `by_pod`: the slot of a pod that no plan accounts for.
    A method that changes them returns the slots with a need that may have changed.
    """

    def __init__(self) -> None:
        self.by_job: dict[str, Mapping[Place, Tolerations]] = {}
        self.by_pod: dict[str, tuple[Place, Tolerations]] = {}

    def plan(self, job_uid: str, places: Mapping[Place, Tolerations]) -> Collection[Place]:
        """Record the slots that the plan of a job needs, in place of the earlier slots."""
        before = self.by_job.pop(job_uid, {})
        if places:
            self.by_job[job_uid] = places
        return before.keys() ^ places.keys()

    def keep(self, pod_uid: str, place: Place, tolerations: Tolerations) -> Collection[Place]:
        """Record that a pod has a part of a slot and no plan accounts for it.

        The tolerations of its job still hold after the job is gone, and are then kept only here.
        """
        before = self.by_pod.get(pod_uid)
        self.by_pod[pod_uid] = place, tolerations or (before[1] if before else ())
        return {place} ^ ({before[0]} if before else set())

    def drop(self, pod_uid: str) -> Collection[Place]:
        """Record that a pod has ended, or that a plan accounts for it."""
        before = self.by_pod.pop(pod_uid, None)
        return () if before is None else {before[0]}

    def jobs_at(self, place: Place) -> list[str]:
        """Return the uids of the jobs with plans that need a slot."""
        return [uid for uid, places in self.by_job.items() if place in places]

    def of(self, job_uids: Iterable[str]) -> set[Place]:
        """Return the slots that the plans of some jobs need."""
        return {place for uid in job_uids for place in self.by_job.get(uid, ())}

    def on(self, nodes: Collection[str]) -> frozenset[Place]:
        """Return the slots of some nodes that are needed."""
        return frozenset(place for place, _ in self._each() if place[0] in nodes)

    def wants(self, place: Place) -> bool:
        """Return whether a slot is needed."""
        return any(place == other for other, _ in self._each())

    def all(self) -> Mapping[Place, Tolerations]:
        """Return each slot with the tolerations of its first job or pod, jobs first."""
        needed: dict[Place, Tolerations] = {}
        for place, tolerations in self._each():
            needed.setdefault(place, tolerations)
        return needed

    def _each(self) -> Iterator[tuple[Place, Tolerations]]:
        for places in self.by_job.values():
            yield from places.items()
        yield from self.by_pod.values()
