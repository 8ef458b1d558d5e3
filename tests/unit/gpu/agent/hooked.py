"""A process of a job with its hook, without a thread, and with a clock of the test."""

import socket
from itertools import count

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.process import Process
from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import receive
from kfext.gpu.hook.gate import Orders
from kfext.gpu.hook.page import Page
from kfext.model.gpu import GpuShare

NS = 10**9
HIGH = GpuShare(50, high=True)
LOW = GpuShare(25)
_NUMBERS = count()


class Hooked:
    """A process of a job with its hook: a page, and the messages from the agent."""

    def __init__(self) -> None:
        self.own = Page.make()
        self.own.words[words.LAYOUT] = words.VERSION
        self.peer, self._agent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.orders, self.bells = Orders(), list[socket.socket]()
        self.messages = 0
        page = socket.dup(self.own.descriptor)
        self.process = Process(next(_NUMBERS), self._agent, page)

    def descriptors(self) -> list[int]:
        """Return the descriptors of its pages, and of both ends of its connection."""
        pages = [self.own.descriptor, self.process._orders.descriptor]
        return [*pages, self.peer.fileno(), self._agent.fileno()]

    def read(self) -> "Hooked":
        """Read all that the agent has sent."""
        self.peer.setblocking(False)
        while True:
            try:
                answer = receive(self.peer)
            except BlockingIOError:
                return self
            assert answer is not None
            message, descriptors = answer
            self.messages += 1
            if "bells" in message:
                self.bells = [socket.socket(fileno=descriptor) for descriptor in descriptors]
            else:
                self.orders.take(message, descriptors)

    def passes(self, now: float) -> bool:
        return self.orders.allow(int(now * NS), intruded=self.own.words[words.INTRUDED_NS])

    def asks(self, *, asks: bool = True) -> None:
        self.own.words[words.ASKING] = int(asks)

    def is_busy(self, now: float) -> None:
        self.own.words[words.BUSY], self.own.words[words.HEARTBEAT] = 1, int(now * NS)

    def steps(self, now: float, *, rate: float = 10.0) -> None:
        """Count the steps made at a rate since 0."""
        self.own.words[words.STEPS] = int(now * rate)
        self.own.words[words.STEPPED] = int(int(now * rate) / rate * NS)


def joined(card: SharedCard, pod: str, terms: GpuShare, *, now: float = 1.0) -> Hooked:
    hooked = Hooked()
    card.promise(pod, ("team", pod), terms, now=now)
    card.join(pod, hooked.process)
    return hooked
