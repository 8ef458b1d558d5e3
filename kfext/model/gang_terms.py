"""Terms of a pod about the other pods of its job.

kfext models two: required affinity and anti-affinity by node, to pods selected by the operator's
labels. No other pod has these labels, so the plan of the job decides whether the term is met.
Source: kubernetes pkg/scheduler/framework/plugins/interpodaffinity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from kfext.model.bounds import LONGEST_NAME, MAX_REPLICA_TYPES
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import HOSTNAME, JOB_NAME, REPLICA_TYPE, REQUIRED

AFFINITY = "required podAffinity"
ANTI_AFFINITY = "required podAntiAffinity"
_FIELDS = {"labelSelector", "topologyKey"}


@dataclass(frozen=True, slots=True)
class GangTerm:
    """A required affinity or anti-affinity by node, to pods of the same job.

    `job`: the name of the job.
    `types`: the selected replica types in lower case, as on the label; all types if empty.
    `namespace`: the namespace of the pods; empty in a term read from a spec alone.
    """

    job: str
    types: tuple[str, ...] = ()
    namespace: str = ""

    def selects(self, type_: str) -> bool:
        """Return whether it selects the pods of a replica type of the job, in lower case."""
        return not self.types or type_ in self.types

    def scoped(self, namespace: str) -> Self:
        """Return the term with the namespace of its pod."""
        return replace(self, namespace=namespace)


Exclusive = tuple[str, int] | GangTerm
"""An item that only one pod of a node can have: a host port, or an anti-affinity."""


def affinity(spec: Mapping[str, Any]) -> tuple[GangTerm, ...] | None:
    """Return the required pod affinity of a pod spec; None means that a term is not modelled."""
    return _required(mapping(spec.get("affinity")).get("podAffinity"))


def anti_affinity(spec: Mapping[str, Any]) -> tuple[GangTerm, ...] | None:
    """Return the required pod anti-affinity of a pod spec, as `affinity` does."""
    return _required(mapping(spec.get("affinity")).get("podAntiAffinity"))


def _required(pod_affinity: object) -> tuple[GangTerm, ...] | None:
    parsed = {_term(mapping(term)) for term in sequence(mapping(pod_affinity).get(REQUIRED))}
    if len(parsed) > MAX_REPLICA_TYPES:
        return None
    terms = [term for term in parsed if term is not None]
    return (
        tuple(sorted(terms, key=lambda term: (term.job, term.types)))
        if len(terms) == len(parsed)
        else None
    )


def _term(term: Mapping[str, Any]) -> GangTerm | None:
    """Return a term, or None for a term about other nodes, namespaces or labels.

    A field that kfext does not know may change the meaning of the term.
    """
    fields = {name for name, value in term.items() if value not in (None, [])}
    labels = _labels(mapping(term.get("labelSelector")))
    if fields != _FIELDS or term["topologyKey"] != HOSTNAME or labels is None:
        return None
    jobs, types = labels.pop(JOB_NAME, ()), labels.pop(REPLICA_TYPE, ())
    if labels or len(jobs) != 1 or len(types) > MAX_REPLICA_TYPES:
        return None
    return GangTerm(jobs[0], types)


def _labels(selector: Mapping[str, Any]) -> dict[str, tuple[str, ...]] | None:
    """Return the allowed values by label, or None for a selector with other requirements."""
    allowed: dict[str, tuple[str, ...]] = {}
    match_labels = mapping(selector.get("matchLabels"))
    requirements: list[tuple[str, str, tuple[str, ...]]] = [
        (str(key), "In", (text(value),)) for key, value in match_labels.items()
    ]
    for item in map(mapping, sequence(selector.get("matchExpressions"))):
        values = tuple(sorted({text(value) for value in sequence(item.get("values"))}))
        requirements.append((text(item.get("key")), text(item.get("operator")), values))
    for key, operator, values in requirements:
        well_formed = values and all(0 < len(value) <= LONGEST_NAME for value in values)
        if operator != "In" or key in allowed or not well_formed:
            return None
        allowed[key] = values
    known = {"matchLabels", "matchExpressions"}
    return allowed if known.issuperset(selector) else None
