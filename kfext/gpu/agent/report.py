"""The reports on a slot, for metrics and the SharedGPU."""

from dataclasses import dataclass

Pod = tuple[str, str]
"""The namespace and the name of a pod."""


@dataclass(frozen=True, slots=True)
class SharerReport:
    """A pod on the card. Parts are of the card's time in the last seconds; seconds are totals.

    `uid`: of the pod; empty while unknown.
    `harvest`: the part in which it worked between its gates, or was busy if it has high priority;
        None without a hook.
    `busy`: the part in which it would work with the card to itself, None for unknown.
    `waited`, `intruded`: the seconds that it waited at its gates, and that it worked beside the
        busy high-priority job (0 for that job).
    `memory`: the bytes that it has, None for unknown. `promised`: the bytes guaranteed to it; None
        stands for the same part of the memory as of the time.
    `micro_step`: the longest that a micro-step should take. `longest`: the longest measured by its
        processes, None before. `coarse`: `longest` is too long, as the step has no place for the
        gate.
    `beacon_age`: seconds since a process of the high-priority job last showed life; None for other
        jobs, and if no process is heard.
    `infeasible`: it cannot have its minimum.
    `times_shut`, `times_evicted`: the times that losses shut its gate, and evicted it.
    `strikes`: the shut-outs that still count. `evict`: it must leave the card.
    `unhooked`: the reason of an unknown activity, from `kfext.model.shared_gpu`; else empty.
    """

    namespace: str
    pod: str
    high: bool
    share: float
    memory: int | None = None
    promised: int | None = None
    harvest: float | None = None
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

    `memory`: in MiB; without a card, of the smallest card that may be reserved for the slot.
    `trouble`: the reason why the slot, or without a card each such card, accepts no sharers; else
        empty. `moved`: see `Slots.moved`.
    """

    memory: int = 0
    trouble: str = ""
    moved: bool = False


@dataclass(frozen=True, slots=True)
class SlotReport:
    """A slot and the pods on its card. `card`: the UUID, None before a card is reserved for kfext.

    `loss`: the part of its speed that the high-priority job loses, None for unknown.
    `reservation`: the uid of the pod that reserves the card; empty while unknown.
    """

    slot: int
    card: str | None
    loss: float | None
    sharers: tuple[SharerReport, ...]
    reservation: str = ""
    state: SlotState = SlotState()
