"""The search for victims: the cheapest set of jobs that have to stop for a waiting job.

Jobs are stopped only if the waiting job then fits: the search that places jobs places it without
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
from kfext.state.running.stop.victims import Victim, in_stop_order, units


@dataclass(frozen=True, slots=True)
class VictimChoice:
    """The uids of the victims, and the places of the waiting job after they have stopped."""

    victims: tuple[str, ...]
    places: Places


class StopSearch:
    """Searches victims; `capacity` searches places in the ledger. `now` is in epoch seconds."""

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

        `settings`: the settings of the waiting job. `gone`: the uids of jobs that already stop.
        """
        candidates = in_stop_order(victims, needed=units(waiting.job, waiting=waiting.job))
        uids = frozenset(victim.uid for victim in candidates)
        if self._version != self._capacity.version:
            self._in_vain.clear()
            self._version = self._capacity.version
        limits = self._capacity.limits(waiting, now=now)
        inputs = (shape_of(waiting.job), limits, uids, tuple(gone))
        if not candidates or inputs in self._in_vain:
            return None

        def fits(chosen: Iterable[Victim]) -> Places | None:
            leaving = [*gone, *(victim.uid for victim in chosen)]
            return self.places(waiting, settings, leaving, now=now)

        def enough(order: Sequence[Victim], kept: Sequence[Victim] = ()) -> int:
            """Return how many first victims of `order` suffice beside `kept`, or len(order) + 1."""
            # A waiting job that fits without some victims also fits without more victims.
            numbers = range(len(order) + 1)
            return bisect_left(
                numbers, True, key=lambda number: fits([*kept, *order[:number]]) is not None
            )

        if fits(candidates) is None or not (number := enough(candidates)):
            self._in_vain.add(inputs)
            return None
        chosen: list[Victim] = []
        others = sorted(candidates[:number], key=Victim.cost)
        while others and fits(chosen) is None:
            number = min(enough(others, chosen), len(others))
            chosen.append(others[number - 1])  # the cheaper jobs alone do not suffice
            others = others[: number - 1]
        places = fits(chosen)
        return VictimChoice(tuple(victim.uid for victim in chosen), places) if places else None

    def places(
        self, waiting: TrackedJob, settings: Settings, gone: Iterable[str], *, now: float
    ) -> Places | None:
        """Return the places of a waiting job once the jobs `gone`, by uid, have stopped."""
        workers = fewest_workers(waiting.job, allowed_range(waiting.job, settings))
        claims = [claim for uid in gone for claim in self.claims(uid)]
        return self._capacity.waiting_places(waiting, workers, now=now, gone=claims)

    def claims(self, uid: str) -> list[Hashable]:
        """Return the claims of a job."""
        pods = self._cluster.pods(uid)
        return [*(pod_key(pod.uid) for pod in pods), *self._cluster.holds.plan(uid)]
