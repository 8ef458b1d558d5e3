"""The output of the commands: words for a person, JSON or YAML for a program.

Users write names, messages and logs, which reach the terminal only as text.
"""

import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
import yaml

from kfext.core.words import CLAUSE

_WIDEST = 100_000
"""The width of a table in characters; no row is wider."""
output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True
)


def format_output(values: Any, *, output: str, text: Callable[[], Iterable[str]]) -> str:
    """Return `values` as `json` or `yaml` in ASCII, or the lines of `text()` as `text`."""
    if output == "json":
        return json.dumps(values, indent=2) + "\n"
    if output == "yaml":
        return yaml.safe_dump(values, sort_keys=False, width=10_000)
    return "".join(f"{plain(line)}\n" for line in text())


def plain(text: str) -> str:
    """Return a text with a space for each character that is not printable; newlines stay.

    A terminal would obey escapes and control characters; other characters hide or reverse text.
    """
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


Columns = Mapping[str, Callable[[Any], str]]
"""The columns of a table: head -> cell of a line."""


def integer(value: object) -> int | None:
    """Return a value if it is a 64-bit integer, as JSON here allows, else None."""
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def columns(shown: Columns, lines: Iterable[Any], *, indent: int = 0) -> list[str]:
    """Return the lines of a table with a row for each of `lines`."""
    rows = [[cell(line) for cell in shown.values()] for line in lines]
    return table([*shown], rows, indent=indent)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, indent: int = 0) -> list[str]:
    """Return the lines of a table; no cell is cut or wrapped, however narrow the terminal is."""
    from rich.console import Console  # noqa: PLC0415 - the services draw no tables
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=None, pad_edge=False)
    for name in head:
        drawn.add_column(Text(name), no_wrap=True, overflow="ignore")
    for row in rows:
        drawn.add_row(*(Text(plain(cell).replace("\n", " ")) for cell in row))
    file = io.StringIO()
    console = Console(file=file, width=_WIDEST, color_system=None, force_terminal=False)
    console.print(drawn)
    return [f"{' ' * indent}{line.rstrip()}" for line in file.getvalue().splitlines()]


def entry(label: str, message: str) -> list[str]:
    """Return the lines of a labelled message: its first clause, and the rest as a list."""
    first, *more = message.replace("\n", " ").split(CLAUSE)
    return [f"  {label:<8} {first}", *(f"{' ' * 11}- {clause}" for clause in more)]


def crop(text: str, screen: os.terminal_size) -> str:
    """Return the part of a text that fits a screen, with a spare line for the cursor."""
    return "\n".join(line[: screen.columns] for line in text.splitlines()[: screen.lines - 1])


def short(value: float | None) -> str:
    """Return a number with four significant digits; empty for None."""
    return "" if value is None else f"{value:.4g}"


def job_of(line: Mapping[str, Any]) -> str:
    """Return the kind, namespace and name of a job."""
    return f"{line['kind']} {line['namespace']}/{line['name']}"
