"""Which refusals still hold: jobs that did not fit are asked again only if it may help.

While no capacity comes free, jobs of equal shape share a refusal (`NoFitCache`). When capacity
comes free, the rows that gained decide which jobs may fit now (`Gained`).
"""

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kfext.core.ledger.claim import below
from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.ledger import Ledger
from kfext.model.gpu import uncounted
from kfext.model.job import TrainingJob
from kfext.model.plan import Assignment
from kfext.model.replica_group import ReplicaGroup
from kfext.model.verdict import Verdict

MOST_SHAPES = 4096
"""How many refusals are remembered. Each edit of a waiting job may bring a new shape."""


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why a shape cannot be placed.

    `verdict`: the reason and message.
    `over_others`: where it would fit if pods of lower priority outside gangs were preempted.
    `would_fit`: whether it would fit without pods of lower priority or without the reservation. Any
        new claim may change this, so the refusal holds only for one version of the ledger.
    `workers`: how many of its workers would fit, fewer than requested; 0: none. `until`: when there
        should be room for all, in epoch seconds; the job is checked again then.
    """

    verdict: Verdict
    over_others: Assignment | None = None
    would_fit: bool = False
    workers: int = 0
    until: float = math.inf


class NoFitCache:
    """The refusals since capacity last came free."""

    def __init__(self) -> None:
        self._gains = -1
        self._known: dict[Hashable, tuple[int, NoFit]] = {}

    def known(self, shape: Hashable, ledger: Ledger) -> NoFit | None:
        """Return why the shape was refused, or None; capacity that comes free ends a refusal."""
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

    def note(self, shape: Hashable, refusal: NoFit, ledger: Ledger) -> None:
        """Remember a refusal; call `known` for the same shape first."""
        if len(self._known) >= MOST_SHAPES:
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


class Gained:
    """What is free on the rows of a ledger where capacity came free, without the `ignoring` claims.

    A job that did not fit before fits now only if one of its pods fits one of these rows.
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

        `preempting`: the priority of the job, which may go over pods outside gangs; None: it
        preempts no pods.
        """
        if not self._rows:
            return False
        free = self._free.get(preempting)
        if free is None:
            free = self._free[preempting] = self._on_rows(preempting)
        return any(_fits_any(group, free) for group in groups)

    def _on_rows(self, preempting: int | None) -> Mapping[str, Amounts]:
        """Return what is free of each resource, shape (rows,)."""
        ledger = self._ledger
        if preempting is not None:
            ledger = ledger.without(below(preempting))
        resources = tuple(ledger.resources)
        free = ledger.free(resources, ignoring=self._ignoring)[:, self._rows]
        return dict(zip(resources, free, strict=True))


def _fits_any(group: ReplicaGroup, free: Mapping[str, Amounts]) -> bool:
    """Return whether a pod fits any row by plain amounts."""
    requests = group.requests if group.share is None else uncounted(group.requests)
    asked = {name: number for name, number in requests.items() if number}
    if not asked.keys() <= free.keys():
        return False
    fits = [free[name] >= number for name, number in asked.items()]
    return not fits or bool(np.logical_and.reduce(fits).any())
