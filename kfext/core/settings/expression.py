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
_COMPILED = 256
"""How many expressions are remembered, which is 64 MiB at most: settings are resolved again
whenever a namespace changes."""


@lru_cache(maxsize=_COMPILED)
def compiled(expression: str) -> Any:
    """Return the compiled expression; raises ValueError with the reason."""
    options = re2.Options()
    options.max_mem = _MOST_MEMORY
    options.log_errors = False
    try:
        found = re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "invalid"
        raise ValueError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
    if found.programsize > MOST_INSTRUCTIONS:
        raise ValueError(
            f"it is compiled to {found.programsize} instructions, of {MOST_INSTRUCTIONS} at most: "
            "repeat less, and name letters such as [a-z] in place of classes of Unicode"
        )
    if "value" not in found.groupindex:
        raise ValueError("it has no group named `value`")
    return found
