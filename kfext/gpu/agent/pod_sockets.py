"""The sockets on which the processes of sharers reach the agent, one in a folder for each pod.

A connection through a pod's folder comes from that pod, because only that pod mounts the folder.

Each connection has its own thread, because a process can block the receiver of its descriptors:
closing the last descriptor of a lingering TCP socket, or of a file on FUSE, may take long.
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
from kfext.gpu.hook.agent_connection import receive

_log = structlog.get_logger(__name__)

SOCKET = "agent"
_MAX_PROCESSES = 16
"""The most connections of a pod at a time; a training process has one. Others wait for accept."""
_GREETING_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
"""Pause between the end of a connection and the next accept in its place: each connection costs the
agent a thread, and time of the event loop that directs the sharers of all cards."""


@dataclass(slots=True)
class _PodSocket:
    """The socket of one folder, its connections, and the number of places for more."""

    name: str
    listening: socket.socket
    peers: set[socket.socket] = field(default_factory=set)
    free: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_MAX_PROCESSES))


class PodSockets:
    """Opens and closes the sockets. `enter` and `leave` are called as processes connect and end.

    Both run in the event loop: `enter` with the name of the folder and the process, `leave` with
    the name of the folder and the number of the process. The process is closed after `leave`.
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
        self._sockets: dict[str, _PodSocket] = {}
        self._numbers = count(1)

    def open(self, name: str) -> Path:
        """Listen in the folder with this name, after closing it if it is open; return its path."""
        self.close(name)
        folder = self._root / name
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = folder / SOCKET
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(str(path))
        path.chmod(0o666)  # a job's container may run as any user
        listening.listen(_MAX_PROCESSES)
        pod_socket = self._sockets[name] = _PodSocket(name, listening)
        _thread(self._accept, pod_socket, asyncio.get_running_loop())
        return folder

    def open_all(self) -> list[str]:
        """Listen in the folders of an earlier agent; return their names."""
        names = [folder.name for folder in self._root.iterdir()] if self._root.is_dir() else []
        for name in names:
            self.open(name)
        return names

    def close_all(self) -> None:
        """End all connections; the folders remain for the next agent."""
        for name in tuple(self._sockets):
            self.close(name)

    def close(self, name: str) -> None:
        """End all connections through a folder, and stop listening there."""
        pod_socket = self._sockets.pop(name, None)
        if pod_socket is None:
            return
        for connection in (pod_socket.listening, *pod_socket.peers):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread sees the end

    def remove(self, name: str) -> None:
        """Close and remove a folder after its pod has gone."""
        self.close(name)
        with suppress(OSError):
            (self._root / name / SOCKET).unlink(missing_ok=True)
            (self._root / name).rmdir()

    def _accept(self, pod_socket: _PodSocket, loop: asyncio.AbstractEventLoop) -> None:
        with pod_socket.listening:
            while True:
                pod_socket.free.acquire()
                try:
                    peer, _ = pod_socket.listening.accept()
                except OSError as error:
                    if self._closed(pod_socket):
                        return
                    _log.warning("no connection", folder=pod_socket.name, why=str(error))
                    pod_socket.free.release()
                    sleep(_PAUSE_SECONDS)  # too many files are open
                    continue
                pod_socket.peers.add(peer)
                if self._closed(pod_socket):
                    peer.close()
                    return
                _thread(self._serve, pod_socket, peer, loop)

    def _closed(self, pod_socket: _PodSocket) -> bool:
        return self._sockets.get(pod_socket.name) is not pod_socket

    def _serve(
        self, pod_socket: _PodSocket, peer: socket.socket, loop: asyncio.AbstractEventLoop
    ) -> None:
        try:
            with peer:
                process = self._receive_greeting(peer)
                if process is not None:
                    self._follow(pod_socket.name, peer, process, loop)
        except (OSError, ValueError) as error:
            _log.info("not a sharer", folder=pod_socket.name, why=str(error))
        except Exception:
            _log.exception("a connection is ended", folder=pod_socket.name)
        finally:
            pod_socket.peers.discard(peer)
            sleep(_PAUSE_SECONDS)
            pod_socket.free.release()

    def _follow(
        self, name: str, peer: socket.socket, process: Process, loop: asyncio.AbstractEventLoop
    ) -> None:
        end = select.poll()
        end.register(peer, select.POLLIN)
        try:
            _call(loop, self._enter, name, process)
            end.poll()  # a process sends nothing after its greeting
        finally:
            try:
                _call(loop, self._leave, name, process.number)
            finally:
                process.close()

    def _receive_greeting(self, peer: socket.socket) -> Process | None:
        """Return the process that sends its page, or None at the end of the connection."""
        peer.settimeout(_GREETING_SECONDS)
        message = receive(peer, most=1)  # more descriptors would be opened in this process
        if message is None:
            return None
        _, descriptors = message
        if not descriptors:
            raise ValueError("its greeting has no descriptor")
        return Process(next(self._numbers), peer, descriptors[0])


def _thread(run: Callable[..., None], *args: object) -> None:
    threading.Thread(target=run, args=args, daemon=True).start()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> None:
    """Call a function in the event loop and wait for its end. Raises the errors of the function."""
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
