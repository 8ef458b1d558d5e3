"""The parts of a node that count for placement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kfext.model.quantity import Resources, parse_resources
from kfext.model.timestamps import timestamp
from kfext.model.tolerant import mapping, sequence, strings, text
from kfext.names import DRAIN


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node; only NoSchedule and NoExecute exclude pods."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        """Return the taint in kubectl's form, such as team=vision:NoSchedule."""
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    `allocatable`: the most that its pods may request together.
    `unschedulable`: whether it is cordoned.
    `created`: seconds since the epoch.
    `troubles`: for each slot that may not get sharers, the reason that the agent reported.
    """

    name: str
    allocatable: Resources = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    created: float = 0.0
    troubles: tuple[str, ...] = ()

    @property
    def drain(self) -> str | None:
        """The value of its taint DRAIN, which is the mode of the drain, or None."""
        return next((taint.value for taint in self.taints if taint.key == DRAIN), None)


def parse_node(raw: Mapping[str, Any]) -> Node:
    """Return a node from its JSON object. Never raises."""
    metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    return Node(
        name=text(metadata.get("name")),
        labels=strings(metadata.get("labels")),
        allocatable=parse_resources(mapping(raw.get("status")).get("allocatable")),
        unschedulable=spec.get("unschedulable") is True,
        created=timestamp(metadata.get("creationTimestamp")),
        taints=tuple(
            Taint(
                key=text(taint.get("key")),
                value=text(taint.get("value")),
                effect=text(taint.get("effect")),
            )
            for taint in map(mapping, sequence(spec.get("taints")))
        ),
    )
