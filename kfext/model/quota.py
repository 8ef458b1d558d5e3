"""The parts of a ResourceQuota that limit the pods and services of a job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kfext.errors import QuantityError
from kfext.model.bounds import MAX_VALUES, count_values
from kfext.model.charge import LIMITS, REQUESTS, PodCharge
from kfext.model.quantity import Resources, amount
from kfext.model.tolerant import mapping, sequence, text


@dataclass(frozen=True, slots=True)
class ScopeRule:
    """One requirement of a quota's scope selector: `scope operator values`."""

    scope: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def covers(self, charge: PodCharge, *, default_class: str) -> bool:
        """Return whether a pod is in the scope; `default_class`: its class if it names none."""
        scopes = {
            "BestEffort": charge.best_effort,
            "NotBestEffort": not charge.best_effort,
            "Terminating": charge.terminating,
            "NotTerminating": not charge.terminating,
            "CrossNamespacePodAffinity": charge.cross_namespace_affinity,
            "PriorityClass": self._covers_class(charge.priority_class or default_class),
        }
        return scopes.get(self.scope, False)  # no other scope is about pods

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
class LimitRange:
    """The LimitRange of a namespace; its bounds may change with its resource version."""

    namespace: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota.

    `hard`: the limits by quota resource (`requests.cpu`), in the units of model.quantity.
    `used`: the usage, in the same form.
    `rules`: the quota covers only the pods that match all of these rules; without rules, every
        object of its namespace.
    """

    namespace: str
    name: str
    hard: Resources = field(default_factory=dict)
    used: Resources = field(default_factory=dict)
    rules: tuple[ScopeRule, ...] = ()

    def covers(self, charge: PodCharge, *, default_class: str = "") -> bool:
        """Return whether a pod charges to this quota."""
        return all(rule.covers(charge, default_class=default_class) for rule in self.rules)

    def tightened(self, earlier: "Quota | None") -> "Quota":
        """Return the quota with the lower limits and the higher usage of both versions."""
        if earlier is None:
            return self
        keys = self.used.keys() | earlier.used.keys()
        hard = {key: min(most, earlier.hard.get(key, most)) for key, most in self.hard.items()}
        return replace(
            self,
            hard=hard,
            used={key: max(self.used.get(key, 0), earlier.used.get(key, 0)) for key in keys},
        )


def parse_quota(raw: Mapping[str, Any]) -> Quota:
    """Return a quota from its JSON object. Never raises.

    A quota with scopes beyond the bound covers every object of its namespace. The API server
    enforces the amounts in the status, which follow the spec. While the status is empty, the
    amounts in the spec count, because the status will follow soon.
    """
    metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    status = mapping(raw.get("status"))
    return Quota(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        hard=dict(_amounts(status.get("hard") or spec.get("hard"))),
        used=dict(_amounts(status.get("used"))),
        rules=tuple(_rules(spec)) if _scopes(spec) <= MAX_VALUES else (),
    )


def resource_of(key: str) -> str:
    """Return the resource that a quota resource limits: `cpu` for `requests.cpu`."""
    return key.removeprefix(REQUESTS).removeprefix(LIMITS).removeprefix("count/")


def _amounts(values: object) -> Iterator[tuple[str, int]]:
    """Yield the valid entries. Unlike in a request, an amount of 0 counts: it allows none."""
    for key, value in mapping(values).items():
        try:
            number = amount(resource_of(str(key)), value)
        except QuantityError:
            continue
        yield str(key), max(number, 0)


def _scopes(spec: Mapping[str, Any]) -> int:
    scopes = (spec.get("scopes"), spec.get("scopeSelector"))
    return count_values(scopes, most=MAX_VALUES)


def _rules(spec: Mapping[str, Any]) -> Iterator[ScopeRule]:
    for scope in sequence(spec.get("scopes")):
        yield ScopeRule(text(scope))
    selector = mapping(spec.get("scopeSelector"))
    for rule in map(mapping, sequence(selector.get("matchExpressions"))):
        values = tuple(text(value) for value in sequence(rule.get("values")))
        yield ScopeRule(text(rule.get("scopeName")), text(rule.get("operator")), values)
