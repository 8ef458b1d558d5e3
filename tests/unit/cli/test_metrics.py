"""What `kubectl kfext metrics` shows of a log."""

import math
from typing import Any

import pytest

from kfext.cli.metrics import described, in_words, read
from kfext.kube.pod_log import lines_of
from tests.builders import job, pod

JOB = job().worker(2, cpu="1").resumed().build()
POD = pod(JOB, "worker", 0, bound="a")


def shown(*texts: str, expression: str = "", now: float = 1e12) -> dict[str, Any]:
    body = "\n".join(f"2026-11-22T10:00:{at:02}.5Z {text}" for at, text in enumerate(texts))
    lines = lines_of(body.encode())
    return described(read(JOB, POD, lines, expression), expression=expression, now=now)


TRAINING = ["starting", *(f"step {10 * n}/100 loss {1 - n / 20}" for n in range(5)), "saved"]


def test_what_matched_and_the_series() -> None:
    found = shown(*TRAINING)
    assert (found["lines"], found["recognised"]) == (7, 5)
    assert (found["metric"], found["value"], found["better"]) == ("loss", 0.8, "lower")
    assert (found["step"], found["total"]) == (40, 100)
    assert (found["stepsPerSecond"], found["secondsLeft"]) == (10.0, 6.0)
    assert [one["step"] for one in found["series"]] == [0, 10, 20, 30, 40]
    assert found["series"][0]["metrics"] == {"loss": 1.0}


def test_words_for_a_person() -> None:
    words = in_words(shown(*TRAINING))
    assert "pod train-worker-0, container pytorch" in words
    assert "5 of 7 lines, without a setting" in words
    assert "loss 0.8, lower is better" in words
    assert "40 of 100, 10 a second, 6 s left" in words
    last = words.splitlines()[-1]
    assert last.split() == ["10:00:05", "40", "loss=0.8", *["step", "40/100", "loss", "0.8"]]


def test_progress_is_that_of_the_last_half_minute_against_the_one_before() -> None:
    found = shown(*(f"loss {2.0 if second < 30 else 1.5}" for second in range(60)))
    assert found["progress"] == pytest.approx(0.25)
    assert "0.25 of its first 30 s" in in_words(found)


def test_of_a_log_without_progress_it_says_so() -> None:
    words = in_words(shown("lr: 0.1", "done"))
    assert "0 of 2 lines" in words
    assert "try --regex" in words


def test_an_expression_is_tried_in_place_of_what_kfext_recognises() -> None:
    found = shown("badness is 3", "loss is 5", expression=r"badness is (?P<value>\d)")
    assert (found["recognised"], found["value"]) == (1, 3.0)
    assert "by the expression" in in_words(found)


@pytest.mark.parametrize("word", ["nan", "inf"])
def test_what_is_no_number_is_shown_as_such(word: str) -> None:
    found = shown("loss: 1.0", f"loss: {word}")
    assert found["diverged"]
    assert found["series"][-1]["metrics"] == {"loss": None}
    assert "loss not a number" in in_words(found)
    numbers = [found["value"], found["stepsPerSecond"]]
    assert all(number is None or math.isfinite(number) for number in numbers)
