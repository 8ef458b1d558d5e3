"""The slots in which jobs need GPUs, and the jobs that must not share a GPU again."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from kfext.model.constraints import Toleration
from kfext.model.gpu import Place

Tolerations = tuple[Toleration, ...]


class SeparatedJobs:
    """The jobs, by uid, that must not share a GPU again because they slowed each other down.

    The state of an evicted job names the other jobs. The rule holds in both directions.
    """

    def __init__(self) -> None:
        self._others: dict[str, tuple[str, ...]] = {}
        self._named_by: dict[str, set[str]] = {}

    def record(self, job_uid: str, others: tuple[str, ...]) -> None:
        """Record the jobs that an evicted job names, in place of the earlier list."""
        before = self._others.pop(job_uid, ())
        if others:
            self._others[job_uid] = others
        for other in {*before}.difference(others):
            self._drop(other, job_uid)
        for other in {*others}.difference(before):
            self._named_by.setdefault(other, set()).add(job_uid)

    def forget(self, job_uid: str) -> None:
        """Forget a job that is gone."""
        self.record(job_uid, ())
        self._named_by.pop(job_uid, None)

    def separated_from(self, job_uid: str) -> AbstractSet[str]:
        """Return the jobs that a job must not share a GPU with; some of them may be gone."""
        return {*self._others.get(job_uid, ()), *self._named_by.get(job_uid, ())}

    def _drop(self, other: str, job_uid: str) -> None:
        named_by = self._named_by.get(other, set())
        named_by.discard(job_uid)
        if not named_by:
            self._named_by.pop(other, None)


class CardDemand:
    """The slots that need GPUs, each with the tolerations of its reservation pod.

    `by_job`: the slots of each job's plan. `by_pod`: the slot of each pod that no plan covers. Keys
    are uids. A method that changes them returns the slots with a demand that may have changed.
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
        """Record that a pod has a share of a slot and no plan covers the pod.

        The job's tolerations apply even after the job is gone; then `tolerations` is empty.
        """
        before = self.by_pod.get(pod_uid)
        self.by_pod[pod_uid] = place, tolerations or (before[1] if before else ())
        return {place} ^ ({before[0]} if before else set())

    def drop(self, pod_uid: str) -> Collection[Place]:
        """Record that a pod has ended, or that a plan covers the pod."""
        before = self.by_pod.pop(pod_uid, None)
        return () if before is None else {before[0]}

    def jobs_at(self, place: Place) -> list[str]:
        """Return the uids of the jobs with plans that need a slot."""
        return [uid for uid, places in self.by_job.items() if place in places]

    def slots_of(self, job_uids: Iterable[str]) -> set[Place]:
        """Return the slots that the plans of the jobs need."""
        return {place for uid in job_uids for place in self.by_job.get(uid, ())}

    def on(self, nodes: Collection[str]) -> frozenset[Place]:
        """Return the needed slots on some nodes."""
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
