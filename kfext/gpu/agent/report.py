"""What is known of a shared card: one value for whoever shows it."""

from dataclasses import dataclass

Pod = tuple[str, str]
"""The namespace and the name of a pod."""


@dataclass(frozen=True, slots=True)
class SharerReport:
    """A pod on the card. Parts are of the card's time in the last seconds, seconds are in all.

    `harvest`: the part in which it worked between its gates, or was busy if it has high priority,
    None while no hook is heard;
    `busy`: the part in which it would be with the card to itself, None while that is unknown;
    `waited`, `intruded`: the seconds in which it stood at its gates, and worked beside the busy job
    of high priority (0 for that job);
    `memory`: bytes that it has, None while that is unknown; `promised`: those that it was promised,
    None for the same part of them as of the card's time;
    `micro_step`: how long one should take at most; `longest`: how long the longest takes, as its
    processes have measured it, None while they have not; `coarse`: that is longer than it should
    be, as there is no place for the gate within it; `beacon_age`: seconds since a process of the
    job of high priority has last shown life, None for others and if none is heard;
    `infeasible`: it cannot have its minimum; `times_shut`: how often its gate was shut for losses;
    `times_evicted`: how often it was told to leave for them; `strikes`: how many of the shuttings
    still count; `evict`: it is to leave the card; `unhooked`: why nothing is known of what it does,
    one of `kfext.model.shared_gpu`, empty if it is known.
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


@dataclass(frozen=True, slots=True)
class CardReport:
    """The card of a slot. `card`: its UUID, None while it is not reserved for kfext.

    `loss`: the part of its speed that the job of high priority loses, None while that is unknown.
    """

    slot: int
    card: str | None
    loss: float | None
    sharers: tuple[SharerReport, ...]
