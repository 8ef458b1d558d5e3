"""The manifest of a placeholder: a pod with the requests of a gang member, which does nothing.

An autoscaler adds a node for it, and kube-scheduler binds it there. The pods of users preempt it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from kfext.core.placement.gang import Limits, Member, on_one_node
from kfext.model.constraints import Constraints, Requirement, Term
from kfext.model.quantity import ON_EVERY_NODE, PODS, Resources, written_amount
from kfext.model.tolerant import mapping, sequence
from kfext.names import HOSTNAME, NEW_NODES_NAMESPACE, PLACEHOLDER_OF, PREFERRED, REQUIRED

MAX_NODE_TERMS = 64
"""The most node-affinity terms of a placeholder: each volume of a pod multiplies their number."""


def placeholder(
    template: Mapping[str, Any], member: Member, limits: Limits, *, name: str, job_uid: str
) -> dict[str, Any]:
    """Return the placeholder of a member of a gang that is placed within limits.

    `template`: the pod template of PLACEHOLDER_TEMPLATE, with one container.
    """
    metadata, spec = mapping(template.get("metadata")), mapping(template.get("spec"))
    constraints = member.constraints
    affinity = {**_near(job_uid, constraints, limits), **_on_nodes(constraints)}
    container = mapping(next(iter(sequence(spec.get("containers"))), {}))
    tolerations = [toleration.written() for toleration in constraints.tolerations]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": name,
            "namespace": NEW_NODES_NAMESPACE,
            "labels": {**mapping(metadata.get("labels")), PLACEHOLDER_OF: job_uid},
        },
        "spec": {
            **spec,
            "containers": [{**container, "resources": _resources(member.requests)}],
            **({"affinity": affinity} if affinity else {}),
            **({"nodeSelector": dict(selector)} if (selector := constraints.node_selector) else {}),
            "tolerations": [*sequence(spec.get("tolerations")), *tolerations],
        },
    }


def _resources(requests: Resources) -> dict[str, dict[str, str]]:
    amounts = {
        name: written_amount(name, number) for name, number in requests.items() if name != PODS
    }
    limits = {name: amount for name, amount in amounts.items() if name not in ON_EVERY_NODE}
    return {"requests": amounts, **({"limits": limits} if limits else {})}


def _near(job_uid: str, constraints: Constraints, limits: Limits) -> dict[str, Any]:
    selector = {"labelSelector": {"matchLabels": {PLACEHOLDER_OF: job_uid}}}
    same_node = {**selector, "topologyKey": HOSTNAME}
    affinity: dict[str, Any] = {}
    if constraints.exclusive:  # pods with anti-affinity or host ports
        affinity["podAntiAffinity"] = {REQUIRED: [same_node]}
    if on_one_node([constraints], limits):
        affinity["podAffinity"] = {REQUIRED: [same_node]}
    elif limits.topology_keys:
        term = {**selector, "topologyKey": limits.topology_keys[0]}
        affinity["podAffinity"] = {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}
    return affinity


def node_terms(constraints: Constraints) -> int:
    """Return the number of terms of the node affinity of a placeholder."""
    return math.prod(map(len, _lists(constraints)))


def _lists(constraints: Constraints) -> list[tuple[Term, ...]]:
    """Return lists of terms: a node must match a term of each list. Equal volumes share a list."""
    lists = dict.fromkeys((constraints.terms, *constraints.volumes.terms))
    return [terms for terms in lists if terms is not None]


def _on_nodes(constraints: Constraints) -> dict[str, Any]:
    """Return the affinity to the nodes that the pod's own terms and its volumes allow."""
    lists = _lists(constraints)
    if not lists:
        return {}
    joined = [list(_joined(terms)) for terms in product(*lists)]
    terms = [{key: value for field in fields for key, value in field} for fields in joined]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def _joined(terms: Iterable[Term]) -> Iterator[list[tuple[str, list[dict[str, Any]]]]]:
    """Yield the members of a term that requires all of several terms."""
    terms = tuple(terms)
    expressions = [_written(item) for term in terms for item in term.expressions]
    fields = [_written(item) for term in terms for item in term.fields]
    if expressions:
        yield [("matchExpressions", expressions)]
    if fields:
        yield [("matchFields", fields)]


def _written(requirement: Requirement) -> dict[str, Any]:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}
