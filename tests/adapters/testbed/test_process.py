import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.testbed import process

# Prints once its signal handler is installed, so that no test is a race.
_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(60)"
)
_PARENT = "import subprocess; print('up', flush=True); subprocess.run(['sleep', '60'])"


@pytest.fixture
def name() -> Iterator[str]:
    chosen = f"test-{uuid.uuid4().hex[:8]}"
    yield chosen
    process.kill_marked(chosen)


def _start(code: str, name: str, log: Path) -> subprocess.Popen[bytes]:
    started = process.start([sys.executable, "-c", code], testbed=name, log=log)
    deadline = time.monotonic() + 10
    while "up" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    return started


@pytest.mark.parametrize("code", [_STUBBORN, _PARENT])
def test_no_marked_process_survives(tmp_path: Path, name: str, code: str) -> None:
    started = _start(code, name, tmp_path / "logs" / "x.log")
    process.kill_marked(name)
    assert started.wait(5) != 0
    assert list(process.marked(name)) == []


@pytest.mark.parametrize("code", [_STUBBORN, _PARENT])
def test_a_single_process_is_ended_by_its_id(tmp_path: Path, name: str, code: str) -> None:
    started = _start(code, name, tmp_path / "x.log")
    other = _start(_PARENT, name, tmp_path / "y.log")
    process.stop_marked(name, started.pid)
    assert started.wait(5) != 0
    assert other.poll() is None
    process.stop_marked(name, started.pid)  # no error if it has ended


def test_a_process_of_another_testbed_is_left_alone(tmp_path: Path, name: str) -> None:
    other = f"{name}-other"  # the names have the same prefix
    started = _start(_STUBBORN, other, tmp_path / "x.log")
    process.kill_marked(name)
    try:
        assert started.poll() is None
    finally:
        process.kill_marked(other)
        started.wait()
