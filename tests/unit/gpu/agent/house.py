"""The sockets of pods, and the processes that came and went through them."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

from kfext.gpu.agent.pod_sockets import PodSockets
from kfext.gpu.agent.process import Process
from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import send
from kfext.gpu.hook.page import Page


class House:
    """The sockets of pods, and the processes that came and went through them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inside: dict[int, tuple[str, Process]] = {}
        self.most = self.entered = 0
        self._changed = asyncio.Event()
        self.sockets = PodSockets(root, enter=self._enter, leave=self._leave)

    def _enter(self, name: str, process: Process) -> None:
        self.inside[process.number] = (name, process)
        self.entered += 1
        self.most = max(self.most, len(self.inside))
        self._changed.set()

    def _leave(self, name: str, number: int) -> None:
        came, _ = self.inside.pop(number)
        assert came == name
        self._changed.set()

    async def until(self, condition: Callable[["House"], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()


def connect(house: House, name: str) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(str(house.root / name / "agent"))
    peer.settimeout(10)
    return peer


def page() -> Page:
    made = Page.make()
    made.words[words.LAYOUT] = words.VERSION
    return made


def greet(peer: socket.socket) -> None:
    own = page()
    send(peer, {}, [own.descriptor])
