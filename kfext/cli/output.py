"""How the commands print what they found: in words for a person, as JSON or YAML for a program.

Much of it was written by others: names, messages, lines of logs. None of it reaches the terminal as
anything but text.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import yaml


def printed(values: Any, *, output: str, words: Callable[[], str]) -> str:
    """Return `values` as `json` or `yaml` in ASCII, or what `words` makes of them as `text`."""
    if output == "json":
        return json.dumps(values, indent=2) + "\n"
    if output == "yaml":
        return yaml.safe_dump(values, sort_keys=False, width=10_000)
    return plain(words())


def plain(text: str) -> str:
    """Return a text with a space for whatever is not to be seen.

    That is what a terminal obeys, escapes and control characters of one or two bytes, and what
    hides or turns around the text beside it. Line ends stay.
    """
    return "".join(one if one.isprintable() or one == "\n" else " " for one in text)


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row, with the columns below each other; the rows have equal lengths."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def fitted(text: str, screen: os.terminal_size) -> str:
    """Return what a screen has room for, from the top, with a line left for the cursor."""
    return "\n".join(line[: screen.columns] for line in text.splitlines()[: screen.lines - 1])


def age(seconds: float) -> str:
    """Return a length of time as kubectl prints it."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
