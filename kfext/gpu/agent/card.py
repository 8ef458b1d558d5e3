"""One card and the jobs on it: who gives way to whom, and for how long."""

import socket
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, islice, zip_longest

import structlog

from kfext.gpu.agent.process import Process
from kfext.gpu.agent.report import CardReport, Pod
from kfext.gpu.agent.sharer import Sharer, reading
from kfext.gpu.hook import words
from kfext.gpu.hook.link import MOST_DESCRIPTORS
from kfext.gpu.hook.page import Page
from kfext.gpu.rules.dispatcher import Dispatcher
from kfext.gpu.rules.neighbours import LONGEST_MICRO_STEP, Neighbours
from kfext.model.gpu import UNITS, GpuShare

_log = structlog.get_logger(__name__)

_SOON, _AT_ONCE = 0.05, 0.001
"""Seconds between two looks at a card, at most and at least."""


class SharedCard:
    """The sharers of one card, by the names of their folders. Call `look` when `look` has said to.

    Others learn of what joins and leaves at the next look, however often that has happened.
    `longest_micro_step`: see `Neighbours`.
    """

    def __init__(self, slot: int, *, longest_micro_step: float = LONGEST_MICRO_STEP) -> None:
        self._slot = slot
        self._longest = longest_micro_step
        self._card: str | None = None
        self._sharers: dict[str, Sharer] = {}
        self._dispatcher = Dispatcher()
        self._neighbours: Neighbours | None = None
        self._highs: list[Process] = []
        self._ringing: list[socket.socket] = []
        self._ahead = False
        self._busy: list[tuple[int, int]] = []
        # A process hears its bell only beside pages: this one is of nobody, who is never busy.
        self._nobody = Page.make()
        self._nobody.words[words.LAYOUT] = words.VERSION

    def reserve(self, card: str | None) -> None:
        """Take in which card it is, None if it is not reserved: then the gates are shut."""
        if card is None and self._card is not None:
            _log.warning("a card is not reserved any more: its gates are shut", slot=self._slot)
        elif card is not None and self._card is None:
            _log.info("a card is reserved", slot=self._slot, card=card)
        self._card = card

    def promise(self, folder: str, pod: Pod, terms: GpuShare, *, now: float) -> None:
        """Take in a pod that has a part of the card, or its new terms; at most one has priority."""
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
        """Take in that a pod has gone."""
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
        """Take in a process of a pod, of which the terms may be unknown."""
        sharer = self._sharer(folder)
        if sharer.join(process):
            self._greet(sharer, process)

    def leave(self, folder: str, number: int) -> None:
        """Take in that a process has gone."""
        sharer = self._sharers.get(folder)
        if sharer is None:
            return
        sharer.leave(number)
        if sharer.terms is None and not sharer.processes:
            self.withdraw(folder)

    def look(self, now: float) -> float:
        """Rule on what is on the card; return in how many seconds to look again."""
        self._exchange_descriptors()
        lows = self._lows()
        for sharer in self._sharers.values():
            sharer.look(now)
        self._time(lows, now)
        self._rule(lows, now)
        seen = {
            name: replace(one.activity, wants=False) if one.shut else one.activity
            for name, one in lows.items()
        }
        before = self._dispatcher.holder
        until = self._dispatcher.look(seen, now=now)
        holder = self._dispatcher.holder
        for name, sharer in lows.items():
            turn = self._dispatcher.may_work(name, now=now)
            sharer.order(turn=turn, reserved=self._card is not None, now=now)
        if holder is not None and holder != before:
            lows[holder].bells.ring()
        return max(min(_SOON, until), _AT_ONCE)

    def report(self, now: float) -> CardReport:
        """Return what is to be shown of the card."""
        loss = self._neighbours.meter.loss if self._neighbours else None
        sharers = [one.report(now) for one in self._sharers.values() if one.terms is not None]
        return CardReport(self._slot, self._card, loss, tuple(sharers))

    def _sharer(self, folder: str) -> Sharer:
        if folder not in self._sharers:
            self._sharers[folder] = Sharer()
        return self._sharers[folder]

    def _lows(self) -> dict[str, Sharer]:
        return {name: one for name, one in self._sharers.items() if one.terms and not one.high}

    def _gives_way(self, sharer: Sharer) -> bool:
        """Return whether a pod has low priority; one with unknown terms has if another has high."""
        if sharer.terms is None:
            return any(one.high for one in self._sharers.values())
        return not sharer.high

    def _high_processes(self) -> list[Process]:
        high = (one for one in self._sharers.values() if one.high)
        return [process for one in high for process in one.processes.values()]

    def _pages(self) -> list[int]:
        pages = [one.descriptor for one in self._high_processes()]
        return pages or [self._nobody.descriptor]

    def _greet(self, sharer: Sharer, process: Process) -> None:
        """Have a new process of low priority give way from its first moment."""
        if self._gives_way(sharer):
            self._ahead = self._ahead or self._high_processes() != self._highs
            sharer.give_way(self._pages(), [process])
            if sharer.terms is not None:
                process.send_orders()

    def _exchange_descriptors(self) -> None:
        """Send each side the descriptors of the other, where they changed since the last look."""
        highs = self._high_processes()
        giving = [one for one in self._sharers.values() if self._gives_way(one)]
        changed = highs != self._highs or self._ahead  # some processes have newer pages than others
        self._highs, self._ahead = highs, False
        if changed:
            for one in giving:
                one.give_way(self._pages(), one.processes.values())
            if self._neighbours is not None:
                self._neighbours.restart()
        # The first bell of each pod comes before the second one of any.
        ranked = chain(*zip_longest(*(one.bells.rung for one in giving)))
        bells = list(islice(filter(None, ranked), MOST_DESCRIPTORS))
        if changed or bells != self._ringing:
            self._ringing = bells
            for high in highs:
                high.send_bells(bells)

    def _time(self, lows: Mapping[str, Sharer], now: float) -> None:
        """Time the steps of each of low priority, alone on the card or beside others."""
        busy = [(one[words.BUSY_NS], one[words.CHANGED]) for one in self._highs]
        idle = busy == self._busy and not any(one[words.BUSY] for one in self._highs)
        self._busy = busy
        wanting = {name for name, one in lows.items() if one.activity.wants}
        for name, sharer in lows.items():
            sharer.time(alone=idle and not wanting - {name}, now=now)

    def _rule(self, lows: Mapping[str, Sharer], now: float) -> None:
        highs = [one for one in self._sharers.values() if one.high]
        if not highs:
            for sharer in lows.values():
                sharer.take(None)
            return
        if self._neighbours is None:
            budget = min(one.terms.loss_budget for one in highs if one.terms)
            self._neighbours = Neighbours(budget=budget, now=now, longest_micro_step=self._longest)
        read = reading(self._highs, now)
        if read is not None:
            self._neighbours.note(read)
        rulings = self._neighbours.rule({name: one.seen() for name, one in lows.items()}, now=now)
        for name, sharer in lows.items():
            sharer.take(rulings[name])
