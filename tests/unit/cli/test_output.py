"""How the commands print their results."""

import json
import os

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kfext.cli.output import crop, format_output, plain, table

VALUES = [{"job": "PyTorchJob team/train", "left": None, "pods": 2}]


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_program_reads_back_the_values(output: str, read: object) -> None:
    assert callable(read)
    assert read(format_output(VALUES, output=output, text=lambda: ["words"])) == VALUES


def test_a_person_gets_the_words() -> None:
    assert format_output(VALUES, output="text", text=lambda: ["two", "lines"]) == "two\nlines\n"


HARMFUL = {
    "an escape": ("\x1b[2Jloss", " [2Jloss"),
    "an escape in one character": ("\x9b2Jloss", " 2Jloss"),
    "a carriage return": ("loss\r0", "loss 0"),
    "writing from right to left": ("loss \u202e5.0", "loss  5.0"),
    "a character without width": ("lo\u200bss", "lo ss"),
    "a line separator of Unicode": ("loss\u20280", "loss 0"),
    "a tab": ("loss\t0", "loss 0"),
}


@pytest.mark.parametrize(("raw", "want"), HARMFUL.values(), ids=HARMFUL)
def test_a_harmful_character_becomes_a_space(raw: str, want: str) -> None:
    assert plain(raw) == want
    assert format_output({}, output="text", text=lambda: [raw]) == f"{want}\n"


@pytest.mark.parametrize("text", ["Verlust 0,5 größer\nπ 損失\n", ""])
def test_text_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize("output", ["json", "yaml", "text"])
@given(value=st.text())
def test_no_output_has_a_character_that_a_terminal_obeys(output: str, value: str) -> None:
    shown = format_output({"metric": value}, output=output, text=lambda: [value])
    assert all(character.isprintable() or character == "\n" for character in shown)
    if output != "text":
        assert shown.isascii()


def test_the_columns_of_a_table_stand_below_each_other() -> None:
    rows = [("a-long-name", "2", ""), ("b", "10", "no room")]
    assert table(("JOB", "PODS", "WHY"), rows) == [
        "JOB          PODS  WHY",
        "a-long-name  2",
        "b            10    no room",
    ]


@given(
    rows=st.lists(st.tuples(st.text(max_size=300), st.text(max_size=300))),
    environment=st.sampled_from([{}, {"COLUMNS": "20"}, {"FORCE_COLOR": "1"}, {"TERM": "dumb"}]),
)
def test_a_table_has_a_line_for_each_row_with_all_of_its_text(
    rows: list[tuple[str, str]], environment: dict[str, str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        lines = table(("A", "B"), rows)
    assert len(lines) == 1 + len(rows)
    assert all(line.isprintable() for line in lines)
    for line, row in zip(lines[1:], rows, strict=True):
        assert line.split() == " ".join(plain(cell) for cell in row).split()


SCREENS = {
    "a screen for all lines": ((80, 24), "HEAD\none\ntwo"),
    "as many lines as the table: the cursor needs the last line": ((80, 3), "HEAD\none"),
    "too few columns": ((2, 24), "HE\non\ntw"),
}


@pytest.mark.parametrize(("size", "want"), SCREENS.values(), ids=SCREENS)
def test_a_screen_shows_the_top_of_a_table(size: tuple[int, int], want: str) -> None:
    assert crop("HEAD\none\ntwo\n", os.terminal_size(size)) == want
