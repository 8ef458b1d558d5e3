"""One line per event, in one format, whoever logs."""

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import logging, structlog, sys
from kfext import logs
sys.stderr.isatty = lambda: {terminal}
logs.configure({level!r})
{code}
"""


def logged(code: str, *, level: str = "info", terminal: bool = False) -> str:
    """What a program writes to stderr, which is a terminal or is not."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=code, level=level, terminal=terminal)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr


def lines(code: str, *, level: str = "info") -> list[dict[str, Any]]:
    """What a program logs where stderr is no terminal."""
    return [json.loads(line) for line in logged(code, level=level).splitlines()]


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


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("code", FAILURES.values(), ids=FAILURES)
def test_a_traceback_shows_no_value(code: str, terminal: bool) -> None:
    failing = "def fail(value):\n    1/0\ntry:\n    fail('of ' + 'a user')\nexcept Exception:\n    "
    written = logged(failing + code, terminal=terminal)
    assert "ZeroDivisionError" in written
    assert "of a user" not in written


def test_what_is_below_the_level_is_dropped() -> None:
    code = "for log in (structlog.get_logger(), logging.getLogger('x')): log.info('no')"
    assert lines(code, level="warning") == []


def test_bound_names_reach_lines_of_the_standard_library() -> None:
    code = "structlog.contextvars.bind_contextvars(job='train'); logging.getLogger().info('x')"
    assert lines(code)[0]["job"] == "train"
