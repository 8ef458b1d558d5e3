"""Reads Muri's CSV files; errors name the file and the line."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from e2e.bench.model.csv_rows import Row, rows
from kfext.errors import UserError


class Line(NamedTuple):
    """A line of a CSV file below the line of columns, which has number 1."""

    path: Path
    number: int
    cells: Row

    @property
    def where(self) -> str:
        return f"{self.path}, line {self.number}"

    def value_of(self, column: str, *, least: float = 0.0) -> float:
        """Return the number in a column. Raises UserError if it is infinite or below `least`."""
        text = self.cells[column]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value < math.inf:
            raise UserError(f"{self.where}: {column} {text!r} is not a number from {least:g} on")
        return value


def lines(path: Path, columns: Sequence[str]) -> Iterator[Line]:
    """Yield the lines below the columns of a CSV file that are not blank.

    Raises UserError if line 1 lacks a column, or a line lacks a cell.
    """
    for number, row in rows(path, columns):
        line = Line(path, number, row)
        if any(row[column] is None for column in columns):
            raise UserError(f"{line.where} has fewer cells than line 1")
        yield line
