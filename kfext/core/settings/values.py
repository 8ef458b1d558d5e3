"""The values that each setting may have: one small function per key.

White space around a value and the case of key words are ignored; units of quantities and regular
expressions keep their case, which matters there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypeAlias

from kfext import names
from kfext.core.settings.expression import LONGEST, compiled
from kfext.core.settings.gpu_values import GPU_RULES
from kfext.core.settings.rule import OFF, Rule, refuse, word

POD, HOST = "pod", "host"
AUTO, STDOUT, PUSH = "auto", "stdout", "push"

_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")


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


def parse_setting(key: str, written: str, *, field: str) -> Value:
    """Return the value of a known key; `field` is where it is written. Raises SettingError."""
    return _RULES[key](field, written.strip())


def is_setting(key: str) -> bool:
    """Return whether an annotation key is a setting of kfext."""
    return key in _RULES


def known_settings() -> tuple[str, ...]:
    """Return every key."""
    return tuple(_RULES)


def _colocation(field: str, written: str) -> Value:
    return Colocation(word(field, written, tuple(Colocation)))


def _network(field: str, written: str) -> Value:
    return word(field, written, (POD, HOST))


def _resize(field: str, written: str) -> Value:
    return Resize(word(field, written, tuple(Resize)))


def _migrate(field: str, written: str) -> Value:
    return word(field, written, ("never", "checkpointed"))


def _elastic(field: str, written: str) -> Value:
    if written.lower() == OFF:
        return OFF
    match = _RANGE.fullmatch(written)
    minimum, maximum = map(int, match.groups()) if match else (0, 0)
    if not 1 <= minimum <= maximum:
        refuse(field, written, "MIN-MAX with 1 <= MIN <= MAX, or off", "2-8")
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
        refuse(field, written, allowed, example)
    try:
        compiled(pattern)
    except ValueError as error:
        refuse(field, written, f"{allowed} (of this one: {error})", example)
    return MetricsSource(source=STDOUT, pattern=pattern)


_RULES: Mapping[str, Rule[Value]] = {
    names.COLOCATION: _colocation,
    names.NETWORK: _network,
    names.ELASTIC: _elastic,
    names.RESIZE: _resize,
    names.MIGRATE: _migrate,
    names.METRICS: _metrics,
    **GPU_RULES,
}
