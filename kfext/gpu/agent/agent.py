"""The agent's work: who is on which card, by kubelet; what each was promised, by its pod."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic

import grpc
import structlog

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.doors import Doors
from kfext.gpu.agent.hook_files import lay_out
from kfext.gpu.agent.process import Process
from kfext.gpu.agent.report import CardReport, Pod
from kfext.gpu.agent.slot_state import SlotState, empty, reserved
from kfext.gpu.agent.slots import Slots
from kfext.gpu.device.device_plugin import FOLDER, DevicePlugin
from kfext.gpu.device.inventory import Card, Inventory, InventoryError
from kfext.gpu.device.pod_resources import Held, IncompleteError
from kfext.gpu.hook.link import LONGEST_PAUSE
from kfext.model.gpu import GpuShare, resource_of, units_of

_log = structlog.get_logger(__name__)

_POLL_SECONDS = 1.0
"""Pause between two questions to kubelet about who has what."""
_LEARN_SECONDS = 10.0
"""Pause between two questions to kubelet about which cards it gives out, which seldom change."""
_UNREAD_SECONDS = 60.0
"""Once the cards could not be read for so long, only a new process can help: it starts NVML anew,
with the library of the driver that is loaded by then."""
_RETURN_SECONDS = LONGEST_PAUSE + 0.5
"""After its start an agent leads nobody for so long: the processes that an earlier one has led come
back one after the other, and one of low priority would pass before that of high priority is known.
Until then each paces itself, before the processes of high priority that it knows."""


class Agent:
    """Shares the cards of a node. `root` is a folder of the node's that is its own.

    `cdi`: see `Slots`.

    `inventory`: the cards of the node. `busybox`: see `lay_out`. `held`: asks kubelet, and raises
    grpc.RpcError while it is away. So does `offered`, which asks it for the ids of the cards that
    it gives out. `terms`: what a pod was promised, None while that is unknown; `uid`: of a pod,
    empty while that is. Raises InventoryError.
    """

    def __init__(
        self,
        *,
        node: str,
        inventory: Inventory,
        root: Path,
        busybox: Path,
        held: Callable[[], Awaitable[list[Held]]],
        offered: Callable[[], Awaitable[frozenset[str]]],
        terms: Callable[[Pod], GpuShare | None],
        uid: Callable[[Pod], str],
        cdi: bool = False,
        plugins: Path = FOLDER,
    ) -> None:
        self._held = held
        self._ask_offered = offered
        self._offered: frozenset[str] = frozenset()
        self._terms = terms
        self._uid = uid
        self._reservations: dict[int, str] = {}
        self._doors = Doors(root / "sockets", enter=self._enter, leave=self._leave)
        hook = lay_out(root / "hook", busybox=busybox)
        self._inventory = inventory
        self._present = inventory.cards()
        self._read_at = math.inf  # before `run` nothing reads them
        count = len(self._present)
        self._slots = Slots(
            node=node,
            count=count,
            doors=self._doors,
            hook=hook,
            given=root / "cards",
            cdi=cdi,
        )
        self._plugins = [
            DevicePlugin(
                resource_of(slot), allocate=partial(self._slots.allocate, slot), folder=plugins
            )
            for slot in range(count)
        ]
        self._cards = [SharedCard(slot) for slot in range(count)]
        self._known: dict[str, tuple[int, Pod]] = {}
        self._leads_from = math.inf
        self._leading = False
        self._taken = asyncio.Event()

    def reports(self) -> list[CardReport]:
        """Return what is to be shown of each card; of none before it is known who is there."""
        if not self._leading:
            return []
        now = monotonic()
        return [card.report(now) for card in self._cards]

    def cards(self) -> list[Card]:
        """Return the cards of the node as they were last read, shared or not."""
        return self._present

    def reservation(self, slot: int) -> str:
        """Return the uid of the pod that has reserved the card of a slot, empty while not known."""
        return self._reservations.get(slot, "")

    def state(self, slot: int) -> SlotState:
        """Return what there is in a slot."""
        card, moved = self._slots.cards.get(slot), self._slots.moved(slot)
        if card is not None:
            return reserved(card, self._present, moved=moved)
        taken = set(self._slots.cards.values())
        return empty(self._offered, self._present, taken=taken, moved=moved)

    def why_unwell(self) -> str | None:
        """Return why this process should be replaced by a new one, None while it works."""
        unread = monotonic() - self._read_at
        return f"the cards were not read for {unread:.0f} s" if unread > _UNREAD_SECONDS else None

    async def run(self) -> None:
        """Share the cards until cancelled."""
        self._read_at = monotonic()
        self._leads_from = self._read_at + _RETURN_SECONDS
        try:
            async with asyncio.TaskGroup() as tasks:
                for slot, plugin in enumerate(self._plugins):
                    await plugin.offer(dict.fromkeys(units_of(slot), True))
                    tasks.create_task(self._serve(plugin))
                for card in self._cards:
                    tasks.create_task(_repeat(partial(_look, card)))
                tasks.create_task(_repeat(self._follow))
                tasks.create_task(_repeat(self._learn))
                tasks.create_task(_repeat(self._look_after))
        finally:
            self._doors.close_all()

    async def _serve(self, plugin: DevicePlugin) -> None:
        """Serve kubelet once it is known which cards are reserved: before, all would be refused."""
        await self._taken.wait()
        await plugin.run()

    async def _follow(self) -> float:
        """Ask kubelet who has which units."""
        # As they are before the question: the answer may be about a pod that was there before.
        uids = {slot: self._uid(pod) for pod, slot in self._slots.reservations.items()}
        try:
            self._take(await self._held())
            self._reservations = uids
            self._taken.set()
        except (grpc.RpcError, IncompleteError) as error:
            _log.warning("kubelet does not answer", why=str(error))
        return _POLL_SECONDS

    async def _learn(self) -> float:
        """Ask kubelet which cards it gives out; while it is away, what it said last holds."""
        with suppress(grpc.RpcError):
            self._offered = await self._ask_offered()
        return _LEARN_SECONDS

    async def _look_after(self) -> float:
        """Read how the cards are; of one in trouble no units are to be had."""
        try:
            self._present = await asyncio.to_thread(self._inventory.cards)
        except InventoryError as error:
            _log.warning("the cards cannot be read", why=str(error))
            return _POLL_SECONDS
        self._read_at = monotonic()
        for slot, plugin in enumerate(self._plugins):
            await plugin.offer(dict.fromkeys(units_of(slot), not self.state(slot).trouble))
        return _POLL_SECONDS

    def _take(self, held: Sequence[Held]) -> None:
        """Take in what kubelet says; a pod with unknown terms waits for the next time.

        Of new pods those of high priority come first, so that the others are led before them.
        """
        self._slots.take(held)
        sharers = self._slots.sharers
        for slot, card in enumerate(self._cards):
            card.reserve(self._slots.cards.get(slot))
        for folder, (slot, pod) in tuple(self._known.items()):
            if sharers.get(folder) != (slot, pod):  # gone, or another pod has its units now
                del self._known[folder]
                self._cards[slot].withdraw(folder)
        now = monotonic()
        if now < self._leads_from:
            return
        found = [(folder, self._terms(pod)) for folder, (_, pod) in sharers.items()]
        known = [(folder, terms) for folder, terms in found if terms is not None]
        for folder, terms in sorted(known, key=lambda one: not one[1].high):
            self._known[folder] = slot, pod = sharers[folder]
            self._cards[slot].promise(folder, pod, terms, now=now)
        self._leading = True

    def _enter(self, folder: str, process: Process) -> None:
        self._cards[self._slots.slot(folder)].join(folder, process)

    def _leave(self, folder: str, number: int) -> None:
        self._cards[self._slots.slot(folder)].leave(folder, number)


async def _look(card: SharedCard) -> float:
    return card.look(monotonic())


async def _repeat(act: Callable[[], Awaitable[float]]) -> None:
    """Act for ever, each time after as many seconds as it has returned.

    An error that nobody has foreseen must end neither this nor what is done for other cards. It is
    logged when it begins.
    """
    fails = False
    while True:
        try:
            seconds = await act()
            fails = False
        except Exception:
            if not fails:
                _log.exception("a card or kubelet is not followed; tried again")
            fails, seconds = True, _POLL_SECONDS
        await asyncio.sleep(seconds)
