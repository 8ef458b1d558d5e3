"""Rows of tables, whose names stand above them."""

import pytest

from kfext.core.progress.tables import Table

HEADING = "epoch   train_loss   time"
CASES = {
    "a row": ([HEADING, "1       0.51         00:12"], "epoch: 1, train_loss: 0.51, time: 00:12"),
    "a row below a rule": (
        [HEADING, "-----   ----------   ----", "1       0.51         5.1"],
        "epoch: 1, train_loss: 0.51, time: 5.1",
    ),
    "a row between bars": (
        ["| iter | loss | acc |", "|    4 | 0.51 | 0.9 |"],
        "iter: 4, loss: 0.51, acc: 0.9",
    ),
    "a number of rows": (["#   loss   acc", "7   0.5    1"], "step: 7, loss: 0.5, acc: 1"),
    "a bar behind a row": (
        ["Epoch   box_loss   Size", " 1/5    0.51       640:  50%|##  | 2/4 [00:01<00:01]"],
        "Epoch: 1/5, box_loss: 0.51, Size: 640, 50%, ##, 2/4 [00:01<00:01]",
    ),
    "a row after other lines": (
        [HEADING, "saved a checkpoint", "2       0.41         5.1"],
        "epoch: 2, train_loss: 0.41, time: 5.1",
    ),
}


@pytest.mark.parametrize(("lines", "want"), CASES.values(), ids=CASES)
def test_the_numbers_of_a_row_have_the_names_above_them(lines: list[str], want: str) -> None:
    table = Table()
    assert [table.named(line) for line in lines][-1] == want


OTHER = {
    "a row without a heading": ["1       0.51         5.1"],
    "a row below a heading without a measure": ["Name   Type   Params", "0      1      25"],
    "a row with a name of its own": ["name   loss   acc", "all    0.5    0.9"],
    "a shorter row": [HEADING, "1       0.51"],
    "a line": [HEADING, "step 5: loss 0.5, acc 0.1"],
}


@pytest.mark.parametrize("lines", OTHER.values(), ids=OTHER)
def test_any_other_line_stays_as_it_is(lines: list[str]) -> None:
    table = Table()
    assert [table.named(line) for line in lines] == lines
