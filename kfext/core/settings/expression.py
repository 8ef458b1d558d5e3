"""A user's regular expression for the lines of a log, on an engine whose time is linear.

RE2 needs time in proportion to the line for every expression, and to the instructions that it is
compiled to: so many of these are allowed that a line of 4,096 characters takes 6 ms at most, and
usual expressions have 30 to 80. It has no look-around and no references back.
"""

from functools import lru_cache
from typing import Any

import re2

LONGEST = 512
"""Characters of an expression."""
MOST_INSTRUCTIONS = 300
_MOST_MEMORY = 256 * 1024
_MOST_CLASSES = 4
"""Classes of Unicode, such as \\pL: regardless of case one takes a quarter of a millisecond."""
_COMPILED = 256
"""How many expressions are remembered, which is 64 MiB at most: settings are resolved again
whenever a namespace changes."""


def compiled(expression: str) -> Any:
    """Return the compiled expression; raises ValueError with the reason."""
    found, reason = _compiled(expression)
    if reason:
        raise ValueError(reason)
    return found


@lru_cache(maxsize=_COMPILED)
def _compiled(expression: str) -> tuple[Any, str]:
    """Return the compiled expression, or why it is refused: to find that out takes as long."""
    if (classes := expression.count(r"\p") + expression.count(r"\P")) > _MOST_CLASSES:
        return None, f"it names {classes} classes of Unicode, of {_MOST_CLASSES} at most"
    options = re2.Options()
    options.max_mem = _MOST_MEMORY
    options.log_errors = False
    try:
        found = re2.compile(expression, options)
    except re2.error as error:
        why = error.args[0] if error.args else "invalid"
        return None, why.decode() if isinstance(why, bytes) else str(why)
    if found.programsize > MOST_INSTRUCTIONS:
        return None, (
            f"it is compiled to {found.programsize} instructions, of {MOST_INSTRUCTIONS} at most: "
            "repeat less, and name letters such as [a-z] in place of classes of Unicode"
        )
    if "value" not in found.groupindex:
        return None, "it has no group named `value`"
    return found, ""
