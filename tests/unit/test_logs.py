"""One line per event, in one format, whoever logs."""

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import logging, structlog
from kfext import logs
logs.configure({level!r})
{code}
"""


def lines(code: str, *, level: str = "info") -> list[dict[str, Any]]:
    """What a program logs when nobody sits at its terminal."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=code, level=level)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


WRITERS = {
    "structlog": "structlog.get_logger('kfext.x').info('placed', job='train', nodes=1)",
    "the standard library": "logging.getLogger('kfext.x').info('%s', 'placed',"
    " extra={'job': 'train', 'nodes': 1})",
}


@pytest.mark.parametrize("code", WRITERS.values(), ids=WRITERS)
def test_a_line_is_json_with_its_fields(code: str) -> None:
    (line,) = lines(code)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "placed",
        "job": "train",
        "nodes": 1,
        "level": "info",
        "logger": "kfext.x",
    }


FAILURES = {
    "structlog": "structlog.get_logger().exception('failed')",
    "the standard library": "logging.getLogger('kopf').exception('failed')",
}


@pytest.mark.parametrize("code", FAILURES.values(), ids=FAILURES)
def test_a_traceback_stays_in_its_line(code: str) -> None:
    (line,) = lines(f"try:\n    1/0\nexcept ZeroDivisionError:\n    {code}")
    assert "ZeroDivisionError" in line["exception"]


def test_what_is_below_the_level_is_dropped() -> None:
    code = "for log in (structlog.get_logger(), logging.getLogger('x')): log.info('no')"
    assert lines(code, level="warning") == []


def test_bound_names_reach_lines_of_the_standard_library() -> None:
    code = "structlog.contextvars.bind_contextvars(job='train'); logging.getLogger().info('x')"
    assert lines(code)[0]["job"] == "train"
