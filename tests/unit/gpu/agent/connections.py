"""The sockets of pods, and the processes that connect to them."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

from kfext.gpu.agent.pod_sockets import PodSockets
from kfext.gpu.agent.process import Process
from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import send
from kfext.gpu.hook.page import Page


class Connections:
    """The sockets of pods. `connected`: folder and process of each connection, by its number.

    `most_connected`: the most connections at a time. `entered`: the connections so far.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.connected: dict[int, tuple[str, Process]] = {}
        self.most_connected = self.entered = 0
        self._changed = asyncio.Event()
        self.sockets = PodSockets(root, enter=self._enter, leave=self._leave)

    def _enter(self, name: str, process: Process) -> None:
        self.connected[process.number] = (name, process)
        self.entered += 1
        self.most_connected = max(self.most_connected, len(self.connected))
        self._changed.set()

    def _leave(self, name: str, number: int) -> None:
        entered_by, _ = self.connected.pop(number)
        assert entered_by == name
        self._changed.set()

    async def until(self, condition: Callable[["Connections"], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()


def connect(connections: Connections, name: str) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(str(connections.root / name / "agent"))
    peer.settimeout(10)
    return peer


def page() -> Page:
    result = Page.make()
    result.words[words.LAYOUT] = words.VERSION
    return result


def greet(peer: socket.socket) -> None:
    send(peer, {}, [page().descriptor])
