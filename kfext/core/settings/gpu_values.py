"""The values of the settings by which a job shares GPUs."""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from kfext import names
from kfext.core.settings.rule import OFF, Rule, refuse, word
from kfext.errors import QuantityError, SettingError
from kfext.model.gpu_slots import UNITS
from kfext.model.quantity import MEMORY, amount

LOW, HIGH = "low", "high"
AUTO, GATE, NONE = "auto", "gate", "none"
TYPES = ("worker", "ps", "master", "chief")
"""Suffixes of the keys: a key with one is about the replicas of that type alone."""
_MOST_MEMORY = 100 * 2**40
"""Far above any GPU: a number that no GPU has still has to fit in what the planner counts."""
_DECIMAL = re.compile(r"[0-9]?\.[0-9]{1,6}|[0-9]")


def _share(field: str, written: str) -> Fraction:
    share = _decimal(written)
    if not 0 < share <= 1 or (share * UNITS).denominator != 1:
        refuse(field, written, "a decimal number x with 0 < x <= 1, in steps of 0.01", "0.5")
    return share


def _loss_budget(field: str, written: str) -> Fraction:
    budget = _decimal(written)
    if not 0 < budget < 1:
        refuse(field, written, "a decimal number x with 0 < x < 1", "0.05")
    return budget


def _min_share(field: str, written: str) -> Fraction:
    share = _decimal(written)
    if not 0 <= share < 1:
        refuse(field, written, "a decimal number x with 0 <= x < 1", "0.2")
    return share


def _memory(field: str, written: str) -> int:
    try:
        size = amount(MEMORY, written)
    except QuantityError:
        size = 0
    if not 0 < size <= _MOST_MEMORY:
        refuse(field, written, "a quantity of memory above 0 and up to 100Ti", "8Gi")
    return size


def _priority(field: str, written: str) -> str:
    return word(field, written, (LOW, HIGH))


def _isolation(field: str, written: str) -> str:
    return word(field, written, (AUTO, GATE, NONE))


def _decimal(written: str) -> Fraction:
    """Return a decimal number, -1 for what is none."""
    return Fraction(written) if _DECIMAL.fullmatch(written) else Fraction(-1)


_OF_A_JOB: Mapping[str, Rule[str | int | Fraction]] = {
    names.GPU_SHARE: _share,
    names.GPU_MEMORY: _memory,
    names.GPU_PRIORITY: _priority,
    names.GPU_LIMIT: _share,
    names.GPU_LOSS_BUDGET: _loss_budget,
    names.GPU_MIN_SHARE: _min_share,
    names.GPU_ISOLATION: _isolation,
}
GPU_RULES: Mapping[str, Rule[str | int | Fraction]] = {
    **_OF_A_JOB,
    **{f"{key}.{kind}": rule for key, rule in _OF_A_JOB.items() for kind in TYPES},
}
"""By key, with and without a type."""


def of_type(values: Mapping[str, object], key: str, suffix: str) -> object:
    """Return the value of a key for one type, whose suffix is `.worker` or empty for all types."""
    return values.get(key + suffix, values.get(key))


def contradictions(values: Mapping[str, object]) -> list[tuple[str, SettingError]]:
    """Return the settings that others rule out, each with the error."""
    return [*_limits_below_shares(values), *_left_alone(values)]


def _limits_below_shares(values: Mapping[str, object]) -> Iterator[tuple[str, SettingError]]:
    """Yield each limit once that is below a share for which it holds."""
    found: dict[str, SettingError] = {}
    for suffix in ("", *(f".{kind}" for kind in TYPES)):
        own = names.GPU_LIMIT + suffix
        key = own if own in values else names.GPU_LIMIT
        limit, share = values.get(key), of_type(values, names.GPU_SHARE, suffix)
        if isinstance(share, Fraction) and isinstance(limit, Fraction) and limit < share:
            allowed = f"a decimal number x with {float(share):g} (the share) <= x <= 1"
            found.setdefault(key, _error(key, f"{float(limit):g}", allowed, "1"))
    yield from found.items()


def _left_alone(values: Mapping[str, object]) -> Iterator[tuple[str, SettingError]]:
    """Yield that a job is to share GPUs which is not to be placed: nothing would account for it."""
    if not any(key.startswith(names.GPU_SHARE) for key in values):
        return
    if values.get(names.COLOCATION) == OFF:
        allowed = f"preferred or required, beside {names.GPU_SHARE}"
        yield names.COLOCATION, _error(names.COLOCATION, OFF, allowed, "preferred")


def _error(key: str, value: str, allowed: str, example: str) -> SettingError:
    return SettingError(field=f"annotation {key}", value=value, allowed=allowed, example=example)
