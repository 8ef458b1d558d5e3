"""TrainingPolicy: an administrator's settings for the jobs of some namespaces."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kfext.errors import QuantityError
from kfext.model.label_selector import LabelSelector, parse_selector
from kfext.model.networking import LARGEST_PORT
from kfext.model.quantity import CPU, Resources, amount, parse_resources
from kfext.model.tolerant import mapping, sequence, strings, text
from kfext.names import DOMAIN

AUTO = "auto"
_LONGEST_PORT = 5
_LARGEST = 1e9
"""The largest value of a parameter."""


@dataclass(frozen=True, slots=True)
class Placement:
    """How long the steps of a placement may take, in seconds, and how nodes are compared.

    `bind_timeout`: the time from pin to bound; a pod that is late is planned again without its
        node.
    `create_timeout`: how long the operator may create no pod of an incomplete gang.
    `release_after`: how long a job waits before it is released. None is `auto`: 60 s for a job that
        fits no empty node set, or that an autoscaler or preemption could make room for; other jobs
        wait in the queue.
    `reserve_after`: how long the first job of the queue waits before capacity is kept for it.
    `topology_keys`: node labels that show how near two nodes are, the widest first.
    `assumed_requests`: what a container without requests counts as when nodes are compared.
    `assumed_burst`: the millicores that a pod without a CPU limit is assumed to use if it can.
    `born_pinned`: whether pods may be pinned as they are created, where that is safe.
    """

    bind_timeout: float = 60.0
    create_timeout: float = 30.0
    release_after: float | None = None
    reserve_after: float = 300.0
    topology_keys: tuple[str, ...] = ()
    assumed_requests: Resources = field(default_factory=dict)
    assumed_burst: int = 4000
    born_pinned: bool = True


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """What jobs on the host network may use of a node.

    `ports`: the first and the last port of the range.
    `interfaces`: the interfaces for training traffic, the best first; empty leaves the choice to
        the training framework.
    """

    ports: tuple[int, int] = (20000, 29999)
    interfaces: tuple[str, ...] = ()


class Mode(StrEnum):
    """What a policy of the companion may do: nothing, show what it would do, or do it.

    The order is from the lowest to the highest.
    """

    OFF = "off"
    OBSERVE = "observe"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """How a policy of the companion runs; absent `parameters` have their defaults."""

    mode: Mode = Mode.ACT
    parameters: Mapping[str, float] = field(default_factory=dict)


class QueueOrder(StrEnum):
    """Which of two jobs of the same priority goes first: the older, or sooner the shorter."""

    ARRIVAL = "arrival"
    SHORTEST = "shortest"


@dataclass(frozen=True, slots=True)
class TrainingPolicy:
    """One TrainingPolicy; `settings` is by full annotation key, `companion` by name of policy.

    Of the policies that select a namespace, the policy with the highest weight applies; with equal
    weights, the first by name.
    """

    name: str = ""
    weight: int = 0
    selector: LabelSelector = field(default_factory=LabelSelector)
    settings: Mapping[str, str] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    network: HostNetwork = field(default_factory=HostNetwork)
    queue_order: QueueOrder = QueueOrder.ARRIVAL
    companion: Mapping[str, PolicyChoice] = field(default_factory=dict)


def parse_policy(raw: Mapping[str, Any]) -> TrainingPolicy:
    """Return a policy from its JSON object. Never raises."""
    spec = mapping(raw.get("spec"))
    placement = mapping(spec.get("placement"))
    weight = spec.get("weight")
    return TrainingPolicy(
        name=text(mapping(raw.get("metadata")).get("name")),
        weight=weight if type(weight) is int else 0,
        selector=parse_selector(spec.get("namespaceSelector")),
        settings={f"{DOMAIN}/{key}": value for key, value in strings(spec.get("settings")).items()},
        placement=Placement(
            bind_timeout=_seconds(placement.get("bindTimeout"), default=60.0),
            create_timeout=_seconds(placement.get("createTimeout"), default=30.0),
            release_after=_release_after(placement.get("releaseAfter")),
            reserve_after=_seconds(placement.get("reserveAfter"), default=300.0),
            topology_keys=tuple(filter(None, map(text, sequence(placement.get("topologyKeys"))))),
            assumed_requests=parse_resources(placement.get("assumedRequests")),
            assumed_burst=_cpu(placement.get("assumedBurst"), default=4000),
            born_pinned=placement.get("bornPinned") is not False,
        ),
        network=_host_network(mapping(spec.get("network"))),
        queue_order=_queue_order(mapping(spec.get("queue")).get("order")),
        companion={
            name: _choice(mapping(choice))
            for name, choice in mapping(spec.get("companion")).items()
        },
    )


def policy_for(
    policies: Iterable[TrainingPolicy], namespace_labels: Mapping[str, str]
) -> TrainingPolicy:
    """Return the policy that applies to a namespace, by default the built-in policy."""
    selected = [policy for policy in policies if policy.selector.matches(namespace_labels)]
    return min(selected, key=lambda policy: (-policy.weight, policy.name), default=TrainingPolicy())


def _host_network(raw: Mapping[str, Any]) -> HostNetwork:
    low, _, high = text(raw.get("portRange")).partition("-")
    ports = HostNetwork().ports
    numbers = [
        number for number in (low, high) if number.isdecimal() and len(number) <= _LONGEST_PORT
    ]
    if len(numbers) == 2 and 0 < int(low) <= int(high) <= LARGEST_PORT:
        ports = (int(low), int(high))
    return HostNetwork(
        ports=ports,
        interfaces=tuple(filter(None, map(text, sequence(raw.get("interfaces"))))),
    )


def _queue_order(value: object) -> QueueOrder:
    return next((order for order in QueueOrder if order == value), QueueOrder.ARRIVAL)


def _choice(raw: Mapping[str, Any]) -> PolicyChoice:
    """Return a policy's choice; an unknown mode, as of a later version, is `off`."""
    mode = raw.get("mode", Mode.ACT)
    return PolicyChoice(
        mode=Mode(mode) if mode in tuple(Mode) else Mode.OFF,
        parameters={
            name: float(value)
            for name, value in mapping(raw.get("parameters")).items()
            if type(value) in {int, float} and abs(value) <= _LARGEST
        },
    )


def _release_after(value: object) -> float | None:
    return None if value in (None, AUTO) else _seconds(value, default=60.0)


def _cpu(value: object, *, default: int) -> int:
    """Return an amount of CPU in millicores; `default` if it is invalid."""
    try:
        found = amount(CPU, value)
    except QuantityError:
        return default
    return found if found >= 0 else default


def _seconds(value: object, *, default: float) -> float:
    """Return a duration such as `90s`, `5m` or `1h30m` in seconds; `default` if it is invalid."""
    rest, total = text(value), 0.0
    if not rest:
        return default
    while rest:
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        unit = rest[len(digits) : len(digits) + 1]
        if not digits or unit not in {"s", "m", "h"}:
            return default
        total += int(digits[:9]) * {"s": 1, "m": 60, "h": 3600}[unit]
        rest = rest[len(digits) + 1 :]
    return total
