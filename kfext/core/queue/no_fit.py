"""What did not fit, remembered: jobs of equal shape share one verdict until room comes free."""

from collections.abc import Hashable
from dataclasses import dataclass

from kfext.core.ledger.ledger import Ledger
from kfext.model.job import TrainingJob
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why a shape has no place.

    `preemptible`: it would have one if pods of lower priority were evicted. `would_fit`: it would
    have one if something else were not there, which is no longer so once that is taken too.
    """

    verdict: Verdict
    preemptible: bool = False
    would_fit: bool = False


class NoFitCache:
    """The refusals since room last came free on a ledger. What has no place now has none later."""

    def __init__(self) -> None:
        self._gains = -1
        self._known: dict[Hashable, tuple[int, NoFit]] = {}

    def known(self, shape: Hashable, ledger: Ledger) -> NoFit | None:
        """Return why the shape was refused, None if it was not, or if room has come free since."""
        if ledger.gains != self._gains:
            self._gains = ledger.gains
            self._known.clear()
        version, refusal = self._known.get(shape, (0, None))
        if refusal is not None and refusal.would_fit and version != ledger.version:
            return None
        return refusal

    def note(self, shape: Hashable, refusal: NoFit, ledger: Ledger) -> None:
        """Remember a refusal; `known` has just been asked for the same shape."""
        self._known[shape] = (ledger.version, refusal)


def shape_of(job: TrainingJob) -> Hashable:
    """Return what of a job decides about its place: two jobs of equal shape are refused alike."""
    return tuple(
        (group.replicas, tuple(group.requests.items()), group.constraints, group.guaranteed)
        for group in job.groups
    )
