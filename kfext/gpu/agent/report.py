"""What is known of a slot: one value for metrics and the SharedGPU."""

from dataclasses import dataclass

Pod = tuple[str, str]
"""The namespace and the name of a pod."""


@dataclass(frozen=True, slots=True)
class SharerReport:
    """A pod on the card. Parts are of the card's time in the last seconds; seconds are totals.

    `uid`: of the pod; empty while unknown.
    `harvest`: the part in which it worked between its gates, or was busy if it has high priority;
        None: no hook is heard.
    `busy`: the part in which it would work with the card to itself; None: unknown.
    `waited`, `intruded`: the seconds that it waited at its gates, and that it worked beside the
        busy high-priority job (0 for that job).
    `memory`: the bytes that it has; None: unknown. `promised`: the bytes that it was promised;
        None: the same part of the memory as of the time.
    `micro_step`: the longest that a micro-step should take. `longest`: the longest that one takes,
        as its processes measured; None: not measured. `coarse`: `longest` is too long, because the
        step has no place for the gate.
    `beacon_age`: seconds since a process of the high-priority job last showed life; None for other
        jobs, and if no process is heard.
    `infeasible`: it cannot have its minimum.
    `times_shut`, `times_evicted`: how often losses shut its gate, and told it to leave.
    `strikes`: the shuttings that still count. `evict`: it must leave the card.
    `unhooked`: why its activity is unknown, a word of `kfext.model.shared_gpu`; empty if known.
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
    """Whether a slot takes sharers.

    `memory`: in MiB; without a card, of the smallest card that the slot may get.
    `trouble`: why it takes no sharers, empty if it does; without a card, why no card that it may
    get would take sharers. `moved`: see `Slots.moved`.
    """

    memory: int = 0
    trouble: str = ""
    moved: bool = False


@dataclass(frozen=True, slots=True)
class SlotReport:
    """A slot and the pods on its card. `card`: its UUID; None: not reserved for kfext.

    `loss`: the part of its speed that the high-priority job loses; None: unknown.
    `reservation`: the uid of the pod that reserves the card; empty while unknown.
    """

    slot: int
    card: str | None
    loss: float | None
    sharers: tuple[SharerReport, ...]
    reservation: str = ""
    state: SlotState = SlotState()
