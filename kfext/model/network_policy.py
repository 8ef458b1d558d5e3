"""The parts of a NetworkPolicy that decide which pods it protects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kfext.model.bounds import count_values
from kfext.model.label_selector import LabelSelector, parse_selector
from kfext.model.tolerant import mapping, text

_MAX_VALUES = 128
"""The most values of a selector that is compared with pods."""


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """A NetworkPolicy; `pods` selects pods of its namespace."""

    namespace: str
    name: str
    pods: LabelSelector = field(default_factory=LabelSelector)


def parse_network_policy(raw: Mapping[str, Any]) -> NetworkPolicy:
    """Return a policy from its JSON object. Never raises.

    A selector beyond the bound counts as selecting every pod.
    """
    metadata = mapping(raw.get("metadata"))
    selector = mapping(raw.get("spec")).get("podSelector")
    within = count_values(selector, most=_MAX_VALUES) <= _MAX_VALUES
    return NetworkPolicy(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        pods=parse_selector(selector if within else {}),
    )
