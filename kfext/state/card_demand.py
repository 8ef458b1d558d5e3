"""The slots that need GPUs: for the plans of jobs, and for pods that no plan accounts for."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from kfext.model.constraints import Toleration
from kfext.model.gpu import Place

Tolerations = tuple[Toleration, ...]


class CardDemand:
    """The slots that need GPUs, by job and by pod.

    What changes them returns the slots that may be needed now, or no longer.
    """

    def __init__(self) -> None:
        self._by_job: dict[str, Mapping[Place, Tolerations]] = {}
        self._by_pod: dict[str, tuple[Place, Tolerations]] = {}

    def plan(self, job_uid: str, places: Mapping[Place, Tolerations]) -> Collection[Place]:
        """Take in which slots the plan of a job needs; it replaces what it has needed before."""
        before = self._by_job.pop(job_uid, {})
        if places:
            self._by_job[job_uid] = places
        return before.keys() ^ places.keys()

    def keep(self, pod_uid: str, place: Place, tolerations: Tolerations) -> Collection[Place]:
        """Take in that a pod has a part of a slot which no plan accounts for.

        What its job tolerated still holds once the job is gone, and is known from here alone then.
        """
        before = self._by_pod.get(pod_uid)
        self._by_pod[pod_uid] = place, tolerations or (before[1] if before else ())
        return {place} ^ ({before[0]} if before else set())

    def drop(self, pod_uid: str) -> Collection[Place]:
        """Take in that a pod has ended, or that a plan accounts for it."""
        before = self._by_pod.pop(pod_uid, None)
        return () if before is None else {before[0]}

    def jobs(self) -> Collection[str]:
        """Return the uids of the jobs whose plans need slots."""
        return self._by_job.keys()

    def jobs_at(self, place: Place) -> list[str]:
        """Return those whose plans need one slot."""
        return [uid for uid, places in self._by_job.items() if place in places]

    def of(self, job_uids: Iterable[str]) -> set[Place]:
        """Return the slots that the plans of some jobs need."""
        return {place for uid in job_uids for place in self._by_job.get(uid, ())}

    def on(self, nodes: Collection[str]) -> frozenset[Place]:
        """Return the slots of some nodes that are needed."""
        return frozenset(place for place, _ in self._each() if place[0] in nodes)

    def wants(self, place: Place) -> bool:
        """Return whether a slot is needed."""
        return any(place == one for one, _ in self._each())

    def all(self) -> Mapping[Place, Tolerations]:
        """Return each slot with what the first tolerates for which it is needed, plans first."""
        found: dict[Place, Tolerations] = {}
        for place, tolerations in self._each():
            found.setdefault(place, tolerations)
        return found

    def _each(self) -> Iterator[tuple[Place, Tolerations]]:
        for places in self._by_job.values():
            yield from places.items()
        yield from self._by_pod.values()
