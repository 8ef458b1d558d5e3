"""The reports on a slot, for metrics and the SharedGPU."""

from dataclasses import dataclass

Pod = tuple[str, str]
"""The namespace and the name of a pod."""


@dataclass(frozen=True, slots=True)
class SharerReport:
    """A pod on a card. None means an unknown value, unless stated otherwise.

    `uid`: the pod's uid; empty while unknown. `share`: the fraction of the card that it requested.
    `used`: the fraction of the last seconds in which it used the card: between its gates, or
        while busy if it has high priority.
    `busy`: the fraction of the time in which it would use the card if it were alone on it.
    `waited`, `intruded`: the total seconds that it waited at its gates, and that it worked while
        the high-priority job was busy (0 for that job).
    `memory`: the bytes that it has reserved. `planned`: the bytes planned for it; None means the
        same fraction of the memory as of the time.
    `micro_step`: the longest time that a micro-step should take, in seconds; None means no limit.
    `longest`: the longest micro-step that its processes measured, in seconds. `coarse`: whether
        `longest` is too long, because the step has no finer places for the gate.
    `beacon_age`: seconds since a process of the high-priority job last showed life; None also for
        other jobs.
    `infeasible`: whether it cannot have its minimum.
    `times_shut`, `times_evicted`: how often losses of the high-priority job shut its gate, and how
        often they evicted it.
    `strikes`: the number of strikes that still count. `evict`: whether it must leave the card.
    `unhooked`: why its activity is unknown, a reason of `kfext.model.shared_gpu`; else empty.
    """

    namespace: str
    pod: str
    high: bool
    share: float
    memory: int | None = None
    planned: int | None = None
    used: float | None = None
    busy: float | None = None
    waited: float = 0.0
    intruded: float = 0.0
    micro_step: float | None = None
    longest: float | None = None
    coarse: bool = False
    beacon_age: float | None = None
    infeasible: bool = False
    times_shut: int = 0
    times_evicted: int = 0
    strikes: int = 0
    evict: bool = False
    unhooked: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class SlotState:
    """Whether a slot accepts sharers.

    `memory`: the memory of the slot's card in MiB; if the slot has no card, the memory of the
        smallest healthy card that may be reserved for it.
    `trouble`: why that card accepts no sharers; else empty. `moved`: see `Slots.moved`.
    """

    memory: int = 0
    trouble: str = ""
    moved: bool = False


@dataclass(frozen=True, slots=True)
class SlotReport:
    """A slot and the pods on its card. `card`: its UUID, or None before a card is reserved.

    `loss`: the fraction of its speed that the high-priority job loses; None means unknown.
    `reservation`: the uid of the pod that reserves the card; empty while unknown.
    """

    slot: int
    card: str | None
    loss: float | None
    sharers: tuple[SharerReport, ...]
    reservation: str = ""
    state: SlotState = SlotState()
