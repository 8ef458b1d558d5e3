"""A stand-in for a process with a hook: it has no thread, and the test passes the time."""

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
    """A process with a hook: its `page`, and what the agent has sent. `process`: the agent's side.

    `messages`: the number of messages read so far.
    """

    def __init__(self) -> None:
        self.page = Page.make()
        self.page.words[words.LAYOUT] = words.VERSION
        self.peer, self._agent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.orders, self.bells = Orders(), list[socket.socket]()
        self.messages = 0
        self.process = Process(next(_NUMBERS), self._agent, socket.dup(self.page.descriptor))

    def descriptors(self) -> list[int]:
        """Return the descriptors of its pages, and of both ends of its connection."""
        pages = [self.page.descriptor, self.process._orders.descriptor]
        return [*pages, self.peer.fileno(), self._agent.fileno()]

    def read(self) -> "Hooked":
        """Read all messages that the agent has sent; return the process itself."""
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
                self.orders.handle(message, descriptors)

    def passes(self, now: float) -> bool:
        """Return whether a micro-step may begin."""
        return self.orders.allow(int(now * NS), intruded=self.page.words[words.INTRUDED_NS])

    def set_asking(self, *, asks: bool = True) -> None:
        self.page.words[words.ASKING] = int(asks)

    def set_busy(self, now: float) -> None:
        self.page.words[words.BUSY], self.page.words[words.HEARTBEAT] = 1, int(now * NS)

    def set_steps(self, now: float, *, rate: float = 10.0) -> None:
        """Set the steps of a job that has made `rate` steps a second since the time 0."""
        self.page.words[words.STEPS] = int(now * rate)
        self.page.words[words.STEPPED] = int(int(now * rate) / rate * NS)


def join_process(card: SharedCard, pod: str, terms: GpuShare, *, now: float = 1.0) -> Hooked:
    """Add a pod with one process to a card."""
    hooked = Hooked()
    card.promise(pod, ("team", pod), terms, now=now)
    card.join(pod, hooked.process)
    return hooked
