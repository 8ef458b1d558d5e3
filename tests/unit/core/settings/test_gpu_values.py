from fractions import Fraction

import pytest

from kfext import names
from kfext.core.settings.gpu_values import contradictions, of_type

HALF, SHARE, LIMIT = Fraction(1, 2), names.GPU_SHARE, names.GPU_LIMIT
RULED_OUT: dict[str, tuple[dict[str, object], list[str]]] = {
    "nothing": ({}, []),
    "a limit at the share": ({SHARE: HALF, LIMIT: HALF}, []),
    "a limit below it": ({SHARE: HALF, LIMIT: Fraction(1, 4)}, [LIMIT]),
    "a type's limit below the share of all": (
        {SHARE: HALF, f"{LIMIT}.ps": Fraction(1, 4)},
        [f"{LIMIT}.ps"],
    ),
    "the limit of all below the share of a type": (
        {f"{SHARE}.worker": HALF, LIMIT: Fraction(1, 4)},
        [LIMIT],
    ),
    "a share of a job that is not placed": (
        {f"{SHARE}.worker": HALF, names.COLOCATION: "off"},
        [names.COLOCATION],
    ),
    "no share of such a job": ({names.COLOCATION: "off", LIMIT: HALF}, []),
}


@pytest.mark.parametrize(("values", "want"), RULED_OUT.values(), ids=RULED_OUT)
def test_what_other_settings_rule_out(values: dict[str, object], want: list[str]) -> None:
    found = contradictions(values)
    assert [key for key, _ in found] == want
    assert all(key in error.field for key, error in found)


def test_a_type_has_its_own_value_or_that_of_all() -> None:
    values = {SHARE: 1, f"{SHARE}.ps": 2}
    assert [of_type(values, SHARE, suffix) for suffix in ("", ".ps", ".worker")] == [1, 2, 1]
