"""The log reader on logs that were gathered independently of it: right, unknown or wrong."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfext.core.progress.followed import Followed
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment

Log = dict[str, Any]
LOGS: list[Log] = yaml.load(
    Path(__file__).with_name("gathered.yaml").read_text(), Loader=yaml.CSafeLoader
)
_START, _LINE_SECONDS = 1000.0, 5.0
MIN_RIGHT = 175
"""The fewest of 255 logs to be read completely; the others show too little, or are ambiguous."""


def read(log: Log) -> Followed:
    """Read a log in which the lines are 5 s apart."""
    followed = Followed()
    lines = [
        LogLine(_START + _LINE_SECONDS * number, text) for number, text in enumerate(log["lines"])
    ]
    now = _START + _LINE_SECONDS * (len(lines) + 1)
    followed.read_lines(lines, now=Moment(wall=now, monotonic=now), source="pod")
    return followed


def wrong(log: Log, followed: Followed) -> list[str]:
    """Return the values that are read but that a careful person would not read in the log."""
    progress = followed.reported().progress
    steps, ends = zip(*log["positions"], strict=True)
    results = []
    if progress.step is not None and progress.step not in steps:
        results.append(f"step {progress.step}")
    if progress.total is not None and progress.total not in ends:
        results.append(f"total {progress.total}")
    if progress.metric and progress.value is not None and not _is_measure(log, progress):
        results.append(f"measure {progress.metric}={progress.value}")
    if followed.course.restarts > log["restarts"]:
        results.append(f"restarts {followed.course.restarts}")
    return results


def is_known(log: Log, followed: Followed) -> bool:
    """Return whether all values in the log are read."""
    progress = followed.reported().progress
    steps, ends = zip(*log["positions"], strict=True)
    return (
        (progress.step is not None or None in steps)
        and (progress.total is not None or None in ends)
        and ((bool(progress.metric) and progress.value is not None) or None in log["measures"])
        and followed.course.restarts == log["restarts"]
    )


def _is_measure(log: Log, progress: Any) -> bool:
    return any(
        (_same_value(value, progress.value) and _same_name(name, progress.metric))
        for name, value in filter(None, log["measures"])
    )


def _same_value(left: float, other: float) -> bool:
    return math.isclose(left, other, rel_tol=1e-6) or (math.isnan(left) and math.isnan(other))


def _same_name(left: str, other: str) -> bool:
    short = ["".join(filter(str.isalnum, name.lower())) for name in (left, other)]
    return short[0] in short[1] or short[1] in short[0]


@pytest.mark.parametrize("log", LOGS, ids=[log["name"] for log in LOGS])
def test_no_value_is_read_wrong(log: Log) -> None:
    assert wrong(log, read(log)) == []


def test_most_logs_are_read_completely() -> None:
    counts = Counter(is_known(log, read(log)) for log in LOGS)
    assert counts[True] >= MIN_RIGHT, counts
