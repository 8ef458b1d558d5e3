"""The sockets under which the processes of sharers find the agent, one in a folder for each pod.

Who connects through a pod's folder is a process of that pod: nobody else has the folder mounted.

A thread serves each of them, as what a process sends can block whoever receives it: the last one to
close a descriptor waits for a TCP socket that lingers, or for a file of FUSE.
"""

import asyncio
import select
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import sleep

import structlog

from kfext.gpu.agent.process import Process
from kfext.gpu.hook.link import receive

_log = structlog.get_logger(__name__)

SOCKET = "agent"
_MOST_PROCESSES = 16
"""Of one pod at a time; a process of a training has one connection. Others wait to be accepted."""
_GREETING_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
"""After a connection, before another one of the pod takes its place: each costs the agent a thread
and turns of the loop that leads the sharers of all cards."""


@dataclass(slots=True)
class _Door:
    """The socket of one folder, the connections through it, and the room for more."""

    name: str
    listening: socket.socket
    peers: set[socket.socket] = field(default_factory=set)
    room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_MOST_PROCESSES))


class Doors:
    """Opens and closes such sockets. `enter` and `leave` are called as processes come and go.

    Both are called in the event loop: `enter` with the name of the folder and the process, `leave`
    with the name and its number. The process is closed after that.
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
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(str(path))
        path.chmod(0o666)  # the user of a job's container may be any
        listening.listen(_MOST_PROCESSES)
        door = self._doors[name] = _Door(name, listening)
        _thread(self._accept, door, asyncio.get_running_loop())
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
        for one in (door.listening, *door.peers):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # its thread sees the end

    def remove(self, name: str) -> None:
        """Close a folder whose pod is gone, and remove it."""
        self.close(name)
        with suppress(OSError):
            (self._root / name / SOCKET).unlink(missing_ok=True)
            (self._root / name).rmdir()

    def _accept(self, door: _Door, loop: asyncio.AbstractEventLoop) -> None:
        """Accept connections until the door is closed."""
        with door.listening:
            while True:
                door.room.acquire()
                try:
                    peer, _ = door.listening.accept()
                except OSError as error:
                    if self._closed(door):
                        return
                    _log.warning("no connection", folder=door.name, why=str(error))
                    door.room.release()
                    sleep(_PAUSE_SECONDS)  # there are too many open files
                    continue
                door.peers.add(peer)
                if self._closed(door):
                    peer.close()
                    return
                _thread(self._serve, door, peer, loop)

    def _closed(self, door: _Door) -> bool:
        return self._doors.get(door.name) is not door

    def _serve(self, door: _Door, peer: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Have a process known from its greeting until its connection ends."""
        try:
            with peer:
                process = self._greeted(peer)
                if process is not None:
                    self._know(door.name, peer, process, loop)
        except (OSError, ValueError) as error:
            _log.info("not a sharer", folder=door.name, why=str(error))
        except Exception:
            _log.exception("a connection is ended", folder=door.name)
        finally:
            door.peers.discard(peer)
            sleep(_PAUSE_SECONDS)
            door.room.release()

    def _know(
        self, name: str, peer: socket.socket, process: Process, loop: asyncio.AbstractEventLoop
    ) -> None:
        ends = select.poll()
        ends.register(peer, select.POLLIN)
        try:
            _call(loop, self._enter, name, process)
            ends.poll()  # after its greeting it has nothing more to say
        finally:
            try:
                _call(loop, self._leave, name, process.number)
            finally:
                process.close()

    def _greeted(self, peer: socket.socket) -> Process | None:
        """Return the process of which the page comes with the first message, None at the end."""
        peer.settimeout(_GREETING_SECONDS)
        found = receive(peer, most=1)  # any more would be opened in this process
        if found is None:
            return None
        _, descriptors = found
        if not descriptors:
            raise ValueError("no descriptor came with its greeting")
        return Process(next(self._numbers), peer, descriptors[0])


def _thread(run: Callable[..., None], *args: object) -> None:
    threading.Thread(target=run, args=args, daemon=True).start()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> None:
    """Call a function in the event loop, and return when it has returned. Raises what it raises."""
    done: Future[None] = Future()

    def call() -> None:
        try:
            function(*args)
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return  # the loop is closed: the agent has ended
    done.result()
