import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from kfext.gpu.agent import pod_sockets
from kfext.gpu.hook import agent_connection
from kfext.gpu.hook.agent_connection import MOST_DESCRIPTORS, AgentConnection, send
from tests.unit.gpu.agent.house import House, connect, greet, page


async def test_a_process_connects_and_leaves_in_the_folder_of_its_pod(house: House) -> None:
    house.sockets.open("a")
    house.sockets.open("b")
    peer = connect(house, "b")
    greet(peer)
    await house.until(lambda watched: len(watched.inside) == 1)
    ((name, _),) = house.inside.values()
    assert name == "b"
    peer.close()
    await house.until(lambda watched: not watched.inside)


async def test_a_hook_finds_the_next_agent_in_the_same_folder(house: House) -> None:
    house.sockets.open("a")
    AgentConnection(str(house.root / "a/agent"), own=page(), take=lambda *_: None)
    await house.until(lambda watched: len(watched.inside) == 1)
    house.sockets.close("a")
    await house.until(lambda watched: not watched.inside)
    assert house.sockets.open_all() == ["a"]
    await house.until(lambda watched: len(watched.inside) == 1)


async def test_no_pod_has_more_than_sixteen_processes(house: House) -> None:
    house.sockets.open("a")
    peers = [connect(house, "a") for _ in range(16)]
    for peer in peers:
        greet(peer)
    await house.until(lambda watched: len(watched.inside) == 16)
    before = set(house.inside)
    extra = connect(house, "a")
    greet(extra)
    peers.pop().close()
    await house.until(lambda watched: len(watched.inside) == 16 and set(watched.inside) != before)
    assert house.most == 16
    for peer in (*peers, extra):
        peer.close()
    await house.until(lambda watched: not watched.inside)


async def test_a_pod_that_connects_again_and_again_waits_after_sixteen(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_ends = threading.Event()
    monkeypatch.setattr(pod_sockets, "sleep", lambda _: pause_ends.wait(60))
    house.sockets.open("a")
    for _ in range(20):
        peer = connect(house, "a")
        greet(peer)
        peer.close()
    await house.until(lambda watched: watched.entered == 16 and not watched.inside)
    pause_ends.set()
    await house.until(lambda watched: watched.entered == 20 and not watched.inside)


async def test_a_process_that_reads_nothing_is_disconnected(house: House) -> None:
    house.sockets.open("a")
    peer = connect(house, "a")
    greet(peer)
    await house.until(lambda watched: len(watched.inside) == 1)
    ((_, process),) = house.inside.values()
    for _ in range(100_000):
        process.send_bells([])
        if not house.inside:
            break
        await asyncio.sleep(0)
    await house.until(lambda watched: not watched.inside)


async def test_the_folder_of_a_deleted_pod_is_removed(house: House) -> None:
    folder = house.sockets.open("a")
    house.sockets.remove("a")
    assert not folder.exists()


def handed_over(peer: socket.socket, *descriptors: int) -> os.stat_result:
    """Send descriptors of one file as a greeting; return the file, no longer open here."""
    send(peer, {}, list(descriptors))
    file = os.fstat(descriptors[0])
    for descriptor in set(descriptors):
        os.close(descriptor)
    return file


def without_a_page(peer: socket.socket) -> None:
    send(peer, {}, [])


def with_two_pages(peer: socket.socket) -> os.stat_result:
    return handed_over(peer, *os.pipe())


def with_as_many_as_a_message_may_bring(peer: socket.socket) -> os.stat_result:
    return handed_over(peer, *[os.memfd_create("test")] * MOST_DESCRIPTORS)


def with_no_page(peer: socket.socket) -> os.stat_result:
    return handed_over(peer, os.open(__file__, os.O_RDONLY))


def with_a_page_that_could_be_cut_off(peer: socket.socket) -> os.stat_result:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 4096)
    return handed_over(peer, descriptor)


def with_noise(peer: socket.socket) -> None:
    peer.send(b"\xff" * 10_000)


GREETINGS = {
    "without a page": without_a_page,
    "with two": with_two_pages,
    "with as many as a message may bring": with_as_many_as_a_message_may_bring,
    "with something else": with_no_page,
    "with a page that could be cut off": with_a_page_that_could_be_cut_off,
    "with noise": with_noise,
}


def is_open(file: os.stat_result) -> bool:
    """Whether this process has the file open; other tests' threads open and close theirs."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/self/fd/{name}"), file):
                return True
    return False


@pytest.mark.parametrize("how", GREETINGS.values(), ids=GREETINGS)
async def test_a_peer_with_another_greeting_is_disconnected(
    house: House, how: Callable[[socket.socket], os.stat_result | None]
) -> None:
    house.sockets.open("a")
    peer = connect(house, "a")
    sent = how(peer)
    assert await asyncio.to_thread(peer.recv, 8) == b""
    assert not house.inside
    assert sent is None or not is_open(sent)
    peer.close()


class Lingering:
    """A TCP socket that blocks for minutes whoever is the last one to close it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.socket = socket.create_connection(listening.getsockname())
            self._other, _ = listening.accept()
        self.socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self.socket.send(b"x" * 65536)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))

    def give(self, peer: socket.socket) -> None:
        """Send it to the agent, which is then the only owner."""
        send(peer, {}, [self.socket.fileno()])
        # In another thread, as this thread would linger if the agent were faster.
        descriptor = self.socket.detach()
        threading.Thread(target=os.close, args=(descriptor,), daemon=True).start()

    def relent(self) -> None:
        """Stop blocking."""
        self._other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._other.close()


@pytest.mark.parametrize("greets", [True, False], ids=["after its greeting", "as its page"])
async def test_a_socket_that_lingers_does_not_block_the_agent(house: House, greets: bool) -> None:
    house.sockets.open("a")
    hostile, lingering = connect(house, "a"), Lingering()
    if greets:
        greet(hostile)
        await house.until(lambda watched: len(watched.inside) == 1)
    lingering.give(hostile)
    if greets:
        await house.until(lambda watched: not watched.inside)
    await asyncio.sleep(0.2)  # time to block
    peer = connect(house, "a")
    greet(peer)
    await house.until(lambda watched: len(watched.inside) == 1)
    lingering.relent()
    for client in (hostile, peer):
        client.close()


async def test_a_greeting_brings_one_descriptor_at_most(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = list[int]()
    monkeypatch.setattr(agent_connection, "close_all", closed.extend)
    house.sockets.open("a")
    peer = connect(house, "a")
    with_as_many_as_a_message_may_bring(peer)
    assert await asyncio.to_thread(peer.recv, 8) == b""
    assert len(closed) <= 1
    for descriptor in closed:
        os.close(descriptor)
    peer.close()
