"""Kubernetes quantities as integers, and sums of them.

CPU is counted in millicores, every other resource in its own unit (bytes, devices, pods). Fractions
round up, as in kube-scheduler.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

from kfext.errors import QuantityError

Resources = Mapping[str, int]
"""Amount by resource name: millicores for cpu, else bytes, devices, pods. Treated as immutable."""

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
ON_EVERY_NODE = frozenset({CPU, MEMORY, PODS, "ephemeral-storage"})
"""The resources that every node has; all others, such as GPUs, are scarce."""

_SYNTAX = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?))", re.ASCII
)
_SUFFIX = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_MAX_INT64 = 2**63 - 1
_MAX_TEXT_LENGTH = 64  # characters; no real amount is longer, and a long text is slow to convert
_EXPONENT_LIMIT = 30  # larger exponents are cut to this: computing 10**1000000 would hang


def parse_quantity(value: object) -> Fraction:
    """Return the exact value of a quantity such as `500m`, `1.5`, `2Gi`, `1e3` or a number.

    Raises QuantityError for any other value, such as `1e3m`, `1 Gi` or None.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(
            f"{value!r} is not a quantity; allowed: a number with a unit, e.g. 500m"
        )
    if isinstance(value, int) and abs(value) > _MAX_INT64:
        raise QuantityError("the number is too large; allowed: up to 2^63 - 1; e.g. 500m, 2Gi")
    written = str(value)
    match = _SYNTAX.fullmatch(written) if len(written) <= _MAX_TEXT_LENGTH else None
    if match is None:
        raise QuantityError(
            f"{written[:40]!r} is not a quantity; allowed: a number with a unit (n u m k M G T P "
            "E Ki Mi Gi Ti Pi Ei); or with an exponent; e.g. 500m, 2Gi, 1e3"
        )
    number, exponent, suffix = match.groups()
    if exponent is None:
        return Fraction(number) * _SUFFIX[suffix]
    power = max(-_EXPONENT_LIMIT, min(_EXPONENT_LIMIT, int(exponent[1:])))
    return Fraction(number) * Fraction(10) ** power


def amount(resource: str, value: object) -> int:
    """Return a quantity in the resource's unit, rounded up, in 64 bits. Raises QuantityError."""
    scale = 1000 if resource == CPU else 1
    return _text_amount(value, scale) if isinstance(value, str) else _amount(value, scale)


def _amount(value: object, scale: int) -> int:
    exact = parse_quantity(value) * scale
    return max(-_MAX_INT64, min(_MAX_INT64, -(-exact.numerator // exact.denominator)))


# A cluster repeats the same few amounts, and exact fractions are slow.
_text_amount = lru_cache(maxsize=4096)(_amount)


def parse_resources(values: object) -> dict[str, int]:
    """Return the positive entries of a resource list.

    The API server accepts an amount of 0, and refuses negative and malformed amounts. A caller that
    must distinguish 0 from an absent entry reads the list itself.
    """
    parsed = {}
    for name, value in values.items() if isinstance(values, Mapping) else ():
        try:
            number = amount(str(name), value)
        except QuantityError:
            continue
        if number > 0:
            parsed[str(name)] = number
    return parsed


def add(summands: Iterable[Resources]) -> dict[str, int]:
    """Return the sum of the amounts, resource by resource."""
    total: dict[str, int] = {}
    for resources in summands:
        for name, number in resources.items():
            total[name] = total.get(name, 0) + number
    return total


def maximum(resources: Resources, other: Resources) -> dict[str, int]:
    """Return the larger of the two amounts, resource by resource."""
    return {
        name: max(resources.get(name, 0), other.get(name, 0)) for name in {**resources, **other}
    }


def times(resources: Resources, count: int) -> dict[str, int]:
    """Return `count` times the resources."""
    return {name: number * count for name, number in resources.items()}


def amount_text(resource: str, number: int) -> str:
    """Return an amount with its unit and resource, such as `1.5 cpu` or `3.2 Gi memory`."""
    if resource == CPU:
        return f"{number / 1000:g} cpu"
    if resource in {MEMORY, "ephemeral-storage"}:
        return f"{_bytes_text(number)} {resource}"
    return f"{number} {resource.replace('GPU shares', 'GPU share') if number == 1 else resource}"


def written_amount(resource: str, number: int) -> str:
    """Return an amount as a quantity, such as `1500m` of CPU."""
    return f"{number}m" if resource == CPU else str(number)


def _bytes_text(number: int) -> str:
    """Return a number of bytes in the largest unit that fits into it."""
    for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if abs(number) >= size:
            return f"{number / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{number} bytes of"
