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
_MOST_MEMORY = 100 * 2**40
"""Far above any GPU: a number that no GPU has still has to fit in what the planner counts."""
_SHOWN = 20
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


def _decimal(written: str) -> Fraction:
    """Return a decimal number, -1 for what is none."""
    return Fraction(written) if _DECIMAL.fullmatch(written) else Fraction(-1)


GPU_RULES: Mapping[str, Rule[str | int | Fraction]] = {
    names.GPU_SHARE: _share,
    names.GPU_MEMORY: _memory,
    names.GPU_PRIORITY: _priority,
    names.GPU_LOSS_BUDGET: _loss_budget,
    names.GPU_MIN_SHARE: _min_share,
}
"""By key."""
_GONE = {
    f"{names.DOMAIN}/gpu-limit": (
        f"{names.GPU_SHARE}: what others leave of a GPU goes to all that have work",
        f"{names.GPU_SHARE}: 0.5",
    ),
    f"{names.DOMAIN}/gpu-isolation": (
        f"{names.GPU_PRIORITY}: jobs on one GPU always give way by their priorities",
        f"{names.GPU_PRIORITY}: low",
    ),
}
"""By key that is no setting any more, how to say it now and an example."""


def now_said(key: str, written: str) -> tuple[str, str] | None:
    """Return how to say what a former setting says, and an example; None for any other key.

    A GPU setting with a suffix, such as `.worker`, is one: the key without the suffix says it now.
    """
    base, suffix = key, ""
    if key.count(".") > names.DOMAIN.count("."):
        base, _, suffix = key.rpartition(".")
    if suffix and base in GPU_RULES:
        example = f"{base}: {written[:_SHOWN]}"
        return f"{base}, for all replicas that request exactly one GPU", example
    return _GONE.get(base)


def contradictions(values: Mapping[str, object]) -> Iterator[tuple[str, SettingError]]:
    """Yield each setting that others rule out, with the error."""
    # Nothing would account for the GPUs of a job that shares them and is not placed.
    if names.GPU_SHARE in values and values.get(names.COLOCATION) == OFF:
        yield (
            names.COLOCATION,
            SettingError(
                field=f"annotation {names.COLOCATION}",
                value=OFF,
                allowed=f"preferred or required, beside {names.GPU_SHARE}",
                example="preferred",
            ),
        )
