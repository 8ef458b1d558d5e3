"""The search for victims: the cheapest set of jobs that have to stop for a waiting job.

Jobs are only stopped for a waiting job that provably fits then: the same search places it without
their claims. So free capacity on the wrong nodes never counts.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from kfext.core.elastic import allowed_range, fewest_workers
from kfext.core.ledger.claims import pod_key
from kfext.core.queue.no_fit import shape_of
from kfext.core.settings.table import Settings
from kfext.model.plan import Places
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.capacity_search import CapacitySearch
from kfext.state.running.stop.victims import Victim, by_cost, slots


@dataclass(frozen=True, slots=True)
class VictimChoice:
    """The uids of the victims, and the places of the waiting job without them."""

    victims: tuple[str, ...]
    places: Places


class StopSearch:
    """Searches victims; `capacity` searches places on the ledger. `now` is in epoch seconds."""

    def __init__(self, cluster: Cluster, capacity: CapacitySearch) -> None:
        self._cluster = cluster
        self._capacity = capacity
        self._in_vain: set[Hashable] = set()
        self._version = -1

    def find(
        self,
        waiting: TrackedJob,
        victims: Iterable[Victim],
        settings: Settings,
        *,
        gone: Sequence[str] = (),
        now: float,
    ) -> VictimChoice | None:
        """Return the cheapest victims for a waiting job, or None.

        `settings`: the settings of the waiting job. `gone`: the uids of its present victims.
        """
        wanted = by_cost(victims, needed=slots(waiting.job, waiting=waiting.job))
        uids = frozenset(victim.uid for victim in wanted)
        if self._version != self._capacity.version:
            self._in_vain.clear()
            self._version = self._capacity.version
        limits = self._capacity.limits(waiting, now=now)
        basis = (shape_of(waiting.job), limits, uids, tuple(gone))
        if not wanted or basis in self._in_vain:
            return None

        def fits(chosen: Iterable[Victim]) -> Places | None:
            leaving = [*gone, *(victim.uid for victim in chosen)]
            return self.places(waiting, settings, leaving, now=now)

        def enough(order: Sequence[Victim], kept: Sequence[Victim] = ()) -> int:
            """Return the length of the shortest prefix that suffices, or len(order) + 1."""
            # With more victims, a waiting job that fitted still fits.
            numbers = range(len(order) + 1)
            return bisect_left(
                numbers, True, key=lambda number: fits([*kept, *order[:number]]) is not None
            )

        if fits(wanted) is None or not (number := enough(wanted)):
            self._in_vain.add(basis)
            return None
        chosen: list[Victim] = []
        others = sorted(wanted[:number], key=Victim.cost)
        while others and fits(chosen) is None:
            number = min(enough(others, chosen), len(others))
            chosen.append(others[number - 1])  # the most expensive job that is needed
            others = others[: number - 1]
        places = fits(chosen)
        return VictimChoice(tuple(victim.uid for victim in chosen), places) if places else None

    def places(
        self, waiting: TrackedJob, settings: Settings, gone: Iterable[str], *, now: float
    ) -> Places | None:
        """Return the places of a waiting job without other jobs, by uid, or None."""
        workers = fewest_workers(waiting.job, allowed_range(waiting.job, settings))
        claims = [claim for uid in gone for claim in self.claims(uid)]
        return self._capacity.waiting_places(waiting, workers, now=now, gone=claims)

    def claims(self, uid: str) -> list[Hashable]:
        """Return the claims of a job."""
        pods = self._cluster.pods(uid)
        return [*(pod_key(pod.uid) for pod in pods), *self._cluster.holds.plan(uid)]
