"""A cache of what did not fit: jobs of equal shape share a verdict until capacity is freed."""

from collections.abc import Hashable
from dataclasses import dataclass

from kfext.core.ledger.ledger import Ledger
from kfext.model.job import TrainingJob
from kfext.model.verdict import Verdict

_MOST_SHAPES = 4096
"""How many refusals are remembered. Each edit of a waiting job may bring a new shape."""


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why a shape cannot be placed.

    `verdict`: the reason and message.
    `preemptible`: whether it would fit if pods of lower priority were evicted.
    `would_fit`: whether it would fit without pods of lower priority or without the reservation.
        Any new claim may change that, so the refusal holds only for one version of the ledger.
    """

    verdict: Verdict
    preemptible: bool = False
    would_fit: bool = False


class NoFitCache:
    """The refusals since capacity was last freed: what did not fit then still does not fit."""

    def __init__(self) -> None:
        self._gains = -1
        self._known: dict[Hashable, tuple[int, NoFit]] = {}

    def known(self, shape: Hashable, ledger: Ledger) -> NoFit | None:
        """Return why the shape was refused, None if it was not or capacity was freed since."""
        if ledger.gains != self._gains:
            self._gains = ledger.gains
            self._known.clear()
        version, refusal = self._known.get(shape, (0, None))
        if refusal is not None and refusal.would_fit and version != ledger.version:
            return None
        return refusal

    def note(self, shape: Hashable, refusal: NoFit, ledger: Ledger) -> None:
        """Remember a refusal; call `known` for the same shape first."""
        if len(self._known) >= _MOST_SHAPES:
            self._known.clear()
        self._known[shape] = (ledger.version, refusal)


def shape_of(job: TrainingJob) -> Hashable:
    """Return what decides whether a job fits: two jobs of equal shape are refused alike."""
    return tuple(
        (
            *(group.type, group.replicas, tuple(group.requests.items())),
            *(group.constraints, group.guaranteed),
        )
        for group in job.groups
    )
