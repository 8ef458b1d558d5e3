"""The sockets under which the processes of sharers find the agent, one in a folder for each pod.

Who connects through a pod's folder is a process of that pod: nobody else has the folder mounted.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import structlog

from kfext.agent.process import Process
from kfext.hook.link import close_all, receive

_log = structlog.get_logger(__name__)

SOCKET = "agent"
_MOST_PROCESSES = 16
"""Of one pod at a time; a process of a training has one connection."""
_GREETING_SECONDS = 5.0


@dataclass(slots=True)
class _Door:
    """The socket of one folder, and the connections through it."""

    listening: socket.socket
    peers: set[socket.socket] = field(default_factory=set)


class Doors:
    """Opens and closes such sockets. `enter` and `leave` are called as processes come and go.

    `enter` is given the name of the folder and the process, `leave` the name and its number; after
    that the process is closed.
    """

    def __init__(
        self,
        root: Path,
        *,
        enter: Callable[[str, Process], None],
        leave: Callable[[str, int], None],
    ) -> None:
        self._root = root
        self._enter = enter
        self._leave = leave
        self._doors: dict[str, _Door] = {}
        self._numbers = count(1)

    def open(self, name: str) -> Path:
        """Listen in the folder of that name, anew if it was open; return the folder."""
        self.close(name)
        folder = self._root / name
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = folder / SOCKET
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        listening.bind(str(path))
        path.chmod(0o666)  # the user of a job's container may be any
        listening.listen(_MOST_PROCESSES)
        door = self._doors[name] = _Door(listening)
        asyncio.get_running_loop().add_reader(listening, self._accept, name, door)
        return folder

    def open_all(self) -> list[str]:
        """Listen in the folders that an earlier agent has left; return their names."""
        found = [one.name for one in self._root.iterdir()] if self._root.is_dir() else []
        for name in found:
            self.open(name)
        return found

    def close_all(self) -> None:
        """End all connections; the folders stay for the next agent."""
        for name in tuple(self._doors):
            self.close(name)

    def close(self, name: str) -> None:
        """End all connections through a folder, and listen there no longer."""
        door = self._doors.pop(name, None)
        if door is None:
            return
        asyncio.get_running_loop().remove_reader(door.listening)
        door.listening.close()
        for peer in tuple(door.peers):
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)  # its reader sees the end

    def remove(self, name: str) -> None:
        """Close a folder whose pod is gone, and remove it."""
        self.close(name)
        with suppress(OSError):
            (self._root / name / SOCKET).unlink(missing_ok=True)
            (self._root / name).rmdir()

    def _accept(self, name: str, door: _Door) -> None:
        try:
            peer, _ = door.listening.accept()
        except OSError:
            return  # it has gone again
        if len(door.peers) >= _MOST_PROCESSES:
            peer.close()
            return
        peer.setblocking(False)
        door.peers.add(peer)
        loop = asyncio.get_running_loop()
        late = loop.call_later(_GREETING_SECONDS, self._end, door, peer)
        loop.add_reader(peer, self._greeted, name, door, peer, late)

    def _greeted(
        self, name: str, door: _Door, peer: socket.socket, late: asyncio.TimerHandle
    ) -> None:
        """Take in the first message of a process, which brings its page."""
        late.cancel()
        try:
            found = receive(peer)
            if found is None:
                self._end(door, peer)
                return
            _, descriptors = found
            if len(descriptors) != 1:
                close_all(descriptors)
                raise ValueError(f"{len(descriptors)} descriptors came with its greeting")
            process = Process(next(self._numbers), peer, descriptors[0])
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:
            _log.info("not a sharer", folder=name, why=str(error))
            self._end(door, peer)
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(peer, self._over, name, door, peer, process)
        self._enter(name, process)

    def _over(self, name: str, door: _Door, peer: socket.socket, process: Process) -> None:
        """Take in that a process has ended; after its greeting it has nothing more to say."""
        asyncio.get_running_loop().remove_reader(peer)
        door.peers.discard(peer)
        self._leave(name, process.number)
        process.close()

    def _end(self, door: _Door, peer: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(peer)
        door.peers.discard(peer)
        with suppress(OSError):
            os.close(peer.detach())
