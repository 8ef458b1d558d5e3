"""A user's expression costs time in proportion to the line, or is refused."""

import pytest

from kfext.core.settings.expression import LONGEST, compiled

REFUSED = {
    "no group": "loss=([0-9.]+)",
    "it does not compile": "(?P<value>",
    "it looks ahead": "(?=x)(?P<value>.)",
    "it refers back": r"(?P<value>.)\1",
    "it repeats too often": "(?P<value>.){99999}",
    "it needs too much memory": "(?P<value>" + r"[\pL\pN]{0,50}" * 30 + ")",
}


@pytest.mark.parametrize("expression", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compiled(expression)


def test_an_expression_finds_its_groups() -> None:
    found = compiled(r"step (?P<step>\d+): (?P<value>[0-9.]+)").search("at step 10: 0.5")
    assert (found["step"], found["value"]) == ("10", "0.5")


@pytest.mark.parametrize(
    "expression", ["(a|a)*$(?P<value>b)", "(a*)*(?P<value>b)", "(.*.*.*)*(?P<value>=)"]
)
def test_what_makes_others_backtrack_without_end_ends(expression: str) -> None:
    assert len(expression) <= LONGEST
    assert compiled(expression).search("a" * 100_000 + "!") is None
