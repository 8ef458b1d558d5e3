"""A ResourceQuota, as far as the pods and services of a job charge to it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kfext.errors import QuantityError
from kfext.model.charge import LIMITS, REQUESTS, PodCharge
from kfext.model.quantity import Resources, amount
from kfext.model.tolerant import mapping, sequence, text


@dataclass(frozen=True, slots=True)
class ScopeRule:
    """One line of a quota's scope selector: `scope operator values`."""

    scope: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def covers(self, charge: PodCharge, *, default_class: str) -> bool:
        """Return whether a pod is in the scope; without a class it gets the `default_class`."""
        inside = {
            "BestEffort": charge.best_effort,
            "NotBestEffort": not charge.best_effort,
            "Terminating": charge.terminating,
            "NotTerminating": not charge.terminating,
            "CrossNamespacePodAffinity": charge.cross_namespace_affinity,
            "PriorityClass": self._covers_class(charge.priority_class or default_class),
        }
        return inside.get(self.scope, False)  # any other scope is one of other objects

    def _covers_class(self, name: str) -> bool:
        match self.operator:
            case "In":
                return name != "" and name in self.values
            case "NotIn":
                return name == "" or name not in self.values
            case "Exists":
                return name != ""
            case "DoesNotExist":
                return name == ""
            case _:
                return False


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota: what is allowed and what is used, by quota resource (`requests.cpu`).

    Amounts are in the units of model.quantity. A quota without rules covers every object of its
    namespace; with rules, the pods that all of them cover, and nothing else.
    """

    namespace: str
    name: str
    hard: Resources = field(default_factory=dict)
    used: Resources = field(default_factory=dict)
    rules: tuple[ScopeRule, ...] = ()

    def covers(self, charge: PodCharge, *, default_class: str = "") -> bool:
        """Return whether a pod charges to this quota."""
        return all(rule.covers(charge, default_class=default_class) for rule in self.rules)


def parse_quota(raw: Mapping[str, Any]) -> Quota:
    """Return a quota from its JSON object; total, whatever the input.

    The API server enforces the amounts in the status, which follow those in the spec; before it
    has written any, those of the spec are on their way.
    """
    metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    status = mapping(raw.get("status"))
    return Quota(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        hard=dict(_amounts(status.get("hard") or spec.get("hard"))),
        used=dict(_amounts(status.get("used"))),
        rules=tuple(_rules(spec)),
    )


def resource_of(key: str) -> str:
    """Return which resource a quota resource is about: `cpu` for `requests.cpu`."""
    return key.removeprefix(REQUESTS).removeprefix(LIMITS).removeprefix("count/")


def _amounts(values: object) -> Iterator[tuple[str, int]]:
    """Yield the parsable entries; unlike in a request, zero says a lot: nothing is allowed."""
    for key, value in mapping(values).items():
        try:
            number = amount(resource_of(str(key)), value)
        except QuantityError:
            continue
        yield str(key), max(number, 0)


def _rules(spec: Mapping[str, Any]) -> Iterator[ScopeRule]:
    for scope in sequence(spec.get("scopes")):
        yield ScopeRule(text(scope))
    selector = mapping(spec.get("scopeSelector"))
    for rule in map(mapping, sequence(selector.get("matchExpressions"))):
        values = tuple(text(value) for value in sequence(rule.get("values")))
        yield ScopeRule(text(rule.get("scopeName")), text(rule.get("operator")), values)
