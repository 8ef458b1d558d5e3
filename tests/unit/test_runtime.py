"""The log lines, probes and metrics of every service."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from kfext.runtime import serve_probes

PROGRAM = """
import logging, structlog, sys
from kfext import runtime
sys.stderr.isatty = lambda: {terminal}
runtime.configure_logs({level!r})
{code}
"""


def stderr_of(code: str, *, level: str = "info", terminal: bool = False) -> str:
    """The output of a program on stderr, which may be a terminal."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=code, level=level, terminal=terminal)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr


def log_lines(code: str, *, level: str = "info") -> list[dict[str, Any]]:
    """The parsed log lines of a program; its stderr is no terminal."""
    return [json.loads(line) for line in stderr_of(code, level=level).splitlines()]


WRITERS = {
    "structlog": "structlog.get_logger('kfext.x').info('placed', job='train', nodes=1)",
    "the standard library": "logging.getLogger('kfext.x').info('%s', 'placed',"
    " extra={'job': 'train', 'nodes': 1})",
}


@pytest.mark.parametrize("code", WRITERS.values(), ids=WRITERS)
def test_a_line_is_json_with_its_fields(code: str) -> None:
    (line,) = log_lines(code)
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
    (line,) = log_lines(f"try:\n    1/0\nexcept ZeroDivisionError:\n    {code}")
    assert "ZeroDivisionError" in line["exception"]


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("code", FAILURES.values(), ids=FAILURES)
def test_a_traceback_shows_no_value(code: str, terminal: bool) -> None:
    failing = "def fail(value):\n    1/0\ntry:\n    fail('of ' + 'a user')\nexcept Exception:\n    "
    written = stderr_of(failing + code, terminal=terminal)
    assert "ZeroDivisionError" in written
    assert "of a user" not in written


def test_events_below_the_level_are_dropped() -> None:
    code = "for log in (structlog.get_logger(), logging.getLogger('x')): log.info('no')"
    assert log_lines(code, level="warning") == []


def test_bound_names_reach_lines_of_the_standard_library() -> None:
    code = "structlog.contextvars.bind_contextvars(job='train'); logging.getLogger().info('x')"
    assert log_lines(code)[0]["job"] == "train"


class Process:
    """A process; a test sets its health."""

    def __init__(self) -> None:
        self.dead: str | None = None
        self.unready: str | None = "informers are not synced"
        self.registry = CollectorRegistry()


@pytest.fixture
async def served() -> AsyncIterator[tuple[Process, str]]:
    process = Process()
    Counter("reviews", "Reviews.", registry=process.registry).inc(3)
    runner: web.AppRunner = await serve_probes(
        port=0, live=lambda: process.dead, ready=lambda: process.unready, registry=process.registry
    )
    # Port 0 is another port for IPv4 and for IPv6.
    port = next(address[1] for address in runner.addresses if len(address) == 2)
    yield process, f"http://127.0.0.1:{port}"
    await runner.cleanup()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_probes_follow_the_health_of_the_process(served: tuple[Process, str]) -> None:
    process, url = served
    assert await get(f"{url}/readyz") == (503, "informers are not synced")
    assert await get(f"{url}/healthz") == (200, "ok")
    process.unready, process.dead = None, "no tick for 40 s"
    assert await get(f"{url}/readyz") == (200, "ok")
    assert await get(f"{url}/healthz") == (503, "no tick for 40 s")


async def test_metrics_are_read_from_the_registry(served: tuple[Process, str]) -> None:
    status, text = await get(f"{served[1]}/metrics")
    assert status == 200
    assert "reviews_total 3.0" in text
