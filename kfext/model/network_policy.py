"""A NetworkPolicy, as far as kfext has to tell whom it no longer protects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kfext.model.policy import LabelSelector, parse_selector
from kfext.model.tolerant import mapping, text


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Which pods of its namespace a policy applies to."""

    namespace: str
    name: str
    pods: LabelSelector = field(default_factory=LabelSelector)


def parse_network_policy(raw: Mapping[str, Any]) -> NetworkPolicy:
    """Return a policy from its JSON object; total, whatever the input."""
    metadata = mapping(raw.get("metadata"))
    return NetworkPolicy(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        pods=parse_selector(mapping(raw.get("spec")).get("podSelector")),
    )
