"""Which jobs it may help that capacity came free: the others are not asked again."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import numpy as np

from kfext.core.ledger.claim import below
from kfext.core.ledger.columns import Amounts
from kfext.core.ledger.ledger import Ledger
from kfext.model.gpu_share import uncounted
from kfext.model.replica_group import ReplicaGroup


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

        `preempting` is its priority, None if it preempts nobody: whether it may fit after a
        preemption decides when it is released.
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
    """Return whether a pod fits any row, as far as plain amounts tell."""
    requests = group.requests if group.share is None else uncounted(group.requests)
    asked = {name: number for name, number in requests.items() if number}
    if not asked.keys() <= free.keys():
        return False
    fits = [free[name] >= number for name, number in asked.items()]
    return not fits or bool(np.logical_and.reduce(fits).any())
