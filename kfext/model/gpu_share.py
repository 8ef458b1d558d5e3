"""What a replica is promised of a GPU that it shares, and the name under which that is counted.

The solver counts resources, and a share is one too: as many as a node has cards that can take it.
How many those are depends on the share, so its terms are in the name of the resource.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from kfext.model.gpu_slots import UNITS
from kfext.model.quantity import Resources
from kfext.model.tolerant import mapping

_OR_WHOLE = " or whole GPUs"
"""Ends the name of a resource that counts cards for whole GPUs and for shares."""
_MIB = 2**20
_PERMILLE = 1000
_NAME = re.compile(
    r"GPU shares of (?P<units>[0-9]{1,3}) %(?: \((?=[^)])"
    r"(?P<high>high priority)?"
    r"(?:(?:, )?(?P<memory>[0-9]{1,9}) Mi)?"
    r"(?:(?:, )?(?P<idle>[0-9]{1,4}) ‰ idle)?"
    r"(?:(?:, )?slot (?P<slot>[0-9]{1,2}))?\))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class GpuShare:
    """The terms on which a replica shares a GPU.

    `units`: how much of the card's time it gets at least, in hundredths.
    `memory`: the bytes of the card that it may use, None for the same part of them as of its time.
    `high`: whether those of low priority give way to it.
    `loss_budget`: the part of its speed that it may lose to them, if it has high priority.
    `min_share`: the part of the time that it should get beside a job of high priority.
    `busy`: the thousandths of the time in which it would use a card that it had to itself, None
        while that is unknown. It was measured and not promised, so it is not written with the rest.
    """

    units: int
    memory: int | None = None
    high: bool = False
    loss_budget: float = 0.05
    min_share: float = 0.2
    busy: int | None = None

    @property
    def uses(self) -> int:
        """The thousandths of the time in which it counts as busy: all while that is unknown."""
        return _PERMILLE if self.busy is None else self.busy

    @property
    def need(self) -> "CardNeed":
        """What a card must have left for it."""
        return CardNeed(
            units=self.units,
            memory=None if self.memory is None else -(-self.memory // _MIB),
            high=self.high,
            # Its minimum is a part of its speed alone, for which it does not need all of the card.
            idle=0 if self.high else -(-round(self.min_share * _PERMILLE) * self.uses // _PERMILLE),
        )


_TYPES: Mapping[str, tuple[type, ...]] = {
    "units": (int,),
    "memory": (int, type(None)),
    "high": (bool,),
    **dict.fromkeys(("loss_budget", "min_share"), (int, float)),
}


def encode_share(share: GpuShare) -> dict[str, Any]:
    """Return what is written of the terms."""
    return {name: getattr(share, name) for name in _TYPES}


def decode_share(written: object) -> GpuShare | None:
    """Return the terms in `encode_share` of some, None if there are none; never raises."""
    found = {**encode_share(GpuShare(units=0)), **mapping(written)}
    if any(type(found[name]) not in types for name, types in _TYPES.items()):
        return None
    share = GpuShare(**{name: found[name] for name in _TYPES})
    parts = share.loss_budget, share.min_share
    sized = share.memory is None or share.memory > 0
    if not (0 < share.units <= UNITS and sized and all(0 <= x < 1 for x in parts)):
        return None
    return share


@dataclass(frozen=True, slots=True)
class CardNeed:
    """What a card must have left to take a replica.

    `units`: of its time, in hundredths.
    `memory`: in MiB, None for the same part of it as of its time.
    `high`: whether no other sharer may have high priority.
    `idle`: how much of its time a sharer of high priority must leave, in thousandths.
    `slot`: the only slot of a node that will do, None if any does.
    """

    units: int
    memory: int | None = None
    high: bool = False
    idle: int = 0
    slot: int | None = None

    @property
    def name(self) -> str:
        """The name under which a node has as many of these as it has cards that will do."""
        terms = [
            "high priority" if self.high else "",
            "" if self.memory is None else f"{self.memory} Mi",
            f"{self.idle} ‰ idle" if self.idle else "",
            "" if self.slot is None else f"slot {self.slot}",
        ]
        stated = ", ".join(filter(None, terms))
        return f"GPU shares of {self.units} %" + (f" ({stated})" if stated else "")

    def at(self, slot: int) -> Self:
        """Return the same need of one slot alone."""
        return replace(self, slot=slot)


@dataclass(frozen=True, slots=True)
class CardsFor:
    """What a resource counts on a node: the cards that will do for a need.

    `whole`: with those that are not shared, of which some pods take all.
    """

    need: CardNeed
    whole: bool = False

    @property
    def name(self) -> str:
        """The name of the resource."""
        return self.need.name + (_OR_WHOLE if self.whole else "")


@lru_cache(maxsize=4096)
def counted(resource: str) -> CardsFor | None:
    """Return what a resource of that name counts, None if it is no such resource."""
    match = _NAME.fullmatch(resource.removesuffix(_OR_WHOLE))
    return CardsFor(_need(match), resource.endswith(_OR_WHOLE)) if match else None


def uncounted(requests: Resources) -> dict[str, int]:
    """Return requests without the resources that count cards."""
    return {name: number for name, number in requests.items() if counted(name) is None}


def _need(match: re.Match[str]) -> CardNeed:
    units, high, memory, idle, slot = match.groups()
    return CardNeed(
        units=int(units),
        memory=None if memory is None else int(memory),
        high=high is not None,
        idle=int(idle or 0),
        slot=None if slot is None else int(slot),
    )
