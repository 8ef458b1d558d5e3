"""The parts of a NetworkPolicy that kfext needs to report which pods it does not protect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kfext.model.label_selector import LabelSelector, parse_selector
from kfext.model.tolerant import mapping, text


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """A policy; `pods` selects those of its namespace to which it applies."""

    namespace: str
    name: str
    pods: LabelSelector = field(default_factory=LabelSelector)


def parse_network_policy(raw: Mapping[str, Any]) -> NetworkPolicy:
    """Return a policy from its JSON object. Never raises."""
    metadata = mapping(raw.get("metadata"))
    return NetworkPolicy(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        pods=parse_selector(mapping(raw.get("spec")).get("podSelector")),
    )
