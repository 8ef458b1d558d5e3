"""Kubernetes label selectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kfext.model.tolerant import mapping, sequence, strings, text


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A Kubernetes label selector; an empty selector selects everything."""

    labels: Mapping[str, str] = field(default_factory=dict)
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    def values_of(self, key: str) -> tuple[str, ...]:
        """Return the values that the selector names for a label."""
        labelled = (self.labels[key],) if key in self.labels else ()
        return labelled + tuple(
            value for label, _, values in self.expressions if label == key for value in values
        )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` satisfy every requirement of the selector."""
        if any(labels.get(key) != value for key, value in self.labels.items()):
            return False
        return all(
            {
                "In": labels.get(key) in values,
                "NotIn": labels.get(key) not in values,
                "Exists": key in labels,
                "DoesNotExist": key not in labels,
            }.get(operator, False)
            for key, operator, values in self.expressions
        )


def parse_selector(raw: object) -> LabelSelector:
    """Return a label selector from its JSON object. Never raises."""
    selector = mapping(raw)
    return LabelSelector(
        labels=strings(selector.get("matchLabels")),
        expressions=tuple(
            (
                text(item.get("key")),
                text(item.get("operator")),
                tuple(text(value) for value in sequence(item.get("values"))),
            )
            for item in map(mapping, sequence(selector.get("matchExpressions")))
        ),
    )
