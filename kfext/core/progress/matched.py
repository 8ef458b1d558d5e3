"""What a line says by a user's expression, where there is one."""

import re

from kfext.core.progress.lines import Line, Position, read_line
from kfext.core.progress.visible import visible
from kfext.core.settings.expression import compiled

_NAME_BEFORE = re.compile(r"([A-Za-z][\w@./-]{0,40})\W{0,8}$")
_UNNAMED = "value"
_MOST_DIGITS = 15


def read_with(raw: str, expression: str) -> Line | None:
    """Return what a line says: by an expression, or without one as kfext recognises it itself."""
    return read_matched(raw, expression) if expression else read_line(raw)


def read_matched(raw: str, expression: str) -> Line | None:
    """Return what an expression finds in a line, None if it does not match a number.

    Its groups: `value`; `name`, else the word before the value is the name; `step` and `total`.
    """
    line = visible(raw)
    searched = compiled(expression)
    match = searched.search(line)
    if match is None:
        return None
    groups, start = match.groupdict(), match.start(searched.groupindex["value"])
    try:
        value = float(groups["value"] or "")
    except ValueError:
        return None
    before = _NAME_BEFORE.search(line[max(0, start - 64) : start])
    name = groups.get("name") or (before.group(1) if before else _UNNAMED)
    position = Position(
        step=_count(groups.get("step")), steps=_count(groups.get("total")), whole=True
    )
    return Line(((name, value),), position)


def _count(text: str | None) -> int | None:
    """Return a whole number, None for anything else."""
    return int(text) if text and text.isdecimal() and len(text) <= _MOST_DIGITS else None
