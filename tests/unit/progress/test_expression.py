"""The values that a user's regular expression finds in a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.lines import Line, read_line, read_matched
from kfext.core.progress.position import Position

PLAIN = r"loss=(?P<value>[0-9.]+)"
ALL = r"at (?P<step>\d+)/(?P<total>\d+): (?P<name>\w+) is (?P<value>\S+)"
TEXT = r"is (?P<value>.*)"


def line(name: str, value: float, *, step: int | None = None, total: int | None = None) -> Line:
    return Line(((name, value),), Position(step, total, whole=True))


CASES: dict[str, tuple[str, str, Line | None]] = {
    "a value and the word before it": (PLAIN, "my loss=0.5", line("loss", 0.5)),
    "all groups": (ALL, "at 10/50: badness is 3", line("badness", 3, step=10, total=50)),
    "letters beyond ASCII before": (PLAIN, "äöü loss=0.5", line("loss", 0.5)),
    "no match": (PLAIN, "accuracy=0.5", None),
    "no number": (TEXT, "loss is small", None),
    "a value without a word": (r"^(?P<value>\d+)$", "17", line("value", 17)),
    "a long step": (r"(?P<step>\d+): (?P<value>\d)", "1" * 99 + ": 5", line("value", 5)),
}


@pytest.mark.parametrize(("expression", "raw", "want"), CASES.values(), ids=CASES)
def test_the_values_that_an_expression_finds(expression: str, raw: str, want: Line | None) -> None:
    assert read_matched(raw, expression) == want


def test_an_expression_finds_what_kfext_does_not_recognise() -> None:
    assert read_line("badness is now 3.5") is None
    assert read_matched("badness is now 3.5", r"now (?P<value>[0-9.]+)") is not None


@given(st.text(max_size=200), st.sampled_from([PLAIN, ALL, TEXT, "(?P<value>.*)", "(?P<value>)"]))
def test_any_line_can_be_matched(raw: str, expression: str) -> None:
    read_matched(raw, expression)
