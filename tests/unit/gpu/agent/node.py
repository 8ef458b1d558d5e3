"""A node with an agent, and processes that connect to it; the test plays kubelet and API server."""

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
    """An agent, with the answers that it gets from kubelet, the API server and the driver.

    `allocated`: the devices of all containers. `error`: raised instead of an answer about them.
    `requests`: the number of requests for them. `offered`: the cards that kubelet offers; None
    means that it is away. `troubles`: why each card cannot be shared; empty if it can.
    """

    def __init__(self, root: Path) -> None:
        self.allocated, self.terms = [CARD], dict[Pod, GpuShare]()
        self.offered: set[str] | None = set()
        self.error: Exception | None = None
        self.uids = dict[Pod, str]()
        self.requests = 0
        self.troubles = {"GPU-1": "", "GPU-2": ""}
        self.readable = True
        self.root = root
        self.task: asyncio.Task[None] | None = None

    def cards(self) -> list[Card]:
        """Return the cards. Raises InventoryError while they are not `readable`."""
        if not self.readable:
            raise InventoryError("NVML does not answer")
        return [Card(uuid, 16384, trouble) for uuid, trouble in self.troubles.items()]

    async def _read_allocated(self) -> list[AllocatedDevices]:
        self.requests += 1
        if self.error is not None:
            raise self.error
        return self.allocated

    async def _read_offered(self) -> frozenset[str]:
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
            allocated_devices=self._read_allocated,
            allocatable_devices=self._read_offered,
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
        """Start a pod with a process that connects; `promised`: whether its terms are known."""
        _, folder = self.agent._allocate(0, UNITS[pod]).mounts
        self.allocated = [
            *self.allocated,
            AllocatedDevices("team", pod, "pytorch", "kfext.dev/gpu-0", frozenset(UNITS[pod])),
        ]
        if promised:
            self.promise(pod)
        return Job(f"{folder}/agent", pod)

    def promise(self, pod: str) -> None:
        self.terms["team", pod] = GpuShare(30, high=pod == "high")

    def sharers(self) -> list[SharerReport]:
        """Return the reports of the pods on all cards."""
        return [sharer for card in self.agent.reports() for sharer in card.sharers]

    def processes(self, slot: int) -> int:
        """Return the number of processes on a card."""
        return sum(len(sharer.processes) for sharer in self.agent._cards[slot]._sharers.values())

    def end(self, pod: str) -> None:
        self.allocated = [device for device in self.allocated if device.pod != pod]


class Job:
    """A process with a hook. `bells`: the number of bells that a high-priority process has.

    `passed`: for each message to a low-priority process, whether it might pass its gate after it.
    """

    def __init__(self, path: str, pod: str) -> None:
        self.page, self.orders, self.bells = Page.make(), Orders(), 0
        self.page.words[words.LAYOUT] = words.VERSION
        self.passed: list[bool] = []
        handle = self._handle_bells if pod == "high" else self._handle_orders
        AgentConnection(path, page=self.page, handle=handle)

    def _handle_orders(self, message: dict[str, object], descriptors: list[int]) -> None:
        self.orders.handle(message, descriptors)
        self.passed.append(self.passes())

    def _handle_bells(self, message: dict[str, object], _: list[int]) -> None:
        if "bells" not in message:
            raise ValueError("not for a high-priority job")
        self.bells = int(str(message["bells"]))

    def passes(self) -> bool:
        return self.orders.allow(monotonic_ns(), intruded=0)

    def agent_alive(self) -> bool:
        return self.orders.agent_alive(monotonic_ns())

    def set_busy(self) -> None:
        self.page.words[words.BUSY] = 1
        self.page.words[words.HEARTBEAT] = monotonic_ns() + 3600 * 10**9


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)
