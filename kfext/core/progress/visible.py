"""What a terminal would show of a line: progress bars overwrite themselves and use colours."""

import re
from collections.abc import Iterator

LONGEST_LINE = 4096
"""Characters of a line that are looked at; a progress line has a few hundred."""
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
_ANEW = re.compile(r"\r|\x08+|#015")
"""A return, also as syslog writes it, or backspaces."""
_CONTROLS = re.compile(r"[\x00-\x07\x0b-\x1f\x7f]")


def visible(line: str) -> str:
    """Return the last state of a line, without escapes and control characters."""
    return next(states(line), "")


def states(line: str) -> Iterator[str]:
    """Yield the states of a line that overwrites itself, the last one first.

    A carriage return begins the line anew, and Keras 2 goes back by backspaces instead. Of a line
    that is too long the end is kept: a bar without line ends grows there.
    """
    for state in reversed(_ANEW.split(line[-LONGEST_LINE:])):
        plain = _CONTROLS.sub("", _ESCAPES.sub("", state)).strip() if state else ""
        if plain:
            yield plain
