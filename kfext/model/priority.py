"""PriorityClass: the value behind the name of a priority."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfext.model.tolerant import mapping, text

_LARGEST = 2**31


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass.

    `default`: whether pods that name no class get this class.
    `preempts`: whether kube-scheduler may evict other pods for pods of this class.
    """

    name: str
    value: int
    default: bool = False
    preempts: bool = True


def parse_priority_class(raw: Mapping[str, Any]) -> PriorityClass:
    """Return a PriorityClass from its JSON object. Never raises."""
    value = raw.get("value")
    return PriorityClass(
        name=text(mapping(raw.get("metadata")).get("name")),
        value=value if type(value) is int and abs(value) <= _LARGEST else 0,
        default=raw.get("globalDefault") is True,
        preempts=raw.get("preemptionPolicy") != "Never",
    )
