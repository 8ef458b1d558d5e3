from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.errors import QuantityError
from kfext.model.quantity import (
    add,
    amount,
    amount_text,
    maximum,
    parse_quantity,
    parse_resources,
    times,
)

SCALE: dict[str, int | Fraction] = {
    "": 1, "m": Fraction(1, 1000), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9),
    "k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4, "P": 1000**5, "E": 1000**6,
    "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4, "Pi": 1024**5, "Ei": 1024**6,
}  # fmt: skip
decimals = st.integers(min_value=0, max_value=10**9)
resources = st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), decimals, max_size=3)


@given(whole=decimals, part=st.integers(min_value=0, max_value=999), unit=st.sampled_from([*SCALE]))
def test_a_quantity_is_its_number_times_its_unit_exactly(whole: int, part: int, unit: str) -> None:
    exact = (whole + Fraction(part, 1000)) * SCALE[unit]
    assert parse_quantity(f"{whole}.{part:03}{unit}") == exact
    assert parse_quantity(f"-{whole}.{part:03}{unit}") == -exact


@given(whole=decimals, power=st.integers(min_value=-12, max_value=12), letter=st.sampled_from("eE"))
def test_an_exponent_is_a_power_of_ten(whole: int, power: int, letter: str) -> None:
    assert parse_quantity(f"{whole}{letter}{power}") == whole * Fraction(10) ** power


@given(st.integers(min_value=-(10**12), max_value=10**12))
def test_a_plain_number_is_its_own_value(number: int) -> None:
    assert parse_quantity(number) == number


@given(whole=decimals, unit=st.sampled_from([*SCALE]))
def test_amounts_are_rounded_up_and_stay_within_64_bits(whole: int, unit: str) -> None:
    exact = whole * Fraction(SCALE[unit])
    result = amount("memory", f"{whole}{unit}")
    assert result == min(2**63 - 1, -(-exact.numerator // exact.denominator))


@given(st.lists(resources))
def test_a_sum_has_every_resource_of_every_summand(summands: list[dict[str, int]]) -> None:
    total = add(summands)
    for name in ("cpu", "memory", "pods"):
        assert total.get(name, 0) == sum(summand.get(name, 0) for summand in summands)


@given(resources, resources)
def test_the_maximum_has_the_larger_amounts(left: dict[str, int], right: dict[str, int]) -> None:
    for name, number in maximum(left, right).items():
        assert number == max(left.get(name, 0), right.get(name, 0))


NOT_QUANTITIES = {
    "an exponent and a unit": "1e3m",
    "a space before the unit": "1 Gi",
    "a word": "lots",
    "nothing": "",
    "not a number": "Gi",
    "two points": "1.2.3",
    "a unit in the wrong case": "1gi",
    "null": None,
    "a boolean": True,
    "a list": ["1"],
    "infinity": float("inf"),
    "digits that are not ASCII": "\u0661",
    "more digits than Python converts to a number": "9" * 5000,
}


@pytest.mark.parametrize("value", NOT_QUANTITIES.values(), ids=NOT_QUANTITIES)
def test_a_malformed_quantity_is_refused_and_left_out_of_resources(value: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(value)
    assert parse_resources({"cpu": value, "memory": "1Ki"}) == {"memory": 1024}


def test_a_number_beyond_64_bits_is_refused_as_too_large() -> None:
    with pytest.raises(QuantityError, match="too large"):
        parse_quantity(2**63)
    assert parse_quantity(2**63 - 1) == 2**63 - 1


AMOUNTS = {
    "half a core": ("cpu", "0.5", 500),
    "a millicore": ("cpu", "1m", 1),
    "less than a millicore is rounded up": ("cpu", "1u", 1),
    "an integer from YAML": ("cpu", 2, 2000),
    "a float from YAML": ("cpu", 0.1, 100),
    "memory in bytes": ("memory", "128Mi", 128 * 2**20),
    "half a byte is rounded up": ("memory", "500m", 1),
    "a signed number": ("memory", "+2k", 2000),
    "a point without digits after it": ("memory", "2.", 2),
    "a huge exponent is cut to 64 bits": ("memory", "1e9999999", 2**63 - 1),
}


@pytest.mark.parametrize(("name", "value", "want"), AMOUNTS.values(), ids=AMOUNTS)
def test_the_amount_of_a_resource(name: str, value: object, want: int) -> None:
    assert amount(name, value) == want


def test_entries_that_are_zero_or_negative_are_left_out() -> None:
    assert parse_resources({"cpu": "0", "memory": "-1", "pods": 3}) == {"pods": 3}


def test_every_resource_is_multiplied() -> None:
    assert times({"cpu": 500, "pods": 1}, 3) == {"cpu": 1500, "pods": 3}


WORDS = {
    "cores": ("cpu", 1500, "1.5 cpu"),
    "memory": ("memory", 3 * 2**30, "3 Gi memory"),
    "memory of many terabytes": ("memory", 1500 * 2**30, "1.5 Ti memory"),
    "little memory": ("memory", 5 * 2**20, "5 Mi memory"),
    "no memory": ("memory", 0, "0 bytes of memory"),
    "devices": ("nvidia.com/gpu", 4, "4 nvidia.com/gpu"),
    "shares": ("GPU shares of 0.3", 2, "2 GPU shares of 0.3"),
    "a share": ("GPU shares of 0.3 or whole GPUs", 1, "1 GPU share of 0.3 or whole GPUs"),
}


@pytest.mark.parametrize(("name", "number", "want"), WORDS.values(), ids=WORDS)
def test_the_text_of_an_amount(name: str, number: int, want: str) -> None:
    assert amount_text(name, number) == want
