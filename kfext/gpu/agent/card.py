"""One card and the pods on it: it decides which pods give way, and for how long."""

import socket
from collections.abc import Mapping
from dataclasses import replace

import structlog

from kfext.gpu.agent.process import Process
from kfext.gpu.agent.report import Pod, SlotReport
from kfext.gpu.agent.sharer import Sharer, reading
from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import MAX_DESCRIPTORS
from kfext.gpu.hook.page import Page
from kfext.gpu.rules.neighbours import Neighbours
from kfext.gpu.rules.turns import Dispatcher
from kfext.model.gpu import UNITS, GpuShare

_log = structlog.get_logger(__name__)

_LONGEST_INTERVAL, _SHORTEST_INTERVAL = 0.05, 0.001
"""Seconds between two updates of a card."""


class SharedCard:
    """The sharers of one card, by the names of their folders (see `folder_of`).

    At the next `update`, the other sharers learn which processes have joined or left.
    """

    def __init__(self, slot: int) -> None:
        self._slot = slot
        self._card: str | None = None
        self._sharers: dict[str, Sharer] = {}
        self._dispatcher = Dispatcher()
        self._neighbours: Neighbours | None = None
        self._high_processes: list[Process] = []
        self._bells: list[socket.socket] = []
        self._newer_pages_sent = False
        self._busy: list[tuple[int, int]] = []
        # A process gets its bell only with pages. This page is of no process, and never busy.
        self._idle_page = Page.make()
        self._idle_page.words[words.LAYOUT] = words.VERSION

    def reserve(self, card: str | None) -> None:
        """Set the UUID of the reserved card; None means no card, so the gates are shut."""
        if card is None and self._card is not None:
            _log.warning("a card is no longer reserved: its gates are shut", slot=self._slot)
        elif card is not None and self._card is None:
            _log.info("a card is reserved", slot=self._slot, card=card)
        self._card = card

    def promise(self, folder: str, pod: Pod, terms: GpuShare, *, now: float) -> None:
        """Record a pod on the card, or its new terms; at most one pod has high priority."""
        sharer = self._sharer(folder)
        if sharer.terms == terms and sharer.pod == pod:
            return
        if sharer.high or terms.high:
            self._neighbours = None
        new = sharer.terms is None
        sharer.promise(pod, terms, now=now)
        if not terms.high:
            self._dispatcher.turns.set(folder, share=terms.units / UNITS, now=now)
        for process in sharer.processes.values() if new else ():
            self._greet(sharer, process)

    def withdraw(self, folder: str) -> None:
        """Forget a pod that has gone."""
        sharer = self._sharers.pop(folder, None)
        if sharer is None:
            return
        sharer.end()
        self._dispatcher.turns.remove(folder)
        if sharer.high:
            self._neighbours = None
        elif self._neighbours is not None:
            self._neighbours.remove(folder)

    def join(self, folder: str, process: Process) -> None:
        """Record a new process of a pod; the terms of the pod may be unknown."""
        sharer = self._sharer(folder)
        if sharer.join(process):
            self._greet(sharer, process)

    def leave(self, folder: str, number: int) -> None:
        """Forget a process that has gone."""
        sharer = self._sharers.get(folder)
        if sharer is None:
            return
        sharer.leave(number)
        if sharer.terms is None and not sharer.processes:
            self.withdraw(folder)

    def update(self, now: float) -> float:
        """Read all pages, decide, and write the orders; return the seconds until the next call."""
        self._exchange_descriptors()
        lows = self._lows()
        for sharer in self._sharers.values():
            sharer.update(now)
        self._time(lows, now)
        self._rule(lows, now)
        activities = {
            name: replace(sharer.activity, wants=False) if sharer.shut else sharer.activity
            for name, sharer in lows.items()
        }
        previous = self._dispatcher.holder
        until_change = self._dispatcher.update(activities, now=now)
        holder = self._dispatcher.holder
        alone, reserved = len(self._sharers) == 1, self._card is not None
        for name, sharer in lows.items():
            turn = self._dispatcher.may_work(name, now=now)
            sharer.order(turn=turn, alone=alone, reserved=reserved, now=now)
        if holder is not None and holder != previous:
            lows[holder].bell.ring()
        return max(min(_LONGEST_INTERVAL, until_change), _SHORTEST_INTERVAL)

    def report(self, now: float) -> SlotReport:
        """Return the report of the card."""
        loss = self._neighbours.meter.loss if self._neighbours else None
        sharers = [
            sharer.report(now) for sharer in self._sharers.values() if sharer.terms is not None
        ]
        return SlotReport(self._slot, self._card, loss, tuple(sharers))

    def _sharer(self, folder: str) -> Sharer:
        if folder not in self._sharers:
            self._sharers[folder] = Sharer()
        return self._sharers[folder]

    def _lows(self) -> dict[str, Sharer]:
        return {
            name: sharer
            for name, sharer in self._sharers.items()
            if sharer.terms and not sharer.high
        }

    def _gives_way(self, sharer: Sharer) -> bool:
        """Return whether a pod gives way; with unknown terms it does beside a high-priority pod."""
        if sharer.terms is None:
            return any(other.high for other in self._sharers.values())
        return not sharer.high

    def _present_high_processes(self) -> list[Process]:
        high = (sharer for sharer in self._sharers.values() if sharer.high)
        return [process for sharer in high for process in sharer.processes.values()]

    def _pages(self) -> list[int]:
        pages = [process.descriptor for process in self._present_high_processes()]
        return pages or [self._idle_page.descriptor]

    def _greet(self, sharer: Sharer, process: Process) -> None:
        """Make a new low-priority process give way from its start."""
        if self._gives_way(sharer):
            if self._present_high_processes() != self._high_processes:
                self._newer_pages_sent = True
            sharer.give_way(self._pages(), [process])
            if sharer.terms is not None:
                process.send_orders()

    def _exchange_descriptors(self) -> None:
        """Send pages to the pods that give way, and their bells to the high-priority processes.

        Both are sent only if they have changed since the last update.
        """
        high_processes = self._present_high_processes()
        giving_way = [sharer for sharer in self._sharers.values() if self._gives_way(sharer)]
        changed = high_processes != self._high_processes or self._newer_pages_sent
        self._high_processes, self._newer_pages_sent = high_processes, False
        if changed:
            for sharer in giving_way:
                sharer.give_way(self._pages(), sharer.processes.values())
            if self._neighbours is not None:
                self._neighbours.meter.restart()
        bells = [sharer.bell.sender for sharer in giving_way][:MAX_DESCRIPTORS]
        if changed or bells != self._bells:
            self._bells = bells
            for process in high_processes:
                process.send_bells(bells)

    def _time(self, lows: Mapping[str, Sharer], now: float) -> None:
        """Time the steps of each low-priority sharer, alone on the card or beside others."""
        high = self._high_processes
        busy = [(process[words.BUSY_NS], process[words.CHANGED]) for process in high]
        idle = busy == self._busy and not any(process[words.BUSY] for process in high)
        self._busy = busy
        wanting = {name for name, sharer in lows.items() if sharer.activity.wants}
        for name, sharer in lows.items():
            sharer.time(alone=idle and not wanting - {name}, now=now)

    def _rule(self, lows: Mapping[str, Sharer], now: float) -> None:
        high_sharers = [sharer for sharer in self._sharers.values() if sharer.high]
        if not high_sharers:
            for sharer in lows.values():
                sharer.set_ruling(None)
            return
        if self._neighbours is None:
            budget = min(sharer.terms.loss_budget for sharer in high_sharers if sharer.terms)
            self._neighbours = Neighbours(budget=budget, now=now)
        current = reading(self._high_processes, now)
        if current is not None:
            self._neighbours.meter.record(current)
        rulings = self._neighbours.rule(
            {name: sharer.effects() for name, sharer in lows.items()}, now=now
        )
        for name, sharer in lows.items():
            sharer.set_ruling(rulings[name])
