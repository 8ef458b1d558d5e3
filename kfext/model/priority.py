"""PriorityClass: what a name of a priority is worth."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfext.model.tolerant import mapping, text

_LARGEST = 2**31


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A priority by name; the one that is `default` holds for pods that name none.

    `preempts` says whether kube-scheduler evicts others for pods of the class.
    """

    name: str
    value: int
    default: bool = False
    preempts: bool = True


def parse_priority_class(raw: Mapping[str, Any]) -> PriorityClass:
    """Return a PriorityClass from its JSON object; total, whatever the input."""
    value = raw.get("value")
    return PriorityClass(
        name=text(mapping(raw.get("metadata")).get("name")),
        value=value if type(value) is int and abs(value) <= _LARGEST else 0,
        default=raw.get("globalDefault") is True,
        preempts=raw.get("preemptionPolicy") != "Never",
    )
