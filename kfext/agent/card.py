"""One card and the jobs on it: who gives way to whom, and for how long."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

from kfext.agent.process import Orders, Process
from kfext.core.gpu.loss import LossMeter, Reading
from kfext.core.gpu.pair import LONGEST_MICRO_STEP, Gate, Pair, Ruling
from kfext.core.gpu.turns import TURN, Turns
from kfext.hook import words

_NS = 1e9
_SOON = 0.05
"""Seconds between two looks at a card."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a sharer was promised; parts of the card, or of its time."""

    high: bool
    share: float
    limit: float = 1.0
    budget: float = 0.05
    minimum: float = 0.2


@dataclass(slots=True)
class _Sharer:
    """A pod on the card. `worked`: the seconds between gates of its processes that are gone."""

    terms: Terms
    processes: dict[int, Process] = field(default_factory=dict)
    pair: Pair | None = None
    ruling: Ruling | None = None
    worked: float = 0.0
    micro_steps: int = 0

    def seconds(self) -> float:
        """Return for how long its processes have worked between gates, in all."""
        return self.worked + sum(one.seconds(words.WORKED_NS) for one in self.processes.values())

    def wants(self) -> bool:
        """Return whether it waits at the gate, or has passed it since the last call."""
        begun = sum(one[words.MICRO_STEPS] for one in self.processes.values())
        moved, self.micro_steps = begun != self.micro_steps, begun
        return moved or any(one[words.ASKING] == 1 for one in self.processes.values())


class SharedCard:
    """The sharers of one card, by the uid of their pods. Call `look` when `look` has said to."""

    def __init__(self) -> None:
        self._sharers: dict[str, _Sharer] = {}
        self._turns = Turns()
        self._turn: tuple[str, float, float] | None = None
        self._idle = True
        self._meter: LossMeter | None = None

    def promise(self, pod: str, terms: Terms, *, now: float) -> None:
        """Take in a pod that has a part of the card, or its new terms; at most one has priority."""
        known = self._sharers.get(pod)
        if known is not None and known.terms == terms:
            return
        self._sharers[pod] = _Sharer(terms, known.processes if known else {})
        if not terms.high:
            self._turns.set(pod, share=terms.share, limit=terms.limit, now=now)
        self._rearrange(now)

    def withdraw(self, pod: str, *, now: float) -> None:
        """Take in that a pod has gone."""
        sharer = self._sharers.pop(pod, None)
        if sharer is None:
            return
        for process in sharer.processes.values():
            process.end()
        self._turns.remove(pod)
        self._rearrange(now)

    def join(self, pod: str, process: Process, *, now: float) -> None:
        """Take in a process of a pod that has a part of the card."""
        sharer = self._sharers[pod]
        sharer.processes[process.number] = process
        if not sharer.terms.high:
            process.send_orders()
        self._rearrange(now)

    def leave(self, pod: str, number: int, *, now: float) -> None:
        """Take in that a process has gone."""
        sharer = self._sharers.get(pod)
        process = sharer.processes.pop(number, None) if sharer else None
        if sharer is None or process is None:
            return
        sharer.worked += process.seconds(words.WORKED_NS)
        self._rearrange(now)

    def look(self, now: float) -> float:
        """Rule on what is on the card; return in how many seconds to look again."""
        self._rule(now)
        until = self._take_turns(now)
        for name, sharer in self._low().items():
            its = self._turn is not None and self._turn[0] == name
            orders = self._orders(sharer, turn=its or self._idle)
            for process in sharer.processes.values():
                process.order(orders, now=int(now * _NS))
        return min(_SOON, until)

    def evicted(self) -> list[str]:
        """Return the pods of low priority that must leave the card."""
        return [
            name
            for name, one in self._sharers.items()
            if one.ruling is not None and one.ruling.evict
        ]

    def _low(self) -> dict[str, _Sharer]:
        return {name: one for name, one in self._sharers.items() if not one.terms.high}

    def _highs(self) -> list[Process]:
        high = (one for one in self._sharers.values() if one.terms.high)
        return [process for one in high for process in one.processes.values()]

    def _rearrange(self, now: float) -> None:
        """Have each process of low priority know before whom it gives way, and who wakes it."""
        highs, ringing = self._highs(), []
        if highs and self._meter is None:
            self._meter = LossMeter(now)
        elif not highs:
            self._meter = None
        for sharer in self._low().values():
            if not highs:
                sharer.pair = sharer.ruling = None
            for process in sharer.processes.values():
                heard, rung = _bell() if highs else (None, None)
                process.send_highs(highs, heard)
                if heard is not None and rung is not None:
                    heard.close()
                    ringing.append(rung)
        for high in highs:
            high.send_bells(ringing)
        for rung in ringing:
            rung.close()

    def _rule(self, now: float) -> None:
        if self._meter is None:
            return
        highs = self._highs()
        self._meter.note(_reading(highs, now))
        budget = min(one.terms.budget for one in self._sharers.values() if one.terms.high)
        for sharer in self._low().values():
            if sharer.pair is None:
                minimum = sharer.terms.minimum
                sharer.pair = Pair(self._meter, budget=budget, minimum=minimum, now=now)
            sharer.ruling = sharer.pair.rule(worked=sharer.seconds(), now=now)

    def _take_turns(self, now: float) -> float:
        """Charge the turn that ends, and give the next one; return in how many seconds it ends."""
        if self._turn is not None:
            name, began, before = self._turn
            sharer = self._sharers.get(name)
            if sharer is not None and now - began < TURN:
                return TURN - (now - began)
            if sharer is not None:
                self._turns.ran(name, max(sharer.seconds() - before, 0.0), now=now)
        wanting = [name for name, one in self._low().items() if one.wants()]
        self._idle = not wanting  # so whoever comes first need not wait for the next look
        chosen = self._turns.next(wanting, now=now)
        if chosen is None:
            self._turn = None
            return self._turns.wakes(wanting, now=now)
        self._turn = (chosen, now, self._sharers[chosen].seconds())
        return TURN

    def _orders(self, sharer: _Sharer, *, turn: bool) -> Orders:
        ruling = sharer.ruling
        if ruling is None:
            return Orders(words.OPEN, LONGEST_MICRO_STEP, turn=turn)
        mode = words.GATED if ruling.gate is Gate.GATED else words.SHUT
        return Orders(mode, ruling.micro_step, ruling.allowance, ruling.tickets, turn)


def _bell() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a bell: that which hears it cannot ring, nor send anything."""
    heard, rung = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.shutdown(socket.SHUT_WR)
    rung.shutdown(socket.SHUT_RD)
    return heard, rung


def _reading(highs: Iterable[Process], now: float) -> Reading:
    """Return how far a job is: the steps of all its processes on the card."""
    pages = list(highs)
    stepped = max((one.seconds(words.STEPPED) for one in pages), default=0.0)
    return Reading(now, sum(one[words.STEPS] for one in pages), min(stepped, now))
