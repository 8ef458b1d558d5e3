"""What a rule for one setting is, and how it refuses a value."""

from collections.abc import Callable
from typing import NoReturn, TypeVar

from kfext.errors import SettingError

V_co = TypeVar("V_co", covariant=True)
Rule = Callable[[str, str], V_co]
"""Field and text -> parsed setting. Raises SettingError."""
OFF = "off"
_LONGEST_SHOWN = 80


def word(field: str, written: str, allowed: tuple[str, ...]) -> str:
    """Return a key word in lower case, one of those allowed. Raises SettingError."""
    found = written.lower()
    if found not in allowed:
        refuse(field, written, ", ".join(allowed), allowed[0])
    return found


def refuse(field: str, written: str, allowed: str, example: str) -> NoReturn:
    """Raise SettingError for a value."""
    shown = written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}…"
    raise SettingError(field=field, value=shown, allowed=allowed, example=example)
