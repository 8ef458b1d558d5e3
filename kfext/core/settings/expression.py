"""A user's regular expression for the lines of a log, on an engine whose time is linear.

RE2 needs time in proportion to the line for every expression, and refuses one that would need more
memory than it is given. It has no look-around and no references back.
"""

from functools import lru_cache
from typing import Any

import re2

LONGEST = 512
"""Characters of an expression."""
_MOST_MEMORY = 512 * 1024
_COMPILED = 1024
"""How many expressions are remembered: settings are resolved again whenever a namespace changes."""


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
    if "value" not in found.groupindex:
        raise ValueError("it has no group named `value`")
    return found
