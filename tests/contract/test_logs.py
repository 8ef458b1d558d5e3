"""Lines of training logs (see logs/README.md) that are recognised without a setting."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfext.core.progress.course import Course
from kfext.core.progress.fields import Table
from kfext.core.progress.lines import Line, read_line, read_matched
from kfext.core.progress.position import Position

LOGS = Path(__file__).parent / "logs"
SETS: dict[str, dict[str, Any]] = {
    log["name"]: log
    for log in yaml.load((LOGS / "index.yaml").read_text(), Loader=yaml.CSafeLoader)
}
TRAINING = {name: log for name, log in SETS.items() if log["expect"]}
BY_EXPRESSION = {
    "espnet2": r"-(?P<step>\d+)batch: .* loss=(?P<value>[0-9.]+)",
    "tf-cnn-benchmarks": r"^(?P<step>\d+)\timages/sec.*\t(?P<value>\S+)$",
    "tf-cnn-benchmarks-nan": r"^(?P<step>\d+)\timages/sec.*\t(?P<value>\S+)$",
}
"""Sets with lines that do not name the measure or the step, so that a setting is needed."""
RECOGNISED = [name for name in TRAINING if name not in BY_EXPRESSION]


def lines_of(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_bytes().decode(errors="replace").split("\n")


def same(number: float, other: float) -> bool:
    return number == other or (math.isnan(number) and math.isnan(other))


def is_at(position: Position, want: dict[str, Any]) -> bool:
    """Whether a position has the printed step, or this step counted over all epochs."""
    over_epochs = (want.get("epoch", 1) - 1) * want.get("steps", 0) + want["step"]
    whole = position.whole and "steps" in want
    return bool(position.step == (over_epochs if whole else want["step"]))


@pytest.mark.parametrize("name", RECOGNISED)
def test_value_and_step_are_recognised_without_a_setting(name: str) -> None:
    wanted = {want["line"]: want for want in TRAINING[name]["expect"]}
    course, around, table = Course(30.0), Position(), Table()
    for number, raw in enumerate(lines_of(name), 1):
        line = read_line(table.label(raw))
        if line is not None:
            course.read_line(line, at=float(number), now=1e9)
            around = line.position if line.position.step is not None else around
        if number not in wanted:
            continue
        want = wanted[number]
        assert line is not None, (number, raw)
        values = dict(line.measures)
        assert course.metric in values, (number, course.metric, values)
        assert same(values[course.metric], want["value"]), (number, values)
        if "step" in want:
            position = line.position if line.position.step is not None else around
            assert is_at(position, want), (number, position, want)


def step_and_total(want: dict[str, Any], *, from_zero: bool) -> tuple[int | None, int | None]:
    """Return the step and the total steps of a training at a line; None stands for unknown.

    Batches of epochs of unknown length tell neither after the first epoch.
    """
    if "epoch" not in want or want["unit"] == "steps":
        return want.get("step"), want.get("steps")
    before = want["epoch"] if from_zero else want["epoch"] - 1
    if want["unit"] == "epochs":
        return int(before) + 1, want.get("epochs")
    if "steps" not in want:
        return None, None
    total = want["epochs"] * want["steps"] if "epochs" in want else None
    if total is not None and from_zero:
        # Epoch 0/9 may be the first of 9 or of 10, until the last one is 9/9 or 8/9.
        total = total + want["steps"] if want["epoch"] == want["epochs"] else None
    return before * want["steps"] + want["step"], total


STEP_ALONE = {"accelerate"}
"""Sets in which the total stands on other lines than the measure."""


@pytest.mark.parametrize("name", RECOGNISED)
def test_steps_are_counted_over_all_epochs(name: str) -> None:
    wanted = {want["line"]: want for want in TRAINING[name]["expect"]}
    from_zero = any(want.get("epoch") == 0 for want in wanted.values())
    course, last, table = Course(30.0), -1, Table()
    for number, raw in enumerate(lines_of(name), 1):
        line = read_line(table.label(raw))
        if line is not None:
            course.read_line(line, at=float(number), now=1e9)
        if number not in wanted:
            continue
        step, total = step_and_total(wanted[number], from_zero=from_zero)
        result = course.progress()
        if step is not None:
            assert result.step == step, (number, result)
        if name not in STEP_ALONE:
            assert result.total == total, (number, result)
        first = wanted[number].get("epoch") == (0 if from_zero else 1)
        if wanted[number].get("unit", "").endswith("of-epoch") and step is None and not first:
            assert result.step in {None, wanted[number]["epoch"] + from_zero}, number
        elif "unit" in wanted[number]:
            assert result.step is not None, number
            assert result.step >= last, (number, result)
            last = result.step


@pytest.mark.parametrize("name", RECOGNISED)
def test_no_restart_is_seen_in_a_log_without_a_restart(name: str) -> None:
    course, table = Course(30.0), Table()
    for number, raw in enumerate(lines_of(name), 1):
        line = read_line(table.label(raw))
        if line is not None:
            course.read_line(line, at=float(number), now=1e9)
    assert course.restarts == 0


@pytest.mark.parametrize(("name", "expression"), BY_EXPRESSION.items(), ids=BY_EXPRESSION)
def test_value_and_step_are_found_by_an_expression(name: str, expression: str) -> None:
    lines = lines_of(name)
    for want in TRAINING[name]["expect"]:
        line = read_matched(lines[want["line"] - 1], expression)
        assert line is not None, want
        assert same(line.measures[0][1], want["value"])
        assert line.position.step == want["step"]


@pytest.mark.parametrize("name", [name for name in SETS if name not in TRAINING])
def test_nothing_is_recognised_in_output_that_is_no_training(name: str) -> None:
    table = Table()
    results: list[Line] = [line for raw in lines_of(name) if (line := read_line(table.label(raw)))]
    assert [line for line in results if line.measures] == []


def test_most_of_the_sets_are_recognised() -> None:
    assert len(RECOGNISED) >= 45
    assert len(SETS) - len(TRAINING) >= 10
    assert sum(SETS[name]["source"].startswith("ran:") for name in RECOGNISED) >= 30
