"""What real nodes need is installed also while another apt-get is at work."""

import subprocess

import pytest

from e2e.testbed.preflight import Unavailable
from e2e.testbed.realnodes import containerd

HELD = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The errors with which apt-get ends, one after the other; an empty one is success."""
    left: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        error = left.pop(0)
        return subprocess.CompletedProcess(command, 100 if error else 0, "", error)

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return left


def test_the_lock_of_another_is_waited_for(answers: list[str]) -> None:
    answers += [HELD, HELD, ""]
    containerd._apt_get("update")
    assert answers == []


def test_a_lock_is_not_waited_for_without_end(answers: list[str]) -> None:
    answers += [HELD] * 1000
    with pytest.raises(Unavailable, match="held by process 7"):
        containerd._apt_get("update")
    assert answers


def test_any_other_error_is_shown_at_once(answers: list[str]) -> None:
    answers += ["E: Unable to locate package containerd", ""]
    with pytest.raises(Unavailable, match="Unable to locate"):
        containerd._apt_get("install", "containerd")
    assert answers == [""]
