import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from kfext.gpu.hook import agent_connection as module
from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import (
    LONGEST,
    AgentConnection,
    HiddenThread,
    UnhookedReporter,
    receive,
    send,
)
from kfext.gpu.hook.page import Page, words_of

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with first, second:
        yield first, second


def inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


def open_descriptors(file: int) -> int:
    """Return the number of descriptors that this process has of the file with this inode."""
    result = 0
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # a thread of another test has closed it
            result += inode(descriptor) == file
    return result


def test_descriptors_arrive_beside_their_message(pair: Pair) -> None:
    page = Page.make()
    send(pair[0], {"bells": 1}, [page.descriptor])
    answer = receive(pair[1])
    assert answer is not None
    message, (arrived,) = answer
    assert message == {"bells": 1}
    assert inode(arrived) == inode(page.descriptor)
    assert not os.get_inheritable(arrived)


BAD: dict[str, bytes] = {
    "malformed JSON": b"{",
    "a JSON array": b"[1]",
    "too long": json.dumps({"x": "y" * LONGEST}).encode(),
    "not UTF-8": b"\xff\xfe",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_a_bad_message_is_refused_and_leaves_no_descriptor_open(pair: Pair, data: bytes) -> None:
    with tempfile.TemporaryFile() as file:
        socket.send_fds(pair[0], [data], [file.fileno()])
        with pytest.raises(ValueError, match=r"."):
            receive(pair[1])
        assert open_descriptors(inode(file.fileno())) == 1


def test_receive_returns_none_at_the_end_of_the_connection(pair: Pair) -> None:
    pair[0].close()
    assert receive(pair[1]) is None


_FORKING_JOB = """
import os, sys
from time import sleep
from kfext.gpu.hook.agent_connection import AgentConnection
from kfext.gpu.hook.page import Page
connection = AgentConnection(sys.argv[1], page=Page.make(), handle=lambda *_: None)
os.register_at_fork(after_in_child=connection.leave)
sys.stdin.readline()
if os.fork():
    os._exit(0)
sys.stdin.readline()  # until the test has seen that its parent has ended
"""


def test_a_fork_does_not_keep_the_connection_of_a_process_that_has_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "agent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        agent.bind(path)
        agent.listen()
        job = subprocess.Popen([sys.executable, "-c", _FORKING_JOB, path], stdin=subprocess.PIPE)
        with job, agent.accept()[0] as peer:
            peer.settimeout(30)
            assert receive(peer) is not None
            assert job.stdin is not None
            job.stdin.write(b"\n")  # now it forks and ends
            job.stdin.flush()
            assert peer.recv(1) == b""


def test_a_connection_greets_each_new_agent_and_handles_its_messages(tmp_path: Path) -> None:
    path, own = str(tmp_path / "agent"), Page.make()
    messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
    AgentConnection(path, page=own, handle=lambda message, _: messages.put(message))
    for number in range(2):  # the agent starts after the job, and then restarts
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(path)
            listening.listen()
            listening.settimeout(20)
            agent, _ = listening.accept()
            with agent:
                agent.settimeout(20)
                answer = receive(agent)
                assert answer is not None
                message, (page,) = answer
                assert message == {}
                assert inode(page) == inode(own.descriptor)
                os.close(page)
                send(agent, {"bells": number}, [])
                assert messages.get(timeout=20) == {"bells": number}
        os.unlink(path)


def test_a_job_tries_to_connect_at_least_each_second(tmp_path: Path) -> None:
    pauses: SimpleQueue[float] = SimpleQueue()

    def pause(seconds: float) -> None:
        pauses.put(seconds)
        if pauses.qsize() == 10:
            threading.Event().wait()  # without end

    absent = str(tmp_path / "absent")
    AgentConnection(absent, page=Page.make(), handle=lambda *_: None, pause=pause)
    waited = [pauses.get(timeout=20) for _ in range(10)]
    assert waited == sorted(waited)
    assert waited[-1] == 1.0


def test_a_hidden_thread_is_not_listed_as_a_thread_of_the_program_and_can_be_joined() -> None:
    may_end, began = threading.Event(), threading.Event()

    def act() -> None:
        began.set()
        may_end.wait(60)

    hidden = HiddenThread(act)
    assert began.wait(60)
    assert not [thread for thread in threading.enumerate() if thread.ident == hidden._number]
    may_end.set()
    hidden.join(60)
    assert hidden._ended.is_set()


def test_a_hidden_thread_does_not_wait_for_itself() -> None:
    ended = threading.Event()

    def act() -> None:
        created.wait(60)
        threads[0].join(60)
        ended.set()

    created, threads = threading.Event(), list[HiddenThread]()
    threads.append(HiddenThread(act))
    created.set()
    assert ended.wait(30)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "agent"))
        listening.listen()
        listening.settimeout(20)
        yield listening


def reported_reason(agent: socket.socket) -> int:
    """Return the reason reported on the next connection, and check that the connection ends."""
    peer, _ = agent.accept()
    with peer:
        peer.settimeout(20)
        answer = receive(peer)
        assert answer is not None
        _, (page,) = answer
        assert receive(peer) is None
    page_words = words_of(page)
    assert page_words[words.LAYOUT] == words.VERSION
    return page_words[words.UNHOOKED]


def test_each_connection_reports_the_first_reason(agent: socket.socket, tmp_path: Path) -> None:
    reporter = UnhookedReporter(str(tmp_path / "agent"))
    reporter.report(words.CALLBACK_LIST)
    reporter.report(words.FAILED)
    assert [reported_reason(agent) for _ in range(3)] == [words.CALLBACK_LIST] * 3


def test_a_reporter_waits_for_an_agent_that_is_away(agent: socket.socket, tmp_path: Path) -> None:
    later = tmp_path / "later"
    UnhookedReporter(str(later)).report(words.FAILED)
    os.rename(tmp_path / "agent", later)
    assert reported_reason(agent) == words.FAILED
