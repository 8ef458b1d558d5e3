"""Rows of a table, whose names stand in a line above them."""

import re

from kfext.core.progress.visible import visible
from kfext.core.progress.vocabulary import Meaning, Role, meaning

_GAP = re.compile(r"\s*[|│┃]\s*|\s{2,}|\t")
_CELL = re.compile(r"[-+]?(?:[\d.,:/]{1,24}(?:[eE][-+]?\d{1,3})?[a-zA-Z%]{0,2}|nan|inf|-)")
_RULE = "-=+|─━┼ "
_FEWEST, _MOST = 3, 32
_NUMBER_SIGN = "#"


class Table:
    """Follows the lines of a log. A line of names of at least three columns is a heading."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def named(self, raw: str) -> str:
        """Return a row with the name of each number before it, any other line as it is.

        A row has only numbers, since one with a name of its own is not of the whole training. The
        rest of a line, such as a bar, stays behind its row.
        """
        names = self._names
        line = visible(raw)
        cells = _GAP.split(line.strip(_RULE), _MOST)
        if _is_heading(cells):
            self._names = cells
        if not names or len(cells) < len(names):
            return raw
        row, behind = cells[: len(names)], cells[len(names) :]
        last, colon, bar = row[-1].partition(": ")
        row[-1] = last.rstrip(":")
        if not all(map(_CELL.fullmatch, row)):
            return raw
        pairs = (
            f"{'step' if n == _NUMBER_SIGN else n}: {c}" for n, c in zip(names, row, strict=True)
        )
        return ", ".join((*pairs, *([bar] if colon else []), *behind))


def _is_heading(cells: list[str]) -> bool:
    """Return whether cells are names, of which at least one is a measure."""
    if len(cells) < _FEWEST or any(not cell or cell[0] in "0123456789-+." for cell in cells):
        return False
    if any(":" in cell or "=" in cell for cell in cells):
        return False
    return any(_is_measure(meaning(cell)) for cell in cells)


def _is_measure(said: Meaning | None) -> bool:
    return said is not None and said.role is Role.MEASURE
