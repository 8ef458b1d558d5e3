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
from kfext.gpu.hook.agent_connection import MAX_DESCRIPTORS, AgentConnection, send
from tests.unit.gpu.agent.connections import Connections, connect, greet, page


async def test_a_process_enters_and_leaves_by_its_folder(connections: Connections) -> None:
    connections.sockets.open("a")
    connections.sockets.open("b")
    peer = connect(connections, "b")
    greet(peer)
    await connections.until(lambda current: len(current.connected) == 1)
    ((name, _),) = connections.connected.values()
    assert name == "b"
    peer.close()
    await connections.until(lambda current: not current.connected)


async def test_a_hook_connects_to_the_next_agent_in_its_folder(connections: Connections) -> None:
    connections.sockets.open("a")
    AgentConnection(str(connections.root / "a/agent"), page=page(), handle=lambda *_: None)
    await connections.until(lambda current: len(current.connected) == 1)
    connections.sockets.close("a")
    await connections.until(lambda current: not current.connected)
    assert connections.sockets.open_all() == ["a"]
    await connections.until(lambda current: len(current.connected) == 1)


async def test_a_pod_has_at_most_16_connections_at_a_time(connections: Connections) -> None:
    connections.sockets.open("a")
    peers = [connect(connections, "a") for _ in range(16)]
    for peer in peers:
        greet(peer)
    await connections.until(lambda current: len(current.connected) == 16)
    before = set(connections.connected)
    extra = connect(connections, "a")
    greet(extra)
    peers.pop().close()
    await connections.until(
        lambda current: len(current.connected) == 16 and set(current.connected) != before
    )
    assert connections.most_connected == 16
    for peer in (*peers, extra):
        peer.close()
    await connections.until(lambda current: not current.connected)


async def test_after_16_short_connections_a_pod_waits_for_the_end_of_a_pause(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_ends = threading.Event()
    monkeypatch.setattr(pod_sockets, "sleep", lambda _: pause_ends.wait(60))
    connections.sockets.open("a")
    for _ in range(20):
        peer = connect(connections, "a")
        greet(peer)
        peer.close()
    await connections.until(lambda current: current.entered == 16 and not current.connected)
    pause_ends.set()
    await connections.until(lambda current: current.entered == 20 and not current.connected)


async def test_a_process_that_reads_nothing_is_disconnected(connections: Connections) -> None:
    connections.sockets.open("a")
    peer = connect(connections, "a")
    greet(peer)
    await connections.until(lambda current: len(current.connected) == 1)
    ((_, process),) = connections.connected.values()
    for _ in range(100_000):
        process.send_bells([])
        if not connections.connected:
            break
        await asyncio.sleep(0)
    await connections.until(lambda current: not current.connected)


async def test_the_folder_of_a_deleted_pod_is_removed(connections: Connections) -> None:
    folder = connections.sockets.open("a")
    connections.sockets.remove("a")
    assert not folder.exists()


def handed_over(peer: socket.socket, *descriptors: int) -> os.stat_result:
    """Send a greeting with these descriptors, and close them here; return the first file."""
    send(peer, {}, list(descriptors))
    file = os.fstat(descriptors[0])
    for descriptor in set(descriptors):
        os.close(descriptor)
    return file


def without_a_page(peer: socket.socket) -> None:
    send(peer, {}, [])


def with_two_descriptors(peer: socket.socket) -> os.stat_result:
    return handed_over(peer, *os.pipe())


def with_the_most_descriptors_of_a_message(peer: socket.socket) -> os.stat_result:
    return handed_over(peer, *[os.memfd_create("test")] * MAX_DESCRIPTORS)


def with_a_file(peer: socket.socket) -> os.stat_result:
    return handed_over(peer, os.open(__file__, os.O_RDONLY))


def with_a_page_that_could_be_truncated(peer: socket.socket) -> os.stat_result:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 4096)
    return handed_over(peer, descriptor)


def with_noise(peer: socket.socket) -> None:
    peer.send(b"\xff" * 10_000)


GREETINGS = {
    "without a page": without_a_page,
    "with two descriptors": with_two_descriptors,
    "with the most descriptors of a message": with_the_most_descriptors_of_a_message,
    "with a file instead of a page": with_a_file,
    "with a page that could be truncated": with_a_page_that_could_be_truncated,
    "with noise": with_noise,
}


def is_open(file: os.stat_result) -> bool:
    """Return whether this process has a file open; threads of other tests open and close files."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/self/fd/{name}"), file):
                return True
    return False


@pytest.mark.parametrize("send_greeting", GREETINGS.values(), ids=GREETINGS)
async def test_a_peer_with_a_wrong_greeting_is_disconnected_and_its_file_closed(
    connections: Connections, send_greeting: Callable[[socket.socket], os.stat_result | None]
) -> None:
    connections.sockets.open("a")
    peer = connect(connections, "a")
    sent = send_greeting(peer)
    assert await asyncio.to_thread(peer.recv, 8) == b""
    assert not connections.connected
    assert sent is None or not is_open(sent)
    peer.close()


class Lingering:
    """A TCP socket that blocks the process that closes it last, for minutes."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.socket = socket.create_connection(listening.getsockname())
            self._other, _ = listening.accept()
        self.socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self.socket.send(b"x" * 65536)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))

    def send_to(self, peer: socket.socket) -> None:
        """Send it to the agent, which is then the only owner."""
        send(peer, {}, [self.socket.fileno()])
        # Closed in another thread: this thread would block if the agent closed it earlier.
        descriptor = self.socket.detach()
        threading.Thread(target=os.close, args=(descriptor,), daemon=True).start()

    def stop_blocking(self) -> None:
        self._other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._other.close()


@pytest.mark.parametrize("greets", [True, False], ids=["after its greeting", "as its page"])
async def test_a_lingering_socket_blocks_no_agent(connections: Connections, greets: bool) -> None:
    connections.sockets.open("a")
    hostile, lingering = connect(connections, "a"), Lingering()
    if greets:
        greet(hostile)
        await connections.until(lambda current: len(current.connected) == 1)
    lingering.send_to(hostile)
    if greets:
        await connections.until(lambda current: not current.connected)
    await asyncio.sleep(0.2)  # time to block
    peer = connect(connections, "a")
    greet(peer)
    await connections.until(lambda current: len(current.connected) == 1)
    lingering.stop_blocking()
    for client in (hostile, peer):
        client.close()


async def test_the_agent_receives_at_most_one_descriptor_of_a_greeting(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = list[int]()
    monkeypatch.setattr(agent_connection, "close_all", closed.extend)
    connections.sockets.open("a")
    peer = connect(connections, "a")
    with_the_most_descriptors_of_a_message(peer)
    assert await asyncio.to_thread(peer.recv, 8) == b""
    assert len(closed) <= 1
    for descriptor in closed:
        os.close(descriptor)
    peer.close()
