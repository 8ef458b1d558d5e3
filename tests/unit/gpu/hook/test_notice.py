import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfext.gpu.hook import notice as module
from kfext.gpu.hook import words
from kfext.gpu.hook.link import receive
from kfext.gpu.hook.notice import Notice
from kfext.gpu.hook.page import words_of


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "agent"))
        listening.listen()
        listening.settimeout(20)
        yield listening


def stated(agent: socket.socket) -> int:
    """Return the reason that comes with the next connection, which ends after it."""
    peer, _ = agent.accept()
    with peer:
        peer.settimeout(20)
        found = receive(peer)
        assert found is not None
        _, (page,) = found
        assert receive(peer) is None
    its = words_of(page)
    assert its[words.LAYOUT] == words.VERSION
    return its[words.UNHOOKED]


def test_the_first_reason_is_stated_again_and_again(agent: socket.socket, tmp_path: Path) -> None:
    notice = Notice(str(tmp_path / "agent"))
    notice.give(words.CALLBACK_LIST)
    notice.give(words.FAILED)
    assert [stated(agent) for _ in range(3)] == [words.CALLBACK_LIST] * 3


def test_it_waits_for_an_agent_that_is_away(agent: socket.socket, tmp_path: Path) -> None:
    later = tmp_path / "later"
    Notice(str(later)).give(words.FAILED)
    os.rename(tmp_path / "agent", later)
    assert stated(agent) == words.FAILED
