"""The parameters of a TrainingPolicy besides its settings: a row for each.

A row is a field of `Placement`, `Queueing` or `HostNetwork` with its default, parser and
documentation. `make generate` writes the schema of TrainingPolicy, its sample and the table of
docs/policies.md from the rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from kfext.errors import QuantityError
from kfext.model.networking import LARGEST_PORT
from kfext.model.quantity import CPU, amount
from kfext.model.tolerant import mapping, sequence, text

AUTO = "auto"
_LONGEST_PORT = 5
_UNITS = {"s": 1, "m": 60, "h": 3600}
_DURATION = {"type": "string", "maxLength": 16, "pattern": "^([0-9]+[smh])+$"}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """The definition of a parameter.

    `parse`: converts a JSON value; raises ValueError for an invalid value.
    `default`: its default as written in a TrainingPolicy; empty if it has none.
    `example`: a value to show if there is no default.
    `schema`: the schema of its field in a TrainingPolicy. `effect`: its description, in Markdown.
    """

    parse: Callable[[object], Any]
    default: str
    schema: Mapping[str, Any]
    effect: str
    example: Any = None


def _row(default: str, parse: Callable[[object], Any], **row: Any) -> Any:
    """Return the field of a parameter with its parsed default; () stands for no default."""
    value = parse(default) if default else ()
    return field(default=value, metadata={"row": ParameterRow(parse, default, **row)})


def _seconds(value: object) -> float:
    """Return a duration such as `90s`, `5m` or `1h30m` in seconds."""
    unread, total = text(value), 0.0
    if not unread:
        raise ValueError(value)
    while unread:
        digits = unread[: len(unread) - len(unread.lstrip("0123456789"))]
        unit = unread[len(digits) : len(digits) + 1]
        if not digits or unit not in _UNITS:
            raise ValueError(value)
        total += int(digits[:9]) * _UNITS[unit]
        unread = unread[len(digits) + 1 :]
    return total


def _duration(default: str, *, effect: str) -> Any:
    positive = {
        "rule": "duration(self) > duration('0s')",
        "message": "must be longer than 0s, e.g. 60s",
    }
    schema = {**_DURATION, "x-kubernetes-validations": [positive]}
    return _row(default, _seconds, schema=schema, effect=effect)


def _flag(value: object) -> bool:
    if value is True or value == "true":
        return True
    if value is not False:
        raise ValueError(value)
    return False


def _texts(value: object) -> tuple[str, ...]:
    return tuple(filter(None, map(text, sequence(value))))


def _list(*, most: int, longest: int, pattern: str, effect: str, example: str) -> Any:
    """Return the field of a list of strings that is empty by default."""
    items = {"type": "string", "maxLength": longest, "pattern": pattern}
    kind = {"type": "array", "x-kubernetes-list-type": "atomic"}
    schema = {**kind, "maxItems": most, "items": items}
    return _row("", _texts, schema=schema, effect=effect, example=[example])


def _cpu(value: object) -> int:
    """Return an amount of CPU in millicores."""
    try:
        millicores = amount(CPU, value)
    except QuantityError as error:
        raise ValueError(value) from error
    if millicores < 0:
        raise ValueError(value)
    return millicores


def _ports(value: object) -> tuple[int, int]:
    low, _, high = text(value).partition("-")
    if not all(end.isdecimal() and len(end) <= _LONGEST_PORT for end in (low, high)):
        raise ValueError(value)
    if not 0 < int(low) <= int(high) <= LARGEST_PORT:
        raise ValueError(value)
    return int(low), int(high)


class QueueOrder(StrEnum):
    """The order of jobs of the same priority: the oldest first, or the shortest preferred."""

    ARRIVAL = "arrival"
    SHORTEST = "shortest"


class Fairness(StrEnum):
    """The order of namespaces among jobs of the same priority: none, or least usage first."""

    NONE = "none"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class Queueing:
    """The order of the waiting jobs."""

    order: QueueOrder = _row(
        "arrival",
        lambda value: QueueOrder(text(value)),
        schema={"type": "string", "enum": [str(order) for order in QueueOrder]},
        effect="the order of jobs of the same priority. `arrival`: the oldest job first. "
        "`shortest`: first the job with the smallest *created + 16 x [expected "
        "duration](order.md)*; elastic jobs are always ordered so",
    )
    fairness: Fairness = _row(
        "none",
        lambda value: Fairness(text(value)),
        schema={"type": "string", "enum": [str(fairness) for fairness in Fairness]},
        effect="the order of namespaces, before `queue.order`. `usage`: jobs of [namespaces "
        "that used less of the cluster](teams.md) come first. It applies to the whole cluster, so "
        "the policy must have no `namespaceSelector`",
    )
    half_life: float = _duration(
        "24h",
        effect="with `queue.fairness: usage`, the time in which the weight of past usage halves",
    )


class NewNodes(StrEnum):
    """The action for a job that lacks nodes in a cluster with an autoscaler."""

    ASK = "ask"
    RELEASE = "release"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of jobs: timeouts in seconds, new nodes, and the comparison of nodes.

    `release_after`: None means `auto`: 60 s for a job that would not fit on empty nodes, unless
        kfext asks for new nodes; other jobs wait in the queue.
    `assumed_burst`: the assumed CPU use of a pod without a CPU limit, in millicores.
    """

    bind_timeout: float = _duration(
        "60s",
        effect="the longest time until a pinned pod is bound, and until the GPU of a job is "
        "reserved. After it, kfext plans the pod again, without that node",
    )
    create_timeout: float = _duration(
        "30s",
        effect="kfext suspends an incomplete gang again if for this long neither the gang nor any "
        "gang started before it got a new pod",
    )
    release_after: float | None = _row(
        AUTO,
        lambda value: None if value == AUTO else _seconds(value),
        schema={**_DURATION, "pattern": "^(auto|([0-9]+[smh])+)$"},
        effect="the time that a job with `colocation: preferred` waits before kfext releases it to "
        "plain Kubernetes; `auto`: 60 s, and only if [waiting does not "
        "help](release.md#when-kfext-releases-a-job)",
    )
    reserve_after: float = _duration(
        "5m",
        effect="the time that the first job in the queue waits until kfext "
        "[reserves](order.md#reservation) capacity for it",
    )
    new_nodes: NewNodes = _row(
        "ask",
        lambda value: NewNodes(text(value)),
        schema={"type": "string", "enum": [str(choice) for choice in NewNodes]},
        effect="the action for a job that lacks nodes in a cluster with an autoscaler. `ask`: "
        "[request the nodes of the whole gang](autoscaler.md). `release`: release the job to plain "
        "Kubernetes after 60 s. `wait`: neither",
    )
    topology_keys: tuple[str, ...] = _list(
        most=8,
        longest=317,
        pattern="^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        effect="labels of the nodes for topology domains, the widest domain first, for instance "
        "zone, then rack; at most 8",
        example="topology.kubernetes.io/zone",
    )
    born_pinned: bool = _row(
        "true",
        _flag,
        schema={"type": "boolean"},
        effect="whether gangs may be [born pinned](gangs.md)",
    )
    assumed_burst: int = _row(
        "4",
        _cpu,
        schema={
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "minimum": 0,
            "pattern": r"^([0-9]{1,6}(\.[0-9]{1,3})?|[0-9]{1,9}m)$",
        },
        effect="the CPU that a pod without a CPU limit is assumed to use at most. It affects [the "
        "number of nodes](placement.md#cpu-beyond-the-requests) of a job, but never makes it wait",
    )


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """The ports and interfaces of nodes for jobs on the host network."""

    port_range: tuple[int, int] = _row(
        "20000-29999",
        _ports,
        schema={
            "type": "string",
            "maxLength": 11,
            "pattern": "^[1-9][0-9]{3,4}-[1-9][0-9]{3,4}$",
            "x-kubernetes-validations": [
                {
                    "rule": "int(self.split('-')[0]) <= int(self.split('-')[1])",
                    "message": "LOW must not be larger than HIGH, e.g. 20000-29999",
                },
                {
                    "rule": "int(self.split('-')[0]) >= 1024 && int(self.split('-')[1]) <= 65535",
                    "message": "must lie within 1024-65535",
                },
                {
                    "rule": "int(self.split('-')[1]) < 30000 || int(self.split('-')[0]) > 60999",
                    "message": "must not overlap 30000-32767 (Services of type NodePort) or "
                    "32768-60999 (ephemeral ports of Linux)",
                },
            ],
        },
        effect="the ports for jobs with `network: host`; within 1024-65535, outside 30000-32767 "
        "(Services of type NodePort) and 32768-60999 (ephemeral ports of Linux)",
    )
    interfaces: tuple[str, ...] = _list(
        most=16,
        longest=15,
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$",
        effect="the network interfaces of the nodes for training traffic, the best first; unset, "
        "the framework chooses",
        example="eth0",
    )


SECTIONS: Mapping[str, type[Any]] = {
    "queue": Queueing,
    "placement": Placement,
    "network": HostNetwork,
}
"""The sections of the spec of a TrainingPolicy with parameters."""


def rows(section: type[Any]) -> dict[str, ParameterRow]:
    """Return the rows of a section by the names of the parameters in a TrainingPolicy."""
    return {_camel(parameter.name): parameter.metadata["row"] for parameter in fields(section)}


def parse_section(section: type[T], raw: object) -> T:
    """Return a section; a parameter with an invalid value has its default. Never raises."""
    written, values = mapping(raw), {}
    for parameter in fields(section):  # type: ignore[arg-type]
        value, row = written.get(_camel(parameter.name)), parameter.metadata["row"]
        if value is not None:
            try:
                values[parameter.name] = row.parse(value)
            except ValueError:
                continue
    return section(**values)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
