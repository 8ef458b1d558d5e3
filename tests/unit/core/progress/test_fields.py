"""The visible text of a line, its numbers with their names, and rows of tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.fields import LONGEST_LINE, Field, Table, fields, visible

SHOWN = {
    "a plain line": ("loss: 0.5", "loss: 0.5"),
    "the last state of a bar": ("1/9 [=>]\r2/9 [==>]\r3/9 [===>]", "3/9 [===>]"),
    "a carriage return as syslog writes it": ("1/9 [=>]#0152/9 [==>]", "2/9 [==>]"),
    "a bar with its last state erased": ("2/9 [==>]\r          ", "2/9 [==>]"),
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


@pytest.mark.parametrize(("raw", "want"), SHOWN.values(), ids=SHOWN)
def test_the_visible_text_of_a_line(raw: str, want: str) -> None:
    assert visible(raw) == want


def test_the_end_of_a_long_line_is_read() -> None:
    assert visible("x" * 10**6 + " loss 0.5").endswith(" loss 0.5")


@given(st.text())
def test_any_text_is_readable_and_never_gets_longer(raw: str) -> None:
    shown = visible(raw)
    assert len(shown) <= min(len(raw), LONGEST_LINE)
    assert not set(shown) & set("\r\b\x1b\x00")


CASES: dict[str, tuple[str, list[Field]]] = {
    "name and sign": ("loss=0.5", [Field("loss", "0.5", sign="=")]),
    "two words and a sign": ("lm loss: 6.5E+00", [Field("lm loss", "6.5E+00", sign=":")]),
    "at most three words": ("we see my train loss: 1", [Field("my train loss", "1", sign=":")]),
    "no sign": ("Loss 6.9", [Field("Loss", "6.9")]),
    "quotes around both": (
        "'loss': '0.5'",
        [Field("loss", "0.5", sign=":", quoted=True, after="'")],
    ),
    "a name with an apostrophe": (
        "training's logloss: 0.5",
        [Field("training's logloss", "0.5", sign=":")],
    ),
    "a fraction in brackets": (
        "Step [100/600], x",
        [Field("Step", "100", "600", opened=True, after="]")],
    ),
    "a fraction of a word": ("Iteration 10 of 180", [Field("Iteration", "10", "180")]),
    "thousands": ("step 2,400/9,000,", [Field("step", "2400", "9000", after=",")]),
    "a list of numbers without spaces": ("[1,200]", []),
    "a remark in brackets": (
        "Epoch(train)  [1]",
        [Field("Epoch", "1", opened=True, after="]")],
    ),
    "brackets after brackets": (
        "[1/20][5/90]",
        [
            Field("", "1", "20", opened=True, first=True, after="]"),
            Field("", "5", "90", opened=True, joined=True, after="]"),
        ],
    ),
    "a tensor": ("loss: tensor(0.5)", [Field("loss", "0.5", opened=True, sign=":", after=")")]),
    "an array": (
        "loss: Array(0.5, dtype=float32)",
        [Field("loss", "0.5", opened=True, sign=":", after=",")],
    ),
    "a row of a table": ("| loss | 0.5 |", [Field("loss", "0.5", sign="|", first=True, after="|")]),
    "not a number": ("loss: nan", [Field("loss", "nan", sign=":")]),
    "infinite": ("loss=-inf", [Field("loss", "-inf", sign="=")]),
    "a number within a word is none": ("top5 conv2d 3x 170M/170M v1.2.3 a-1 b/2", []),
    "a time of day": ("10:00:01,123 loss 1", [Field("loss", "1")]),
    "a date": ("2026-11-22T10:00:00.123Z loss 1", [Field("loss", "1")]),
    "a date with slashes": ("05/12 10:00:00 - loss 1", [Field("loss", "1")]),
    "a bar": (
        "Steps:  7%|#  | 7/99 [00:01<00:09,  1.5s/it]",
        [Field("Steps", "7", "99", first=True, bar=True, unit="it")],
    ),
    "a bar after an epoch": (
        "Epoch 3:  7%|#  | 7/99 [00:01<00:09]",
        [Field("Epoch", "3", after=":"), Field("", "7", "99", first=True, joined=True, bar=True)],
    ),
}


def test_at_most_96_numbers_of_a_line_are_read() -> None:
    assert len(fields("1 " * 2000)) == 96


@pytest.mark.parametrize(("line", "want"), CASES.values(), ids=CASES)
def test_the_fields_of_a_line(line: str, want: list[Field]) -> None:
    assert [field._replace(at=0) for field in fields(line)] == want


@given(st.text(alphabet=st.sampled_from("0123456789.,eE+-/:=[]()|%'\" abLoss\t"), max_size=200))
def test_every_field_can_be_read(line: str) -> None:
    for field in fields(line):
        float(field.text)
        assert line[field.at : field.at + 1] in {*"+-.0123456789"}


@pytest.mark.parametrize(
    "piece", ["[", "a ", "1/", "'", "1.", "a=", "(a) ", "1:00", "-", "1e", "1,"]
)
def test_the_number_of_fields_is_bounded(piece: str) -> None:
    line = piece * (4096 // len(piece))
    assert len(fields(line)) <= 96


HEADING = "epoch   train_loss   time"
ROWS = {
    "a row": ([HEADING, "1       0.51         00:12"], "epoch: 1, train_loss: 0.51, time: 00:12"),
    "a row below a rule": (
        [HEADING, "-----   ----------   ----", "1       0.51         5.1"],
        "epoch: 1, train_loss: 0.51, time: 5.1",
    ),
    "a row between bars": (
        ["| iter | loss | acc |", "|    4 | 0.51 | 0.9 |"],
        "iter: 4, loss: 0.51, acc: 0.9",
    ),
    "a number sign": (["#   loss   acc", "7   0.5    1"], "step: 7, loss: 0.5, acc: 1"),
    "a bar after a row": (
        ["Epoch   box_loss   Size", " 1/5    0.51       640:  50%|##  | 2/4 [00:01<00:01]"],
        "Epoch: 1/5, box_loss: 0.51, Size: 640, 50%, ##, 2/4 [00:01<00:01]",
    ),
    "a mark for the best after a row": (
        ["epoch | loss | acc | time", "    2 | 0.41 | 0.9 | 5.1s *"],
        "epoch: 2, loss: 0.41, acc: 0.9, time: 5.1s, *",
    ),
    "a row after other lines": (
        [HEADING, "saved a checkpoint", "2       0.41         5.1"],
        "epoch: 2, train_loss: 0.41, time: 5.1",
    ),
}


@pytest.mark.parametrize(("lines", "want"), ROWS.values(), ids=ROWS)
def test_the_numbers_of_a_row_have_the_names_above_them(lines: list[str], want: str) -> None:
    table = Table()
    assert [table.label(line) for line in lines][-1] == want


OTHER = {
    "a row without a heading": ["1       0.51         5.1"],
    "a row below a heading without a measure": ["Name   Type   Params", "0      1      25"],
    "a row with its own name": ["name   loss   acc", "all    0.5    0.9"],
    "a shorter row": [HEADING, "1       0.51"],
    "a line that is no row": [HEADING, "step 5: loss 0.5, acc 0.1"],
}


@pytest.mark.parametrize("lines", OTHER.values(), ids=OTHER)
def test_any_other_line_is_unchanged(lines: list[str]) -> None:
    table = Table()
    assert [table.label(line) for line in lines] == lines
