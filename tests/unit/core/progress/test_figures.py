"""The numbers of a line with what stands before them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.figures import Figure, figures

CASES: dict[str, tuple[str, list[Figure]]] = {
    "name and sign": ("loss=0.5", [Figure("loss", "0.5", sign="=")]),
    "two words and a sign": ("lm loss: 6.5E+00", [Figure("lm loss", "6.5E+00", sign=":")]),
    "at most three words": ("we see my train loss: 1", [Figure("my train loss", "1", sign=":")]),
    "no sign": ("Loss 6.9", [Figure("Loss", "6.9")]),
    "quotes around both": ("'loss': '0.5'", [Figure("loss", "0.5", sign=":", unit="'")]),
    "a fraction in brackets": (
        "Step [100/600], x",
        [Figure("Step", "100", "600", opened=True, unit="]")],
    ),
    "a remark in brackets": (
        "Epoch(train)  [1]",
        [Figure("Epoch", "1", opened=True, unit="]")],
    ),
    "a tensor": ("loss: tensor(0.5)", [Figure("loss", "0.5", opened=True, sign=":", unit=")")]),
    "a row of a table": ("| loss | 0.5 |", [Figure("loss", "0.5", sign="|", first=True, unit="|")]),
    "not a number": ("loss: nan", [Figure("loss", "nan", sign=":")]),
    "infinite": ("loss=-inf", [Figure("loss", "-inf", sign="=")]),
    "a number within a word is none": ("top5 conv2d 3x 170M/170M v1.2.3", []),
    "a time of day": ("10:00:01,123 loss 1", [Figure("loss", "1")]),
    "a date": ("2026-11-22 10:00:00 loss 1", [Figure("loss", "1")]),
    "a date with slashes": ("05/12 10:00:00 - loss 1", [Figure("loss", "1")]),
    "a bar": ("7%|#  | 7/99 [00:01<", [
        Figure("", "7", first=True, unit="%"),
        Figure("", "7", "99", first=True, sign="|", unit="["),
    ]),
}  # fmt: skip


def test_of_a_line_that_is_all_numbers_only_so_many_are_read() -> None:
    assert len(figures("1 " * 2000)) == 600


@pytest.mark.parametrize(("line", "want"), CASES.values(), ids=CASES)
def test_the_figures_of_a_line(line: str, want: list[Figure]) -> None:
    assert figures(line) == want


@given(st.text(alphabet=st.sampled_from("0123456789.eE+-/:=[]()|%'\" abLoss\t"), max_size=200))
def test_every_figure_can_be_read(line: str) -> None:
    for one in figures(line):
        float(one.text)


@pytest.mark.parametrize("piece", ["[", "a ", "1/", "'", "1.", "a=", "(a) ", "1:00", "-", "1e"])
def test_the_number_of_figures_is_bounded_by_the_line(piece: str) -> None:
    line = piece * (4096 // len(piece))
    assert len(figures(line)) <= 4096
