"""GPU sharing in the model: the slots of a node, and the terms and requests of a replica.

Each shareable card of a node is a slot, with a resource of a hundred units. The name of a
reservation pod follows from the node and the slot, so two controllers create the same pod.

The solver counts resources, and a share is a resource too: its amount on a node is the number of
cards that can accept the share. That number depends on the terms of the share, so the name of the
resource contains the terms.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kfext.errors import QuantityError
from kfext.model.podspec import containers_of, limits_of, requests_of
from kfext.model.quantity import Resources, parse_quantity
from kfext.model.tolerant import json_object, mapping, sequence
from kfext.names import DOMAIN, NATIVE_GPU

Place = tuple[str, int]
"""A slot: the name of its node, and its number."""
UNITS = 100
"""The units of a card; each unit is a hundredth of the card's time."""
SLOT = f"{DOMAIN}/gpu-"
"""The prefix of the resources of slots."""
MAX_SLOTS = 64
"""The most cards of a node."""
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""The variable with the GPUs that a container sees; a value in a pod would override its GPU."""
_ALLOWED = f"allowed: {NATIVE_GPU}: 1 in the limits of one container"
_SHOWN = 40
"""The most characters to show of a number from a pod spec."""
_MIB, _MIB_OF_GIB = 2**20, 2**10
_PERMILLE = 1000
_LONGEST_TERMS = 512
_MAX_TERMS = 8192
"""The number of cached terms; equal cached terms are the same object."""
COUNTS = "GPU shares of "
"""The prefix of the resources that count cards."""
_OR_WHOLE = " or whole GPUs"
"""The suffix of a resource that counts cards for whole GPUs and for shares."""
_NAME = re.compile(
    rf"{COUNTS}"
    r"(?P<units>[01](?:\.[0-9]{1,2})?)(?: \((?=[^)])"
    r"(?P<high>high priority)?"
    r"(?:(?:, )?(?P<memory>[0-9]{1,9}(?:\.[0-9]{1,10})?)Gi)?"
    r"(?:(?:, )?(?P<idle>[01](?:\.[0-9]{1,3})?) beside high priority)?"
    r"(?:(?:, )?slot (?P<slot>[0-9]{1,2}))?\))?",
    re.ASCII,
)


# --- slots --------------------------------------------------------------------------------------


def resource_of(slot: int) -> str:
    """Return the extended resource of a slot; a sharer requests units of it."""
    return f"{SLOT}{slot}"


def slot_of(resource: str) -> int | None:
    """Return the slot of an extended resource, or None for a resource of another kind."""
    number = resource.removeprefix(SLOT)
    return None if number == resource else slot_in(number)


def slot_in(written: str) -> int | None:
    """Return the slot with the number in a text, or None without a valid number."""
    if not written.isdecimal() or len(written) > 2 or str(int(written)) != written:
        return None
    return int(written) if int(written) < MAX_SLOTS else None


def has_slot_units(requests: Iterable[str]) -> bool:
    """Return whether resources, such as the requests of a pod, contain units of a slot."""
    return any(slot_of(name) is not None for name in requests)


def slot_units(requests: Resources) -> dict[int, int]:
    """Return the units that a pod requests, by slot."""
    return {slot: n for name, n in requests.items() if (slot := slot_of(name)) is not None}


def without_slot_units(requests: Resources) -> dict[str, int]:
    """Return the requests of a pod without the units of slots."""
    return {name: n for name, n in requests.items() if slot_of(name) is None}


def reservation_of(node: str, slot: int) -> str:
    """Return the name of the reservation pod of a slot."""
    digest = hashlib.sha256(node.encode()).hexdigest()[:10]
    return f"gpu-{slot}-{digest}"


def units_of(slot: int) -> list[str]:
    """Return the ids of the units of a slot."""
    return [f"{slot}-{unit:02d}" for unit in range(UNITS)]


def folder_of(units: Iterable[str]) -> str:
    """Return the folder name of the container that has these units: no other container has them."""
    return min(units)


# --- share --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GpuShare:
    """The terms on which a replica shares a GPU.

    `units`: its guaranteed fraction of the card's time, in hundredths.
    `memory`: its bytes of the card's memory; None means the same fraction as of the time.
    `high`: whether it has high priority, so that low-priority sharers yield to it.
    `loss_budget`: the fraction of its speed that it may lose to low-priority sharers.
    `min_share`: the fraction of the time that it should have beside a high-priority job.
    `busy`: the thousandths of the time in which it would use a card of its own, or None before it
        is measured. It is not one of the terms, so it is not written with them.
    """

    units: int
    memory: int | None = None
    high: bool = False
    loss_budget: float = 0.05
    min_share: float = 0.2
    busy: int | None = None

    @property
    def uses(self) -> int:
        """The thousandths of the time in which it counts as busy: all before it is measured."""
        return _PERMILLE if self.busy is None else self.busy

    @property
    def need(self) -> "CardNeed":
        """The free capacity of a card that it needs."""
        return CardNeed(
            units=self.units,
            memory=None if self.memory is None else -(-self.memory // _MIB),
            high=self.high,
            # The minimum is a fraction of its speed alone on a card, which it may not keep busy.
            idle=0 if self.high else -(-round(self.min_share * _PERMILLE) * self.uses // _PERMILLE),
        )


_TYPES: Mapping[str, tuple[type, ...]] = {
    "units": (int,),
    "memory": (int, type(None)),
    "high": (bool,),
    **dict.fromkeys(("loss_budget", "min_share"), (int, float)),
}


def encode_share(share: GpuShare) -> dict[str, Any]:
    """Return the terms as a JSON object."""
    return {name: getattr(share, name) for name in _TYPES}


def decode_share(written: object) -> GpuShare | None:
    """Return the terms that `encode_share` wrote, or None for other values; never raises."""
    terms = {**encode_share(GpuShare(units=0)), **mapping(written)}
    if any(type(terms[name]) not in types for name, types in _TYPES.items()):
        return None
    share = GpuShare(**{name: terms[name] for name in _TYPES})
    fractions = share.loss_budget, share.min_share
    sized = share.memory is None or share.memory > 0
    if not (0 < share.units <= UNITS and sized and all(0 <= x < 1 for x in fractions)):
        return None
    return share


def encode_terms(share: GpuShare) -> str:
    """Return the annotation GPU_TERMS of a pod."""
    return json.dumps(encode_share(share), separators=(",", ":"))


@lru_cache(maxsize=_MAX_TERMS)
def decode_terms(written: str) -> GpuShare | None:
    """Return the terms in the annotation GPU_TERMS, or None for invalid terms; never raises."""
    return decode_share(json_object(written)) if len(written) <= _LONGEST_TERMS else None


def encode_slots(share: GpuShare, slots: Mapping[int, int]) -> str:
    """Return the annotation GPU_SLOTS of a template; `slots`: each replica's slot, by index."""
    indices = range(max(slots) + 1)
    return ",".join(f"{share.units}@{slots[index]}" if index in slots else "" for index in indices)


def decode_slot(written: str, index: int) -> tuple[int, int] | None:
    """Return the units and the slot of a replica in the annotation GPU_SLOTS, or None."""
    entries = written.split(",", index + 1)
    units, sign, slot = entries[index].partition("@") if index < len(entries) else ("", "", "")
    if not (sign and units.isdecimal() and slot.isdecimal() and len(units) <= 3 and len(slot) <= 2):
        return None
    decoded = int(units), int(slot)
    return decoded if 0 < decoded[0] <= UNITS and decoded[1] < MAX_SLOTS else None


@dataclass(frozen=True, slots=True)
class CardNeed:
    """The free capacity of a card that a replica needs.

    `units`: its fraction of the card's time, in hundredths.
    `memory`: its memory in MiB; None means the same fraction as of the time.
    `high`: whether no other sharer may have high priority.
    `idle`: the time that a high-priority sharer must leave unused, in thousandths.
    `slot`: the only slot of a node that the replica can use, or None for any slot.
    """

    units: int
    memory: int | None = None
    high: bool = False
    idle: int = 0
    slot: int | None = None

    @property
    def name(self) -> str:
        """The name, readable by users, of the resource that counts the cards for this need."""
        terms = [
            "high priority" if self.high else "",
            "" if self.memory is None else f"{self.memory / _MIB_OF_GIB}Gi".replace(".0Gi", "Gi"),
            f"{self.idle / _PERMILLE:g} beside high priority" if self.idle else "",
            "" if self.slot is None else f"slot {self.slot}",
        ]
        stated = ", ".join(filter(None, terms))
        return f"{COUNTS}{self.units / UNITS:g}" + (f" ({stated})" if stated else "")


@dataclass(frozen=True, slots=True)
class CardsFor:
    """A resource that counts the cards of a node that meet a need.

    `whole`: whether cards that are not shared count too, for pods that use whole GPUs.
    """

    need: CardNeed
    whole: bool = False

    @property
    def name(self) -> str:
        """The name of the resource."""
        return self.need.name + (_OR_WHOLE if self.whole else "")


@lru_cache(maxsize=4096)
def cards_counted_by(resource: str) -> CardsFor | None:
    """Return the cards that a resource counts, or None for a resource of another kind."""
    match = _NAME.fullmatch(resource.removesuffix(_OR_WHOLE))
    return CardsFor(_need(match), resource.endswith(_OR_WHOLE)) if match else None


def without_card_counts(requests: Resources) -> dict[str, int]:
    """Return requests without the resources that count cards."""
    return {name: number for name, number in requests.items() if cards_counted_by(name) is None}


def _need(match: re.Match[str]) -> CardNeed:
    units, high, memory, idle, slot = match.groups()
    return CardNeed(
        units=round(float(units) * UNITS),
        memory=None if memory is None else round(float(memory) * _MIB_OF_GIB),
        high=high is not None,
        idle=round(float(idle or 0) * _PERMILLE),
        slot=None if slot is None else int(slot),
    )


# --- request ------------------------------------------------------------------------------------


def asks_for_gpu(holder: Mapping[str, Any]) -> bool:
    """Return whether a container, or a pod at pod level, asks for a GPU."""
    return any(amounts(holder).get(NATIVE_GPU, 0) > 0 for amounts in (requests_of, limits_of))


def why_not_shareable(spec: Mapping[str, Any]) -> str:
    """Return why a pod spec that asks for GPUs cannot share a GPU; empty if it can.

    The reason begins with a verb; its subject is the template or the pod.
    """
    return next(_obstacles(spec), "")


def _obstacles(spec: Mapping[str, Any]) -> Iterator[str]:
    if any(map(asks_for_gpu, map(mapping, sequence(spec.get("initContainers"))))):
        yield "has an init container that asks for a GPU"
    containers = map(mapping, sequence(spec.get("containers")))
    asking = [container for container in containers if asks_for_gpu(container)]
    if asks_for_gpu(spec):
        yield f"asks for {NATIVE_GPU} at the level of the pod; {_ALLOWED}"
    if len(asking) > 1:
        yield f"asks for {NATIVE_GPU} in {len(asking)} containers; {_ALLOWED}"
    elif asking and not _is_one(stated := _stated(asking[0])):
        shown = [f"{number[:_SHOWN] or 'none'} in {kind}" for kind, number in stated.items()]
        yield f"asks for {NATIVE_GPU}: {' and '.join(shown)}; {_ALLOWED}"
    if spec.get("resourceClaims"):
        yield "has resourceClaims: GPUs from DRA cannot be shared yet"
    if any(map(_names_cards, asking)):
        yield f"sets {VISIBLE_DEVICES}, which kfext sets to the GPU of the pod"
    for container in containers_of(spec):
        for name in requests_of(container):
            if slot_of(name) is not None:
                yield f"asks for {name} itself, a resource that only kfext writes"


def _stated(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the number of GPUs in the limits and the requests, each empty if not stated."""
    resources = mapping(container.get("resources"))
    gpus = {kind: mapping(resources.get(kind)).get(NATIVE_GPU) for kind in ("limits", "requests")}
    return {kind: "" if number is None else str(number) for kind, number in gpus.items()}


def _is_one(stated: Mapping[str, str]) -> bool:
    """Return whether exactly one GPU is stated; a limit without a request counts as both."""
    limit, request = stated["limits"], stated["requests"]
    try:
        return parse_quantity(limit) == 1 == parse_quantity(request or limit)
    except QuantityError:
        return False


def _names_cards(container: Mapping[str, Any]) -> bool:
    variables = map(mapping, sequence(container.get("env")))
    return any(variable.get("name") == VISIBLE_DEVICES for variable in variables)
