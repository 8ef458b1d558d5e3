"""How the commands print what they found."""

import json

import pytest
import yaml

from kfext.cli.output import age, printed, table

VALUES = [{"job": "PyTorchJob team/train", "left": None, "pods": 2}]


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_program_reads_back_the_values(output: str, read: object) -> None:
    assert callable(read)
    assert read(printed(VALUES, output=output, words=lambda: "words")) == VALUES


def test_a_person_gets_the_words() -> None:
    assert printed(VALUES, output="text", words=lambda: "words\n") == "words\n"


def test_the_columns_of_a_table_stand_below_each_other() -> None:
    rows = [("JOB", "PODS", "WHY"), ("a-long-name", "2", ""), ("b", "10", "no room")]
    assert list(table(rows)) == [
        "JOB          PODS  WHY",
        "a-long-name  2",
        "b            10    no room",
    ]


AGES = {0: "0s", 59.9: "59s", 119: "119s", 120: "2m", 7199: "119m", 7200: "2h", 172_800: "2d"}


@pytest.mark.parametrize(("seconds", "want"), AGES.items())
def test_a_length_of_time_is_that_of_kubectl(seconds: float, want: str) -> None:
    assert age(seconds) == want
