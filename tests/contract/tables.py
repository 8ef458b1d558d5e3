"""The tables of the documentation, as people read them."""

import re
from collections.abc import Iterator

from tests.contract.manifests import REPOSITORY

Row = dict[str, str]
_QUOTED = re.compile(r"`([^`]+)`")


def table(page: str, first: str) -> list[Row]:
    """Return the rows of the only table of a page with the title `first` on its first column."""
    (result,) = (rows for rows in _tables(page) if next(iter(rows[0])) == first)
    return result


def rows_of(page: str, first: str) -> list[Row]:
    """Return the rows of all tables of a page with the title `first` on their first column."""
    return [row for rows in _tables(page) if next(iter(rows[0])) == first for row in rows]


def quoted(cell: str) -> list[str]:
    """Return the texts in backticks of a cell."""
    return _QUOTED.findall(cell)


def only(cell: str) -> str:
    """Return the only text in backticks of a cell."""
    (result,) = quoted(cell)
    return str(result)


def _tables(page: str) -> Iterator[list[Row]]:
    for block in re.findall(r"(?:^\|.*\n)+", (REPOSITORY / page).read_text(), re.MULTILINE):
        titles, _, *rows = (
            [cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()
        )
        yield [dict(zip(titles, row, strict=True)) for row in rows]
