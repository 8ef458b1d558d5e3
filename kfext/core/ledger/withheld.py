"""What has come free of the rows of a ledger and is not on offer yet."""

from collections.abc import Mapping

import numpy as np

from kfext.core.ledger.columns import Amounts


class Withheld:
    """The least that was free since the last offer, of each row that has gained since.

    Amounts have the shape of `Columns.row_free`; of a resource beyond them nothing was free.
    """

    def __init__(self) -> None:
        self._least: dict[int, Amounts] = {}

    def __bool__(self) -> bool:
        return bool(self._least)

    @property
    def least(self) -> Mapping[int, Amounts]:
        """What was free, by row."""
        return self._least

    def note(self, row: int, free: Amounts | None) -> None:
        """Take in that there is more of a row than was `free` before; None: that was nothing."""
        now = np.zeros(0, dtype=np.int64) if free is None else free
        before = self._least.get(row, now)
        lines = min(len(before), len(now))
        self._least[row] = np.minimum(before[:lines], now[:lines])

    def forget(self, row: int) -> None:
        """Take in that a row has no node any more."""
        self._least.pop(row, None)

    def release(self) -> list[int]:
        """Withhold nothing any more; return the rows that have gained."""
        least, self._least = self._least, {}
        return list(least)
