"""The agent's work: who is on which card, by kubelet; what each was promised, by its pod."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

import grpc
import structlog

from kfext.agent.card import SharedCard, Terms
from kfext.agent.doors import Doors
from kfext.agent.hook_files import lay_out
from kfext.agent.process import Process
from kfext.agent.slots import Pod, Slots
from kfext.gpu.device_plugin import FOLDER, DevicePlugin
from kfext.gpu.pod_resources import Held
from kfext.model.gpu_slots import resource_of, units_of

_log = structlog.get_logger(__name__)

_POLL_SECONDS = 1.0
"""Pause between two questions to kubelet about who has what."""


class Agent:
    """Shares the cards of a node. `root` is a folder of the node's that is empty after a boot.

    `count`: of cards on the node; `held`: asks kubelet, and raises grpc.RpcError while it is away;
    `terms`: what a pod was promised, None while that is unknown.
    """

    def __init__(
        self,
        *,
        node: str,
        count: int,
        root: Path,
        held: Callable[[], Awaitable[list[Held]]],
        terms: Callable[[Pod], Terms | None],
        plugins: Path = FOLDER,
    ) -> None:
        self._held = held
        self._terms = terms
        self._doors = Doors(root / "sockets", enter=self._enter, leave=self._leave)
        hook = lay_out(root / "hook")
        self._slots = Slots(node=node, count=count, doors=self._doors, hook=hook)
        self._plugins = [
            DevicePlugin(
                resource_of(slot), allocate=partial(self._slots.allocate, slot), folder=plugins
            )
            for slot in range(count)
        ]
        self._cards = [SharedCard() for _ in range(count)]
        self._unknown: dict[str, list[Process]] = {}
        self._known: dict[str, int] = {}

    async def run(self) -> None:
        """Share the cards until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for slot, plugin in enumerate(self._plugins):
                    await plugin.offer(dict.fromkeys(units_of(slot), True))
                    tasks.create_task(plugin.run())
                for card in self._cards:
                    tasks.create_task(_share(card))
                tasks.create_task(self._follow())
        finally:
            self._doors.close_all()

    async def _follow(self) -> None:
        """Ask kubelet for ever who has which units."""
        while True:
            try:
                self._take(await self._held())
            except grpc.RpcError as error:
                _log.warning("kubelet does not answer", why=str(error))
            await asyncio.sleep(_POLL_SECONDS)

    def _take(self, held: Sequence[Held]) -> None:
        """Take in what kubelet says; a pod with unknown terms waits for the next time."""
        self._slots.take(held)
        now, sharers = monotonic(), self._slots.sharers
        for folder in self._known.keys() - sharers.keys():
            self._cards[self._known.pop(folder)].withdraw(folder, now=now)
        for folder, (slot, pod) in sharers.items():
            terms = self._terms(pod)
            if terms is None or slot >= len(self._cards):
                continue
            self._known[folder] = slot
            self._cards[slot].promise(folder, terms, now=now)
            for process in self._unknown.pop(folder, ()):
                self._cards[slot].join(folder, process, now=now)

    def _enter(self, folder: str, process: Process) -> None:
        slot = self._known.get(folder)
        if slot is None:
            self._unknown.setdefault(folder, []).append(process)
        else:
            self._cards[slot].join(folder, process, now=monotonic())

    def _leave(self, folder: str, number: int) -> None:
        slot = self._known.get(folder)
        if slot is not None:
            self._cards[slot].leave(folder, number, now=monotonic())
            return
        waiting = self._unknown.pop(folder, [])
        if stay := [one for one in waiting if one.number != number]:
            self._unknown[folder] = stay


async def _share(card: SharedCard) -> None:
    """Look at a card for ever."""
    while True:
        seconds = card.look(monotonic())
        await asyncio.sleep(seconds)
