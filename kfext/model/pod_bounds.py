"""Which bound of model.bounds a pod spec or template exceeds."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from kfext.model.bounds import (
    LONGEST_NAME,
    MAX_ANNOTATIONS,
    MAX_PORTS,
    MAX_RESOURCES,
    MAX_TERMS,
    MAX_TOLERATIONS,
    MAX_VALUES,
    beyond,
    count_values,
    kfext_annotations,
)
from kfext.model.podspec import containers_of, node_affinity
from kfext.model.quantity import ON_EVERY_NODE
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import GATE, REQUIRED

_LISTS = ("containers", "initContainers", "volumes")
_READ = (
    *("affinity", "nodeSelector", "overhead", "resourceClaims", "resources", "tolerations"),
    "topologySpreadConstraints",
)
"""The fields of a pod spec that kfext reads completely, besides gates of other systems."""
_READ_OF_CONTAINERS = ("name", "ports", "resizePolicy", "resources")
_NAMES = ("priorityClassName", "nodeName", "schedulerName")


def pod_excess(spec: Mapping[str, Any]) -> str:
    """Return the bound that a pod spec exceeds, in words; empty within the bounds."""
    for things, most, count in _BOUNDS:
        number = count(spec)
        if number > most:
            return beyond(things, most, number)
    return ""


def template_excess(template: Mapping[str, Any]) -> str:
    """Return the bound that a pod template exceeds, in words; empty within the bounds."""
    metadata = mapping(template.get("metadata"))
    if len(kfext_annotations(metadata.get("annotations"))) > MAX_ANNOTATIONS:
        return beyond("annotations of kfext", MAX_ANNOTATIONS)
    labels = count_values(mapping(metadata.get("labels")), most=MAX_VALUES)
    if labels > MAX_VALUES:
        return beyond("values in labels", MAX_VALUES, labels)
    return pod_excess(mapping(template.get("spec")))


def trimmed(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pod spec beyond the bounds without the resources that exceed MAX_RESOURCES.

    The resources that every node has, such as CPU and memory, stay.
    """
    lists = {
        field: [_with_few_resources(mapping(container)) for container in sequence(spec.get(field))]
        for field in ("containers", "initContainers")
    }
    overhead = _few_amounts(spec.get("overhead"))
    return _with_few_resources({**spec, **lists, "overhead": overhead})


def _with_few_resources(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = holder.get("resources")
    if not isinstance(resources, Mapping):
        return holder
    few = {field: _few_amounts(resources.get(field)) for field in ("requests", "limits")}
    return {**holder, "resources": few}


def _few_amounts(amounts: object) -> object:
    if not isinstance(amounts, Mapping) or len(amounts) <= MAX_RESOURCES:
        return amounts
    native = {name: amounts[name] for name in ON_EVERY_NODE if name in amounts}
    return native | dict(islice(amounts.items(), MAX_RESOURCES))


def _values(spec: Mapping[str, Any]) -> int:
    """Return how many values kfext reads of a pod spec; counting ends beyond the bound."""
    lists = [sequence(spec.get(field)) for field in _LISTS]
    number = sum(map(len, lists))
    if number > MAX_VALUES:
        return number
    number += sum(max(0, len(text(spec.get(field))) - LONGEST_NAME) for field in _NAMES)
    gates = [gate for gate in sequence(spec.get("schedulingGates")) if gate != {"name": GATE}]
    read = [*(spec.get(field) for field in _READ), gates]
    read += [
        container.get(field) for container in containers_of(spec) for field in _READ_OF_CONTAINERS
    ]
    read += [
        mapping(volume).get("persistentVolumeClaim") for volume in sequence(spec.get("volumes"))
    ]
    return number + count_values(read, most=MAX_VALUES + len(read)) - len(read)


def _resource_names(spec: Mapping[str, Any]) -> int:
    holders = [*containers_of(spec), spec, {"resources": {"requests": spec.get("overhead")}}]
    return len(
        {
            name
            for holder in holders
            for field in ("requests", "limits")
            for name in mapping(mapping(holder.get("resources")).get(field))
        }
    )


def _terms(spec: Mapping[str, Any]) -> int:
    terms = sequence(mapping(node_affinity(spec).get(REQUIRED)).get("nodeSelectorTerms"))
    spreads = sequence(spec.get("topologySpreadConstraints"))
    return len(spreads) + sum(1 + sum(_requirements(mapping(term))) for term in terms)


def _requirements(term: Mapping[str, Any]) -> Iterator[int]:
    return (len(sequence(term.get(field))) for field in ("matchExpressions", "matchFields"))


_BOUNDS: tuple[tuple[str, int, Callable[[Mapping[str, Any]], int]], ...] = (
    ("values that matter for its placement", MAX_VALUES, _values),
    ("resource names", MAX_RESOURCES, _resource_names),
    ("tolerations", MAX_TOLERATIONS, lambda spec: len(sequence(spec.get("tolerations")))),
    ("terms of node affinity and topology spread", MAX_TERMS, _terms),
    (
        "ports",
        MAX_PORTS,
        lambda spec: sum(
            len(sequence(container.get("ports"))) for container in containers_of(spec)
        ),
    ),
)
