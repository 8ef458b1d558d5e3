"""What a terminal would show of a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.visible import LONGEST_LINE, visible

CASES = {
    "a plain line": ("loss: 0.5", "loss: 0.5"),
    "the last state of a bar": ("1/9 [=>]\r2/9 [==>]\r3/9 [===>]", "3/9 [===>]"),
    "a carriage return as syslog writes it": ("1/9 [=>]#0152/9 [==>]", "2/9 [==>]"),
    "a bar whose last state was erased": ("2/9 [==>]\r          ", "2/9 [==>]"),
    "a line that ends with a carriage return": ("loss: 0.5\r", "loss: 0.5"),
    "a bar that goes back by backspaces": (
        "1/9 - loss: 2" + "\b" * 13 + "2/9 - loss: 1",
        "2/9 - loss: 1",
    ),
    "colours": ("\x1b[1m\x1b[32mloss\x1b[0m: \x1b[38;5;208m0.5\x1b[0m", "loss: 0.5"),
    "a cursor that is moved": ("\x1b[2K\x1b[1A\x1b[?25lloss 0.5", "loss 0.5"),
    "a link": ("\x1b]8;;https://example.com\x1b\\loss 0.5\x1b]8;;\x1b\\", "loss 0.5"),
    "a title of the window": ("\x1b]0;training\x07loss 0.5", "loss 0.5"),
    "bytes that are no text": ("\x00\x01loss 0.5\x7f", "loss 0.5"),
    "nothing": ("\r\r  \r", ""),
}


@pytest.mark.parametrize(("raw", "want"), CASES.values(), ids=CASES)
def test_what_is_visible(raw: str, want: str) -> None:
    assert visible(raw) == want


def test_of_a_long_line_the_end_is_looked_at() -> None:
    assert visible("x" * 10**6 + " loss 0.5").endswith(" loss 0.5")


@given(st.text())
def test_nothing_is_too_odd_and_nothing_grows(raw: str) -> None:
    shown = visible(raw)
    assert len(shown) <= min(len(raw), LONGEST_LINE)
    assert not set(shown) & set("\r\b\x1b\x00")
