"""The agent: it learns from kubelet which card each pod has, and shares it by the pods' terms."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic

import grpc
import structlog

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.hook_files import lay_out
from kfext.gpu.agent.pod_sockets import PodSockets
from kfext.gpu.agent.process import Process
from kfext.gpu.agent.report import Pod, SlotReport, SlotState
from kfext.gpu.agent.slots import Slots, empty_state, reserved_state
from kfext.gpu.device.inventory import Card, Inventory, InventoryError
from kfext.gpu.device.kubelet import (
    FOLDER,
    AllocatedDevices,
    Allocation,
    DevicePlugin,
    IncompleteError,
)
from kfext.gpu.hook.agent_connection import LONGEST_PAUSE
from kfext.model.gpu import GpuShare, folder_of, resource_of, units_of

_log = structlog.get_logger(__name__)

_POLL_SECONDS = 1.0
"""Pause between two requests to kubelet for the units of each pod."""
_OFFERED_SECONDS = 10.0
"""Pause between two requests to kubelet for the cards that it offers, which seldom change."""
_UNREAD_SECONDS = 60.0
"""If the cards cannot be read for this long, only a new process can help: it starts NVML again,
with the library of the driver that is then loaded."""
_RETURN_SECONDS = LONGEST_PAUSE + 0.5
"""A new agent waits this long before it directs processes. The processes of an earlier agent
reconnect one after the other, so a low-priority process could pass before the high-priority pod is
known. Until then each process paces itself beside the high-priority processes that it knows."""


class Agent:
    """Shares the cards of a node. `root`: the agent's own folder on the node.

    `inventory`: the cards of the node. `busybox`: see `lay_out`. `cdi`: see `Slots`. `plugins`:
    kubelet's folder for device plugins. `allocated_devices`: requests the devices of each pod from
    kubelet. `allocatable_devices`: requests the ids of the cards that kubelet offers. Both raise
    grpc.RpcError while kubelet is away. `terms`: returns the terms of a pod, or None before they
    are known. `uid`: returns the uid of a pod; empty while unknown. Raises InventoryError.
    """

    def __init__(
        self,
        *,
        node: str,
        inventory: Inventory,
        root: Path,
        busybox: Path,
        allocated_devices: Callable[[], Awaitable[list[AllocatedDevices]]],
        allocatable_devices: Callable[[], Awaitable[frozenset[str]]],
        terms: Callable[[Pod], GpuShare | None],
        uid: Callable[[Pod], str],
        cdi: bool = False,
        plugins: Path = FOLDER,
    ) -> None:
        self._ask_allocated = allocated_devices
        self._ask_offered = allocatable_devices
        self._offered: frozenset[str] = frozenset()
        self._terms = terms
        self._uid = uid
        self._reservations: dict[int, str] = {}
        self._sockets = PodSockets(root / "sockets", enter=self._enter, leave=self._leave)
        hook = lay_out(root / "hook", busybox=busybox)
        self._inventory = inventory
        self._present = inventory.cards()
        self._read_at = math.inf  # nothing reads the cards before `run`
        count = len(self._present)
        self._slots = Slots(
            node=node,
            count=count,
            sockets=self._sockets,
            hook=hook,
            card_files=root / "cards",
            cdi=cdi,
        )
        self._plugins = [
            DevicePlugin(resource_of(slot), allocate=partial(self._allocate, slot), folder=plugins)
            for slot in range(count)
        ]
        self._cards = [SharedCard(slot) for slot in range(count)]
        self._known: dict[str, tuple[int, Pod]] = {}
        self._directs_from = math.inf
        self._directs = False
        self._kubelet_answered = asyncio.Event()

    def reports(self) -> list[SlotReport]:
        """Return the report of each slot; no report before the agent directs processes."""
        if not self._directs:
            return []
        now = monotonic()
        return [self._complete(card.report(now)) for card in self._cards]

    def cards(self) -> list[Card]:
        """Return the cards of the node as last read, shared or not."""
        return self._present

    def state(self, slot: int) -> SlotState:
        """Return the state of a slot."""
        card, moved = self._slots.cards.get(slot), self._slots.moved(slot)
        if card is not None:
            return reserved_state(card, self._present, moved=moved)
        occupied = set(self._slots.cards.values())
        return empty_state(self._offered, self._present, occupied=occupied, moved=moved)

    def liveness_problem(self) -> str | None:
        """Return why a new process should replace this process; None means that it works."""
        unread = monotonic() - self._read_at
        return f"the cards were not read for {unread:.0f} s" if unread > _UNREAD_SECONDS else None

    async def run(self) -> None:
        """Share the cards until cancelled."""
        self._read_at = monotonic()
        self._directs_from = self._read_at + _RETURN_SECONDS
        try:
            async with asyncio.TaskGroup() as tasks:
                for slot, plugin in enumerate(self._plugins):
                    await plugin.offer(dict.fromkeys(units_of(slot), True))
                    tasks.create_task(self._serve(plugin))
                for card in self._cards:
                    tasks.create_task(_repeat(partial(_update, card)))
                tasks.create_task(_repeat(self._read_allocated))
                tasks.create_task(_repeat(self._read_offered))
                tasks.create_task(_repeat(self._read_cards))
        finally:
            self._sockets.close_all()

    def _complete(self, report: SlotReport) -> SlotReport:
        """Return a card's report, completed with what the agent knows of its slot and its pods."""
        sharers = (
            replace(sharer, uid=self._uid((sharer.namespace, sharer.pod)))
            for sharer in report.sharers
        )
        return replace(
            report,
            sharers=tuple(sharers),
            reservation=self._reservations.get(report.slot, ""),
            state=self.state(report.slot),
        )

    async def _serve(self, plugin: DevicePlugin) -> None:
        """Serve kubelet once the reserved cards are known; earlier, all requests would fail."""
        await self._kubelet_answered.wait()
        await plugin.run()

    async def _read_allocated(self) -> float:
        """Read the units of each pod from kubelet."""
        # Read the uids before the request: a new pod may replace a pod of the answer meanwhile.
        uids = {slot: self._uid(pod) for pod, slot in self._slots.reservations.items()}
        try:
            self._record(await self._ask_allocated())
            self._reservations = uids
            self._kubelet_answered.set()
        except (grpc.RpcError, IncompleteError) as error:
            _log.warning("kubelet does not answer", why=str(error))
        return _POLL_SECONDS

    async def _read_offered(self) -> float:
        """Read the cards that kubelet offers; while it is away, its last answer holds."""
        with suppress(grpc.RpcError):
            self._offered = await self._ask_offered()
        return _OFFERED_SECONDS

    async def _read_cards(self) -> float:
        """Read the state of the cards; kubelet is offered no units of a card with a problem."""
        try:
            self._present = await asyncio.to_thread(self._inventory.cards)
        except InventoryError as error:
            _log.warning("the cards cannot be read", why=str(error))
            return _POLL_SECONDS
        self._read_at = monotonic()
        for slot, plugin in enumerate(self._plugins):
            await plugin.offer(dict.fromkeys(units_of(slot), not self.state(slot).trouble))
        return _POLL_SECONDS

    def _record(self, allocated: Sequence[AllocatedDevices]) -> None:
        """Record kubelet's answer; a pod with unknown terms waits for the next answer.

        New high-priority pods go first, so that they are known before other pods are directed.
        """
        self._slots.record(allocated)
        sharers = self._slots.sharers
        for slot, card in enumerate(self._cards):
            card.reserve(self._slots.cards.get(slot))
        for folder, sharer in tuple(self._known.items()):
            if sharers.get(folder) != sharer:  # the pod is gone, or another pod has its units
                self._forget(folder)
        now = monotonic()
        if now < self._directs_from:
            return
        candidates = [(folder, self._terms(pod)) for folder, (_, pod) in sharers.items()]
        known = [(folder, terms) for folder, terms in candidates if terms is not None]
        for folder, terms in sorted(known, key=lambda item: not item[1].high):
            self._known[folder] = slot, pod = sharers[folder]
            self._cards[slot].promise(folder, pod, terms, now=now)
        self._directs = True

    def _allocate(self, slot: int, units: Sequence[str]) -> Allocation:
        """Allocate units to a new container. Raises RefusedError.

        The last pod with these units may have had the same name, so its record is dropped here.
        """
        allocation = self._slots.allocate(slot, units)
        self._forget(folder_of(units))
        return allocation

    def _forget(self, folder: str) -> None:
        if folder in self._known:
            slot, _ = self._known.pop(folder)
            self._cards[slot].withdraw(folder)

    def _enter(self, folder: str, process: Process) -> None:
        self._cards[self._slots.slot(folder)].join(folder, process)

    def _leave(self, folder: str, number: int) -> None:
        self._cards[self._slots.slot(folder)].leave(folder, number)


async def _update(card: SharedCard) -> float:
    return card.update(monotonic())


async def _repeat(act: Callable[[], Awaitable[float]]) -> None:
    """Call `act` without end; each call returns the seconds until the next.

    An unexpected error must end neither this task nor the work for other cards. Of errors in a row
    the first is logged.
    """
    failed = False
    while True:
        try:
            seconds = await act()
            failed = False
        except Exception:
            if not failed:
                _log.exception("a card or kubelet is not followed; tried again")
            failed, seconds = True, _POLL_SECONDS
        await asyncio.sleep(seconds)
