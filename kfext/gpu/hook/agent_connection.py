"""The connection of a process to the node's agent, in both directions.

The connection is of type SOCK_SEQPACKET: each message is a JSON object, with descriptors beside it.
"""

from __future__ import annotations

import _thread
import array
import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event
from time import sleep
from typing import Any

from . import words
from .page import Page


class HiddenThread:
    """A thread of the hook that runs a function and does not prevent the end of the process.

    The program does not see it, since a program may join all threads that it sees.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._ended = Event()
        self._number = 0
        _thread.start_new_thread(self._run, ())

    def join(self, seconds: float) -> None:
        """Wait for its end, at most for `seconds`; in the thread itself, return at once."""
        if self._number != _thread.get_ident():
            self._ended.wait(seconds)

    def _run(self) -> None:
        self._number = _thread.get_ident()
        try:
            self._act()
        finally:
            self._ended.set()


LONGEST = 4096
"""The most bytes of a message."""
MAX_DESCRIPTORS = 64
"""The most descriptors beside a message."""
_PAUSES = (0.1, 0.5, 1.0)
"""Seconds before each new attempt to connect; the last pause repeats."""
LONGEST_PAUSE = _PAUSES[-1]


def send(peer: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
    """Send a message and some descriptors. Raises OSError."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    peer.sendmsg([json.dumps(message).encode()], ancillary if descriptors else [])


def receive(
    peer: socket.socket, most: int = MAX_DESCRIPTORS
) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next message and its descriptors, or None at the end of the connection.

    `most`: the most descriptors to receive. Raises OSError or ValueError, and then leaves no
    descriptor open.
    """
    size = socket.CMSG_LEN(most * array.array("i").itemsize)
    flags = socket.MSG_CMSG_CLOEXEC
    data, ancillary, received_flags, _ = peer.recvmsg(LONGEST, size, flags)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    try:
        if not data:
            close_all(descriptors.tolist())
            return None
        if received_flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("the message is too long, or too many descriptors came with it")
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError("the message is no object")
    except BaseException:
        close_all(descriptors.tolist())
        raise
    return message, descriptors.tolist()


def close_all(descriptors: list[int]) -> None:
    """Close some descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


class AgentConnection:
    """Keeps the process connected to the agent, although the agent may be replaced.

    `page`: the page that the agent may read. `handle`: called with each message and its
    descriptors. `pause`: waits some seconds before the next attempt to connect.
    """

    def __init__(
        self,
        path: str,
        *,
        page: Page,
        handle: Callable[[dict[str, Any], list[int]], None],
        pause: Callable[[float], object] = sleep,
    ) -> None:
        self._path = path
        self._page = page
        self._handle = handle
        self._pause = pause
        self._agent: socket.socket | None = None
        HiddenThread(self._run)

    def leave(self) -> None:
        """Close the fork's copy of the connection, which would stay open while the fork lives."""
        if self._agent is not None:
            self._agent.close()
        self._page.close()

    def _run(self) -> None:
        attempts = 0
        while True:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
                    self._agent = agent
                    agent.connect(self._path)
                    send(agent, {}, [self._page.descriptor])
                    while received := receive(agent):
                        self._handle(*received)
                        attempts = 0
            except (OSError, ValueError):
                pass  # the agent is away, or is being replaced
            self._pause(_PAUSES[min(attempts, len(_PAUSES) - 1)])
            attempts += 1


_PAUSE_SECONDS = 30.0
"""Pause before the next report to the agent, which may be new, or may not have known the pod."""


class UnhookedReporter:
    """Reports to the agent the first reason why this process has no hook; the user sees the reason.

    A fork reports its own reason. No connection stays open: a pod has a limited number, and
    processes with hooks need them.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._reported_by: int | None = None

    def report(self, reason: int) -> None:
        """Report a reason to the agent, a number of `words.UNHOOKED`. Raises OSError.

        The first call starts a thread, and later calls do nothing.
        """
        if self._reported_by == os.getpid():
            return
        self._reported_by = os.getpid()
        page = Page.make()
        page.words[words.LAYOUT] = words.VERSION
        page.words[words.UNHOOKED] = reason
        HiddenThread(partial(self._run, page))

    def _run(self, page: Page) -> None:
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent, suppress(OSError):
                agent.connect(self._path)
                send(agent, {}, [page.descriptor])
            sleep(_PAUSE_SECONDS)
