"""A user's expression costs time in proportion to the line, or is refused."""

from contextlib import suppress

import pytest

import kfext.core.settings.expression as module
from kfext.core.settings.expression import LONGEST, compiled

REFUSED = {
    "no group": "loss=([0-9.]+)",
    "it does not compile": "(?P<value>",
    "it looks ahead": "(?=x)(?P<value>.)",
    "it refers back": r"(?P<value>.)\1",
    "it repeats too often": "(?P<value>.){99999}",
    "it needs too much memory": "(?P<value>" + r"[\pL]{0,50}" * 4 + ")",
    "it names many classes of Unicode": r"(?i)\PL" + r"\PN" * 100 + "(?P<value>.)",
}


@pytest.mark.parametrize("expression", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compiled(expression)


@pytest.mark.parametrize("expression", [*REFUSED.values(), "(?P<value>.)"])
def test_an_expression_is_compiled_once_also_if_that_fails(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with suppress(ValueError):
        compiled(expression)
    monkeypatch.setattr(module, "re2", None)  # what it is compiled with
    with suppress(ValueError):
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
