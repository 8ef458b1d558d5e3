"""The values that each setting may have: one small function per key.

White space around a value and the case of key words are ignored; units of quantities and regular
expressions keep their case, which matters there.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NoReturn, TypeAlias

from kfext import names
from kfext.core.settings.expression import LONGEST, compiled
from kfext.errors import QuantityError, SettingError
from kfext.model.quantity import MEMORY, amount

OFF = "off"
POD, HOST = "pod", "host"
AUTO, STDOUT, PUSH = "auto", "stdout", "push"

_LONGEST_SHOWN = 80
_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_DECIMAL = re.compile(r"[0-9]?\.[0-9]{1,6}|[0-9]")
_GPU_TYPES = ("worker", "ps", "master", "chief")


class Colocation(StrEnum):
    """Whether the pods of a job go together: preferred, required, or off (plain Kubernetes)."""

    PREFERRED = "preferred"
    REQUIRED = "required"
    OFF = "off"


class Resize(StrEnum):
    """Whether kfext may change the CPU of running pods: no, only show what it would do, or yes."""

    OFF = "off"
    OBSERVE = "observe"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Range:
    """How many training pods a job may have: Master or Chief included, PS and Evaluator not."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """The source of progress: auto, off, push or stdout, the last with a regular expression."""

    source: str = AUTO
    pattern: str = ""

    @property
    def is_log(self) -> bool:
        """Whether progress is read from the log of the job."""
        return self.source in {AUTO, STDOUT}


Value: TypeAlias = str | int | Fraction | Range | MetricsSource
"""A parsed setting; memory is in bytes."""

Rule: TypeAlias = Callable[[str, str], Value]
"""Field and text -> parsed setting. Raises SettingError."""


def parse_setting(key: str, written: str, *, field: str) -> Value:
    """Return the value of a known key; `field` is where it is written. Raises SettingError."""
    return _RULES[key](field, written.strip())


def is_setting(key: str) -> bool:
    """Return whether an annotation key is a setting of kfext."""
    return key in _RULES


def known_settings() -> tuple[str, ...]:
    """Return every key, those with a replica type as suffix included."""
    return tuple(_RULES)


def _colocation(field: str, written: str) -> Value:
    return Colocation(_word(field, written, tuple(Colocation)))


def _network(field: str, written: str) -> Value:
    return _word(field, written, (POD, HOST))


def _resize(field: str, written: str) -> Value:
    return Resize(_word(field, written, tuple(Resize)))


def _migrate(field: str, written: str) -> Value:
    return _word(field, written, ("never", "checkpointed"))


def _gpu_priority(field: str, written: str) -> Value:
    return _word(field, written, ("low", "high"))


def _elastic(field: str, written: str) -> Value:
    if written.lower() == OFF:
        return OFF
    match = _RANGE.fullmatch(written)
    minimum, maximum = map(int, match.groups()) if match else (0, 0)
    if not 1 <= minimum <= maximum:
        _refuse(field, written, "MIN-MAX with 1 <= MIN <= MAX, or off", "2-8")
    return Range(minimum=minimum, maximum=maximum)


def _metrics(field: str, written: str) -> Value:
    allowed = f"auto, off, push, or stdout: and a regular expression (RE2) of at most {LONGEST} "
    allowed += "characters of ASCII with a group named `value`"
    example = r"stdout:loss=(?P<value>[0-9.]+)"
    word, colon, pattern = written.partition(":")
    word = word.strip().lower()
    if not colon and word in {AUTO, OFF, PUSH}:
        return MetricsSource(source=word)
    if word != STDOUT or not 0 < len(pattern) <= LONGEST or not pattern.isascii():
        _refuse(field, written, allowed, example)
    try:
        compiled(pattern)
    except ValueError as error:
        _refuse(field, written, f"{allowed} (of this one: {error})", example)
    return MetricsSource(source=STDOUT, pattern=pattern)


def _fraction(field: str, written: str) -> Value:
    share = Fraction(written) if _DECIMAL.fullmatch(written) else Fraction(0)
    if not 0 < share <= 1:
        _refuse(field, written, "a decimal number x with 0 < x <= 1", "0.5")
    return share


def _gpu_memory(field: str, written: str) -> Value:
    try:
        size = amount(MEMORY, written)
    except QuantityError:
        size = 0
    if size <= 0:
        _refuse(field, written, "a positive quantity of memory", "8Gi")
    return size


def _word(field: str, written: str, allowed: tuple[str, ...]) -> str:
    word = written.lower()
    if word not in allowed:
        _refuse(field, written, ", ".join(allowed), allowed[0])
    return word


def _refuse(field: str, written: str, allowed: str, example: str) -> NoReturn:
    shown = written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}…"
    raise SettingError(field=field, value=shown, allowed=allowed, example=example)


_GPU_RULES: Mapping[str, Rule] = {
    names.GPU_SHARE: _fraction,
    names.GPU_MEMORY: _gpu_memory,
    names.GPU_PRIORITY: _gpu_priority,
    names.GPU_LIMIT: _fraction,
}
_RULES: Mapping[str, Rule] = {
    names.COLOCATION: _colocation,
    names.NETWORK: _network,
    names.ELASTIC: _elastic,
    names.RESIZE: _resize,
    names.MIGRATE: _migrate,
    names.METRICS: _metrics,
    **_GPU_RULES,
    **{f"{key}.{kind}": rule for key, rule in _GPU_RULES.items() for kind in _GPU_TYPES},
}
