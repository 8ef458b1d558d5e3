"""Terms of a pod that concern only the pods of its own job.

kfext models two: required affinity and anti-affinity by node, to pods selected by the operator's
labels. No other pod has these labels, so the plan of the job decides whether the term holds.
Source: kubernetes pkg/scheduler/framework/plugins/interpodaffinity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from kfext.model.bounds import LONGEST_NAME, MOST_REPLICA_TYPES
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

    def of(self, namespace: str) -> Self:
        """Return the term of a pod in a namespace."""
        return replace(self, namespace=namespace)


Exclusive = tuple[str, int] | GangTerm
"""What only one pod of a node can have: a host port, or the place of a pod out of a set."""


def affinity(spec: Mapping[str, Any]) -> tuple[GangTerm, ...] | None:
    """Return the required pod affinity of a pod spec, each term once. Never raises.

    Return None with a term that kfext does not model.
    """
    return _required(mapping(spec.get("affinity")).get("podAffinity"))


def anti_affinity(spec: Mapping[str, Any]) -> tuple[GangTerm, ...] | None:
    """Return the required pod anti-affinity of a pod spec, as `affinity` does."""
    return _required(mapping(spec.get("affinity")).get("podAntiAffinity"))


def _required(of_pods: object) -> tuple[GangTerm, ...] | None:
    found = {_term(mapping(term)) for term in sequence(mapping(of_pods).get(REQUIRED))}
    if len(found) > MOST_REPLICA_TYPES:
        return None
    terms = [term for term in found if term is not None]
    return (
        tuple(sorted(terms, key=lambda term: (term.job, term.types)))
        if len(terms) == len(found)
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
    if labels or len(jobs) != 1 or len(types) > MOST_REPLICA_TYPES:
        return None
    return GangTerm(jobs[0], types)


def _labels(selector: Mapping[str, Any]) -> dict[str, tuple[str, ...]] | None:
    """Return the values that each label must have one of, or None for other requirements."""
    found: dict[str, tuple[str, ...]] = {}
    of_labels = mapping(selector.get("matchLabels"))
    lines: list[tuple[str, str, tuple[str, ...]]] = [
        (str(key), "In", (text(value),)) for key, value in of_labels.items()
    ]
    for line in map(mapping, sequence(selector.get("matchExpressions"))):
        values = tuple(sorted({text(value) for value in sequence(line.get("values"))}))
        lines.append((text(line.get("key")), text(line.get("operator")), values))
    for key, operator, values in lines:
        well_formed = values and all(0 < len(value) <= LONGEST_NAME for value in values)
        if operator != "In" or key in found or not well_formed:
            return None
        found[key] = values
    known = {"matchLabels", "matchExpressions"}
    return found if known.issuperset(selector) else None
