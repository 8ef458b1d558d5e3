"""Refusals that still hold: a job that did not fit is tried again only if it may fit now.

While no capacity is freed, jobs of equal shape share a refusal (`NoFitCache`). When capacity is
freed, its rows decide which jobs may fit now (`Gained`).
"""

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kfext.core.ledger.claim import below
from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.ledger import Ledger
from kfext.model.gpu import without_card_counts
from kfext.model.job import TrainingJob
from kfext.model.plan import Assignment
from kfext.model.replica_group import ReplicaGroup
from kfext.model.verdict import Verdict

MAX_SHAPES = 4096
"""The most refusals in the cache. Each edit of a waiting job may create a new shape."""


@dataclass(frozen=True, slots=True)
class NoFit:
    """The refusal of a job, and of all jobs of its shape.

    `after_preemption`: its placement if it preempted pods of lower priority outside gangs; None
        means that it would not fit then either.
    `would_fit`: whether it would fit without pods of lower priority or without the reservation. Any
        new claim may change this, so the refusal holds only for one version of the ledger.
    `workers`: the number of workers that it could start with, below its requested size; 0 if none.
    `until`: when all its workers should fit and the job is tried again, in epoch seconds.
    """

    verdict: Verdict
    after_preemption: Assignment | None = None
    would_fit: bool = False
    workers: int = 0
    until: float = math.inf


class NoFitCache:
    """The refusals since capacity was last freed."""

    def __init__(self) -> None:
        self._gains = -1
        self._known: dict[Hashable, tuple[int, NoFit]] = {}

    def known(self, shape: Hashable, ledger: Ledger) -> NoFit | None:
        """Return the refusal of a shape, or None; freed capacity ends all refusals."""
        if ledger.gains != self._gains:
            self._gains = ledger.gains
            self._known.clear()
        version, refusal = self._known.get(shape, (0, None))
        if refusal is not None and refusal.would_fit and version != ledger.version:
            return None
        return refusal

    def clear(self) -> None:
        """Forget all refusals."""
        self._known.clear()

    def add(self, shape: Hashable, refusal: NoFit, ledger: Ledger) -> None:
        """Add a refusal; call `known` for the same shape first."""
        if len(self._known) >= MAX_SHAPES:
            self._known.clear()
        self._known[shape] = (ledger.version, refusal)


def shape_of(job: TrainingJob) -> Hashable:
    """Return the shape of a job: jobs of equal shape are refused for the same reason."""
    return tuple(
        (
            *(group.type, group.replicas, tuple(group.requests.items())),
            *(group.constraints, group.guaranteed),
        )
        for group in job.groups
    )


class Gained:
    """The free amounts of the rows of a ledger where capacity was freed.

    A job that did not fit before fits now only if one of its pods fits one of these rows.
    `ignoring`: claims that count as free.
    """

    def __init__(
        self, ledger: Ledger, rows: Sequence[int], *, ignoring: Collection[Hashable] = ()
    ) -> None:
        self._ledger = ledger
        self._rows = rows
        self._ignoring = ignoring
        self._free: dict[int | None, Mapping[str, Amounts]] = {}

    def may_help(self, groups: Iterable[ReplicaGroup], *, preempting: int | None = None) -> bool:
        """Return whether a job of these groups may fit now.

        `preempting`: the priority of the job if it may preempt pods outside gangs, else None.
        """
        if not self._rows:
            return False
        free = self._free.get(preempting)
        if free is None:
            free = self._free[preempting] = self._on_rows(preempting)
        return any(_fits_any(group, free) for group in groups)

    def _on_rows(self, preempting: int | None) -> Mapping[str, Amounts]:
        """Return the free amounts by resource, each of shape (rows,)."""
        ledger = self._ledger
        if preempting is not None:
            ledger = ledger.without(below(preempting))
        resources = tuple(ledger.resources)
        free = ledger.free(resources, ignoring=self._ignoring)[:, self._rows]
        return dict(zip(resources, free, strict=True))


def _fits_any(group: ReplicaGroup, free: Mapping[str, Amounts]) -> bool:
    """Return whether a pod of a group fits any row, ignoring GPU shares and constraints."""
    requests = group.requests if group.share is None else without_card_counts(group.requests)
    amounts = {name: number for name, number in requests.items() if number}
    if not amounts.keys() <= free.keys():
        return False
    fits = [free[name] >= number for name, number in amounts.items()]
    return not fits or bool(np.logical_and.reduce(fits).any())
