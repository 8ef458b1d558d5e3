"""Tells the agent why a process has no hook; the agent shows the reason to the job's owner."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import partial
from time import sleep

from . import words
from .hidden_thread import HiddenThread
from .link import send
from .page import Page

_PAUSE_SECONDS = 30.0
"""Pause before the agent is told again: it may be new, or may not have known the pod before."""


class Notice:
    """Gives the agent the first reason of this process; a fork gives its own.

    It keeps no connection: a pod has a limited number, and processes with hooks need them.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._given_by: int | None = None

    def give(self, reason: int) -> None:
        """Tell the agent a reason, a number of `words.UNHOOKED`. Raises OSError.

        The first call starts a thread, and later calls do nothing.
        """
        if self._given_by == os.getpid():
            return
        self._given_by = os.getpid()
        page = Page.make()
        page.words[words.LAYOUT] = words.VERSION
        page.words[words.UNHOOKED] = reason
        HiddenThread(partial(self._run, page))

    def _run(self, own: Page) -> None:
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent, suppress(OSError):
                agent.connect(self._path)
                send(agent, {}, [own.descriptor])
            sleep(_PAUSE_SECONDS)
