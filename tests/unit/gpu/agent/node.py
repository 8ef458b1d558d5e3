"""A node with an agent, and with jobs that connect to it; the test answers for kubelet."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns

import grpc

from kfext.gpu.agent.agent import Agent
from kfext.gpu.agent.report import Pod, SharerReport
from kfext.gpu.device.inventory import Card, InventoryError
from kfext.gpu.device.kubelet import AllocatedDevices
from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import AgentConnection
from kfext.gpu.hook.gate import Orders
from kfext.gpu.hook.page import Page
from kfext.model.gpu import GpuShare, reservation_of, units_of

NODE = "node-a"
CARD = AllocatedDevices(
    "kfext-gpu", reservation_of(NODE, 0), "hold", "nvidia.com/gpu", frozenset({"GPU-1"})
)
UNITS = {"high": units_of(0)[:50], "low": units_of(0)[50:70], "other": units_of(0)[70:90]}


class Node:
    """The answers of kubelet and the API server, and the agent that asks them."""

    def __init__(self, root: Path) -> None:
        self.held, self.terms = [CARD], dict[Pod, GpuShare]()
        self.offered: set[str] | None = set()
        self.away: Exception | None = None
        self.uids = dict[Pod, str]()
        self.asked = 0
        self.troubles = {"GPU-1": "", "GPU-2": ""}
        self.reads = True
        self.root = root
        self.task: asyncio.Task[None] | None = None

    def cards(self) -> list[Card]:
        """The cards, as the driver would show them while it `reads` them."""
        if not self.reads:
            raise InventoryError("NVML does not answer")
        return [Card(uuid, 16384, trouble) for uuid, trouble in self.troubles.items()]

    async def _held(self) -> list[AllocatedDevices]:
        self.asked += 1
        if self.away is not None:
            raise self.away
        return self.held

    async def _offers(self) -> frozenset[str]:
        if self.offered is None:
            raise grpc.RpcError("away")
        return frozenset(self.offered)

    def start(self) -> None:
        (self.root / "plugins").mkdir(exist_ok=True)
        agent = Agent(
            node=NODE,
            inventory=self,
            root=self.root,
            busybox=Path(__file__),
            allocated_devices=self._held,
            allocatable_devices=self._offers,
            terms=self.terms.get,
            uid=lambda pod: self.uids.get(pod, ""),
            plugins=self.root / "plugins",
        )
        self.agent = agent
        self.task = asyncio.create_task(agent.run())

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])

    def run(self, pod: str, *, promised: bool = True) -> "Job":
        """Have kubelet start a pod, in which a process connects."""
        _, folder = self.agent._allocate(0, UNITS[pod]).mounts
        self.held = [
            *self.held,
            AllocatedDevices("team", pod, "pytorch", "kfext.dev/gpu-0", frozenset(UNITS[pod])),
        ]
        if promised:
            self.promise(pod)
        return Job(f"{folder}/agent", pod)

    def promise(self, pod: str) -> None:
        self.terms["team", pod] = GpuShare(30, high=pod == "high")

    def sharers(self) -> list[SharerReport]:
        """Return the status of the pods on all cards."""
        return [sharer for card in self.agent.reports() for sharer in card.sharers]

    def processes(self, slot: int) -> int:
        """Return the number of processes on a card."""
        return sum(len(sharer.processes) for sharer in self.agent._cards[slot]._sharers.values())

    def end(self, pod: str) -> None:
        self.held = [device for device in self.held if device.pod != pod]


class Job:
    """A process with a hook; in a low job the agent sends its orders."""

    def __init__(self, path: str, pod: str) -> None:
        self.own, self.orders, self.bells = Page.make(), Orders(), 0
        self.own.words[words.LAYOUT] = words.VERSION
        self.heard: list[bool] = []
        take = self._rung if pod == "high" else self._led
        AgentConnection(path, own=self.own, take=take)

    def _led(self, message: dict[str, object], descriptors: list[int]) -> None:
        """Handle a message; record whether a micro-step may begin after it."""
        self.orders.take(message, descriptors)
        self.heard.append(self.passes())

    def _rung(self, message: dict[str, object], _: list[int]) -> None:
        if "bells" not in message:
            raise ValueError("not for a job of high priority")
        self.bells = int(str(message["bells"]))

    def passes(self) -> bool:
        return self.orders.allow(monotonic_ns(), intruded=0)

    def led(self) -> bool:
        return self.orders.led(monotonic_ns())

    def busy(self) -> None:
        self.own.words[words.BUSY] = 1
        self.own.words[words.HEARTBEAT] = monotonic_ns() + 3600 * 10**9


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)
