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


def test_down_of_nothing_says_so(name: str) -> None:
    assert lifecycle.down(name) is False


def test_down_needs_only_what_is_on_disk(name: str, tmp_path: Path) -> None:
    made = Testbed.create(name)
    started = process.start(["sleep", "60"], testbed=name, log=made.log("sleep"))
    assert lifecycle.down(name) is True
    assert started.wait(5) != 0
    assert not (tmp_path / name).exists()


def test_down_ends_processes_whose_folder_is_gone(name: str, tmp_path: Path) -> None:
    started = process.start(["sleep", "60"], testbed=name, log=tmp_path / "log")
    assert lifecycle.down(name) is True
    assert started.wait(5) != 0


@pytest.mark.parametrize(
    ("kind", "named"), [("record", "link busy"), ("mount", "mount /somewhere")]
)
def test_what_resists_is_named_and_the_folder_stays_for_the_next_attempt(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, named: str
) -> None:
    made = Testbed.create(name)
    with monkeypatch.context() as patch:
        if kind == "record":
            made.record.add("link", "busy")
            patch.setitem(record.UNDO, "link", lambda _name: os.stat("/does/not/exist"))
        else:
            patch.setattr(lifecycle, "mount_points", lambda *_arguments: ["/somewhere"])
        with pytest.raises(NotReadyError, match=named):
            lifecycle.down(name)
        assert (tmp_path / name).exists()
    assert lifecycle.down(name) is True


def test_name_in_use_is_refused(name: str) -> None:
    Testbed.create(name)
    with pytest.raises(FileExistsError, match="testbed down"):
        Testbed.create(name)


@pytest.mark.parametrize("bad", ["", "..", "a/b", "A", "-a", "a" * 41])
def test_name_that_is_no_plain_folder_name_is_refused(name: str, bad: str) -> None:
    with pytest.raises(ValueError, match="name"):
        lifecycle.down(bad)


def test_another_process_finds_the_same_testbed(name: str) -> None:
    made = Testbed.create(name, real_nodes=2, fast=True)
    found = Testbed.load(name)
    for field in ("apiserver_port", "addresses", "real_nodes", "fast", "kubeconfig", "server"):
        assert getattr(found, field) == getattr(made, field)


def test_another_process_restarts_what_it_did_not_start(name: str) -> None:
    made = Testbed.create(name)
    first = made.start_process(["sh", "-c", 'echo "$WORD $0"; exec sleep 60'], name="x",
                               environment={"WORD": "word"})  # fmt: skip
    found = Testbed.load(name)

    def has_written(log: str) -> None:
        # A process that is ended before its first word would leave none.
        made.wait_for(lambda: made.log("x").read_text() == log, what=repr(log), seconds=20)

    has_written("word sh\n")
    found.restart_process("x", more=["once"])
    assert first.wait(5) != 0
    has_written("word sh\nword once\n")
    found.restart_process("x")
    has_written("word sh\nword once\nword sh\n")
    assert len(list(process.marked(name))) == 1
    found.stop_process("x")
    assert list(process.marked(name)) == []


def test_load_of_nothing_says_how_to_make_one(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="testbed up"):
        Testbed.load(name)


def test_process_that_ends_early_is_named_with_its_last_words(name: str) -> None:
    made = Testbed.create(name)
    made.start_process([sys.executable, "-c", "raise SystemExit('no disk')"], name="etcd")
    with pytest.raises(
        NotReadyError, match=r"etcd ended with code 1 while waiting for x(.|\n)*no disk"
    ):
        made.wait_for(lambda: None, what="x", seconds=20, needs=("etcd",))


def test_waiting_ends_with_the_last_refusal(name: str) -> None:
    made = Testbed.create(name)
    with pytest.raises(NotReadyError, match=r"for the server; at last: .*refused"):
        made.wait_for(lambda: made.api.get("/readyz"), what="the server", seconds=0)


def test_killed_up_leaves_nothing_that_down_does_not_find(name: str, tmp_path: Path) -> None:
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
