"""GPU sharing in the model: the slots of a node, what a replica is promised, and what it requests.

Each card of a node that may be shared is a slot, with a resource of a hundred units. The pod that
reserves a card for kfext is named after the node and the slot, so that two controllers make the
same pod.

The solver counts resources, and a share is a resource too: a node has as many of it as it has cards
that can take the share. This number depends on the share, so the terms of the share are in the name
of the resource.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from kfext.errors import QuantityError
from kfext.model.podspec import containers_of, limits_of, requests_of
from kfext.model.quantity import Resources, parse_quantity
from kfext.model.tolerant import mapping, sequence
from kfext.names import DOMAIN, NATIVE_GPU

Place = tuple[str, int]
"""Where a slot is: the name of its node, and its number."""
UNITS = 100
"""A sharer gets a hundredth of the card's time for each."""
SLOT = f"{DOMAIN}/gpu-"
"""The prefix of the resources of slots."""
MOST_SLOTS = 64
"""No node has more cards."""
CARDS = "NVIDIA_VISIBLE_DEVICES"
"""Which GPUs a container sees: a value in a pod would replace the GPU that the pod is given."""
_ALLOWED = f"allowed: {NATIVE_GPU}: 1 in the limits of one container"
_SHOWN = 40
"""Characters of a number from a pod spec."""
_MIB = 2**20
_PERMILLE = 1000
_LONGEST_TERMS = 512
_MOST_TERMS = 8192
"""How many terms are cached, so that equal terms are one object."""
COUNTS = "GPU shares of "
"""The prefix of the resources that count cards."""
_OR_WHOLE = " or whole GPUs"
"""Ends the name of a resource that counts cards for whole GPUs and for shares."""
_NAME = re.compile(
    rf"{COUNTS}"
    r"(?P<units>[0-9]{1,3}) %(?: \((?=[^)])"
    r"(?P<high>high priority)?"
    r"(?:(?:, )?(?P<memory>[0-9]{1,9}) Mi)?"
    r"(?:(?:, )?(?P<idle>[0-9]{1,4}) ‰ idle)?"
    r"(?:(?:, )?slot (?P<slot>[0-9]{1,2}))?\))?",
    re.ASCII,
)


# --- slots --------------------------------------------------------------------------------------


def resource_of(slot: int) -> str:
    """Return the extended resource of a slot, of which a sharer requests its units."""
    return f"{SLOT}{slot}"


def slot_of(resource: str) -> int | None:
    """Return the slot of an extended resource, None if it is another resource."""
    number = resource.removeprefix(SLOT)
    return None if number == resource else slot_in(number)


def slot_in(written: str) -> int | None:
    """Return the slot that a text names by its number, None if it names none."""
    if not written.isdecimal() or len(written) > 2 or str(int(written)) != written:
        return None
    return int(written) if int(written) < MOST_SLOTS else None


def has_part(requests: Iterable[str]) -> bool:
    """Return whether time of a slot is among the resources that a pod requests."""
    return any(slot_of(name) is not None for name in requests)


def parts_in(requests: Resources) -> dict[int, int]:
    """Return the units that a pod requests, by slot."""
    return {slot: n for name, n in requests.items() if (slot := slot_of(name)) is not None}


def without_parts(requests: Resources) -> dict[str, int]:
    """Return what a pod requests beside time of slots."""
    return {name: n for name, n in requests.items() if slot_of(name) is None}


def reservation_of(node: str, slot: int) -> str:
    """Return the name of the pod that holds the card of a slot."""
    digest = hashlib.sha256(node.encode()).hexdigest()[:10]
    return f"gpu-{slot}-{digest}"


def units_of(slot: int) -> list[str]:
    """Return the ids of the units of a slot."""
    return [f"{slot}-{unit:02d}" for unit in range(UNITS)]


def folder_of(units: Iterable[str]) -> str:
    """Return the name of what belongs to the container that has these units: no other has any."""
    return min(units)


# --- share --------------------------------------------------------------------------------------


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


def encode_terms(share: GpuShare) -> str:
    """Return the annotation GPU_TERMS of a pod."""
    return json.dumps(encode_share(share), separators=(",", ":"))


@lru_cache(maxsize=_MOST_TERMS)
def decode_terms(written: str) -> GpuShare | None:
    """Return the terms in the annotation GPU_TERMS, None if it has none; never raises."""
    if len(written) > _LONGEST_TERMS:
        return None
    try:
        return decode_share(json.loads(written))
    except (ValueError, RecursionError):
        return None


def encode_parts(share: GpuShare, slots: Mapping[int, int]) -> str:
    """Return the annotation GPU_SLOTS of a template; `slots` are by index of the replica."""
    parts = (f"{share.units}@{slots[at]}" if at in slots else "" for at in range(max(slots) + 1))
    return ",".join(parts)


def part_of(written: str, index: int) -> tuple[int, int] | None:
    """Return the units and the slot of a replica by the annotation GPU_SLOTS, None without one."""
    parts = written.split(",", index + 1)
    units, at, slot = parts[index].partition("@") if index < len(parts) else ("", "", "")
    if not (at and units.isdecimal() and slot.isdecimal() and len(units) <= 3 and len(slot) <= 2):
        return None
    part = int(units), int(slot)
    return part if 0 < part[0] <= UNITS and part[1] < MOST_SLOTS else None


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
        return f"{COUNTS}{self.units} %" + (f" ({stated})" if stated else "")

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


# --- request ------------------------------------------------------------------------------------


def asks_for_gpu(holder: Mapping[str, Any]) -> bool:
    """Return whether a container, or a pod at its own level, asks for a GPU."""
    return any(of(holder).get(NATIVE_GPU, 0) > 0 for of in (requests_of, limits_of))


def why_no_part(spec: Mapping[str, Any]) -> str:
    """Return what of a pod spec that asks for GPUs keeps it from a part of one; empty if nothing.

    It begins with a verb, of which the template or the pod is the subject.
    """
    return next(_obstacles(spec), "")


def _obstacles(spec: Mapping[str, Any]) -> Iterator[str]:
    if any(map(asks_for_gpu, map(mapping, sequence(spec.get("initContainers"))))):
        yield "has an init container that asks for a GPU"
    asking = [one for one in map(mapping, sequence(spec.get("containers"))) if asks_for_gpu(one)]
    if asks_for_gpu(spec):
        yield f"asks for {NATIVE_GPU} at the level of the pod; {_ALLOWED}"
    if len(asking) > 1:
        yield f"asks for {NATIVE_GPU} in {len(asking)} containers; {_ALLOWED}"
    elif asking and not _is_one(stated := _stated(asking[0])):
        shown = [f"{number[:_SHOWN] or 'none'} in {kind}" for kind, number in stated.items()]
        yield f"asks for {NATIVE_GPU}: {' and '.join(shown)}; {_ALLOWED}"
    if spec.get("resourceClaims"):
        yield "has resourceClaims: GPUs that are given out by DRA cannot be shared yet"
    if any(map(_names_cards, asking)):
        yield f"sets {CARDS}, which is set by what the pod is given"
    for container in containers_of(spec):
        for name in requests_of(container):
            if slot_of(name) is not None:
                yield f"asks for {name} itself, which kfext writes"


def _stated(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the number of GPUs as its limits and requests have it, empty where none is stated."""
    resources = mapping(container.get("resources"))
    found = {kind: mapping(resources.get(kind)).get(NATIVE_GPU) for kind in ("limits", "requests")}
    return {kind: "" if number is None else str(number) for kind, number in found.items()}


def _is_one(stated: Mapping[str, str]) -> bool:
    """Return whether exactly one GPU is stated: a limit without a request is both."""
    limit, request = stated["limits"], stated["requests"]
    try:
        return parse_quantity(limit) == 1 == parse_quantity(request or limit)
    except QuantityError:
        return False


def _names_cards(container: Mapping[str, Any]) -> bool:
    return any(mapping(one).get("name") == CARDS for one in sequence(container.get("env")))
