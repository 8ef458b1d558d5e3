"""The parts of a namespace that decide on settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kfext.model.bounds import bounded, kfext_annotations
from kfext.model.tolerant import mapping, strings, text
from kfext.names import MANAGED


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace: its labels opt it in and select policies, its annotations are settings.

    `annotations`: kfext's annotations, without settings if they exceed the bound of model.bounds.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def managed(self) -> bool:
        """Whether an administrator has opted the namespace in."""
        return self.labels.get(MANAGED) == "true"


def parse_namespace(raw: Mapping[str, Any]) -> Namespace:
    """Return a namespace from its JSON object. Never raises."""
    metadata = mapping(raw.get("metadata"))
    return Namespace(
        name=text(metadata.get("name")),
        labels=strings(metadata.get("labels")),
        annotations=bounded(kfext_annotations(metadata.get("annotations"))),
    )
