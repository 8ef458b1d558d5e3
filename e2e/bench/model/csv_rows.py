"""Reads the rows of a published CSV file; errors name the file and the line."""

import csv
import io
from collections.abc import Collection, Iterator
from pathlib import Path

from kfext.errors import UserError

Row = dict[str, str]
"""The cells by column; a cell that the line lacks is None."""


def rows(path: Path, columns: Collection[str]) -> Iterator[tuple[int, Row]]:
    """Yield the number and the cells of each line after line 1, which names the columns.

    `columns`: the required columns. Blank lines are skipped. Raises UserError.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise UserError(f"{path}, line 1 has no column {missing[0]}; needed: {', '.join(columns)}")
    for row in reader:
        yield reader.line_num, row
