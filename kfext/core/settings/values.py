"""The values that settings may have, and their parsers.

A parser expects a text without spaces around it. It raises ValueError for an invalid text, with the
reason if the list of allowed values does not give it. The case of key words is ignored.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any

import re2

from kfext.errors import QuantityError
from kfext.model.gpu import UNITS
from kfext.model.quantity import MEMORY, amount

OFF, NEVER, CHECKPOINTED = "off", "never", "checkpointed"
CHECKPOINT, ALWAYS = "checkpoint", "always"
REPORT, RESTART = "report", "restart"
POD, HOST = "pod", "host"
AUTO, PUSH, STDOUT = "auto", "push", "stdout"
LOW, HIGH = "low", "high"
LONGEST = 512
"""The most characters of an expression."""
MAX_INSTRUCTIONS = 300
"""The most instructions of a compiled expression; 30 to 80 are usual. The time of RE2 is in
proportion to the line and to the instructions: 4,096 characters take at most 6 ms."""
_MAX_MEMORY = 256 * 1024  # bytes
_MAX_CLASSES = 4
"""The most Unicode classes, such as \\pL: if case is ignored, each takes 0.25 ms."""
_MAX_CACHED = 256
"""The most cached expressions, together at most 64 MiB. They are cached because every change of a
namespace resolves settings again."""
_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_DECIMAL = re.compile(r"[0-9]?\.[0-9]{1,6}|[0-9]")
_MAX_GPU_MEMORY = 100 * 2**40
"""The most bytes: more than any GPU has, and within the range of the planner's numbers."""

Parser = Callable[[str], Any]


class Colocation(StrEnum):
    """Whether the pods of a job are placed together; off: as on plain Kubernetes."""

    PREFERRED = "preferred"
    REQUIRED = "required"
    OFF = "off"


class Resize(StrEnum):
    """Whether kfext may change the CPU of running pods; observe: dry run."""

    OFF = "off"
    OBSERVE = "observe"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Range:
    """The allowed number of training pods: Master and Chief count, PS and Evaluator do not."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """The source of progress: auto, push, off, or stdout with a regular expression."""

    source: str = AUTO
    pattern: str = ""

    @property
    def is_log(self) -> bool:
        """Whether the log of the job is read: with `push`, for checkpoints and until it posts."""
        return self.source != OFF


def word_of(*words: str) -> Parser:
    """Return a parser of key words."""
    by_name = {str(word): word for word in words}

    def parse(written: str) -> str:
        if (word := by_name.get(written.lower())) is None:
            raise ValueError
        return word

    return parse


def decimal(allows: Callable[[Fraction], bool]) -> Parser:
    """Return a parser of decimal numbers."""

    def parse(written: str) -> float:
        number = Fraction(written) if _DECIMAL.fullmatch(written) else None
        if number is None or not allows(number):
            raise ValueError
        return float(number)

    return parse


def parse_units(written: str) -> int:
    """Return a GPU share in hundredths."""
    number = Fraction(written) * UNITS if _DECIMAL.fullmatch(written) else Fraction(0)
    if not 0 < number <= UNITS or number.denominator != 1:
        raise ValueError
    return int(number)


def parse_memory(written: str) -> int:
    """Return an amount of GPU memory in bytes."""
    try:
        size = amount(MEMORY, written)
    except QuantityError:
        size = 0
    if not 0 < size <= _MAX_GPU_MEMORY:
        raise ValueError
    return size


def parse_range(written: str) -> Range | None:
    """Return a range, or None for `off`."""
    if written.lower() == OFF:
        return None
    match = _RANGE.fullmatch(written)
    minimum, maximum = map(int, match.groups()) if match else (0, 0)
    if not 1 <= minimum <= maximum:
        raise ValueError
    return Range(minimum=minimum, maximum=maximum)


def parse_metrics(written: str) -> MetricsSource:
    """Return the source of progress."""
    word, colon, pattern = written.partition(":")
    word = word.strip().lower()
    if not colon and word in {AUTO, PUSH, OFF}:
        return MetricsSource(source=word)
    if word != STDOUT or not 0 < len(pattern) <= LONGEST or not pattern.isascii():
        raise ValueError
    compiled(pattern)
    return MetricsSource(source=STDOUT, pattern=pattern)


def compiled(expression: str) -> Any:
    """Return a regular expression, compiled for an engine that runs in linear time.

    The engine has neither look-around nor backreferences. Raises ValueError with the reason.
    """
    pattern, reason = _compiled(expression)
    if reason:
        raise ValueError(reason)
    return pattern


@lru_cache(maxsize=_MAX_CACHED)
def _compiled(expression: str) -> tuple[Any, str]:
    """Return the compiled expression, or the reason for a refusal, which is cached too."""
    if (classes := expression.count(r"\p") + expression.count(r"\P")) > _MAX_CLASSES:
        return None, f"it names {classes} classes of Unicode; at most {_MAX_CLASSES} are allowed"
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    try:
        pattern = re2.compile(expression, options)
    except re2.error as error:
        why = error.args[0] if error.args else "invalid"
        return None, why.decode() if isinstance(why, bytes) else str(why)
    if pattern.programsize > MAX_INSTRUCTIONS:
        return None, (
            f"it compiles to {pattern.programsize} instructions, of {MAX_INSTRUCTIONS} at most: "
            "repeat less, and use letters such as [a-z] instead of classes of Unicode"
        )
    if "value" not in pattern.groupindex:
        return None, "it has no group named `value`"
    return pattern, ""
