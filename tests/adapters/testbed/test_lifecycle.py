import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from e2e.testbed import lifecycle, process, record
from e2e.testbed.cluster import NotReadyError, Testbed


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KFEXT_STATE", str(tmp_path))
    return f"test-{uuid.uuid4().hex[:8]}"


def test_down_needs_only_the_files_on_disk(name: str, tmp_path: Path) -> None:
    testbed = Testbed.create(name)
    started = process.start(["sleep", "60"], testbed=name, log=testbed.log("sleep"))
    assert lifecycle.down(name) is True
    assert started.wait(5) != 0
    assert not (tmp_path / name).exists()


def test_down_ends_the_processes_of_a_testbed_without_a_folder(name: str, tmp_path: Path) -> None:
    started = process.start(["sleep", "60"], testbed=name, log=tmp_path / "log")
    assert lifecycle.down(name) is True
    assert started.wait(5) != 0


@pytest.mark.parametrize(
    ("kind", "message"), [("record", "link busy"), ("mount", "mount /somewhere")]
)
def test_what_cannot_be_undone_is_named_and_the_folder_stays_for_the_next_attempt(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, message: str
) -> None:
    testbed = Testbed.create(name)
    with monkeypatch.context() as patch:
        if kind == "record":
            testbed.record.add("link", "busy")
            patch.setitem(record.UNDO, "link", lambda _name: os.stat("/does/not/exist"))
        else:
            patch.setattr(lifecycle, "mount_points", lambda *_arguments: ["/somewhere"])
        with pytest.raises(NotReadyError, match=message):
            lifecycle.down(name)
        assert (tmp_path / name).exists()
    assert lifecycle.down(name) is True


def test_down_removes_all_remains_of_a_killed_up(name: str, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from e2e.testbed.cluster import Testbed\n"
        f"made = Testbed.create({name!r})\n"
        f"made.record.add('folder', {str(tmp_path / 'outside')!r})\n"
        f"os.mkdir({str(tmp_path / 'outside')!r})\n"
        "made.start_process(['sleep', '60'], name='sleep')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -9
    assert len(list(process.marked(name))) == 1
    assert lifecycle.down(name) is True
    assert list(process.marked(name)) == []
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
