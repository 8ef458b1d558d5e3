"""The numbers of a line with what stands around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.fields import Field, fields

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
        [Field("Epoch", "1", remark="train", opened=True, after="]")],
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


def test_of_a_line_that_is_all_numbers_only_so_many_are_read() -> None:
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
