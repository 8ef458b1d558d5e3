"""Which bound of kfext a pod spec or template is beyond. See model.bounds for what they are for."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from kfext.model.bounds import (
    LONGEST_NAME,
    MOST_ANNOTATIONS,
    MOST_CONTAINERS,
    MOST_GATES,
    MOST_LABELS,
    MOST_PARTS,
    MOST_PORTS,
    MOST_REQUIREMENTS,
    MOST_RESOURCES,
    MOST_SPREADS,
    MOST_TERMS,
    MOST_TOLERATIONS,
    MOST_VALUES,
    MOST_VOLUMES,
    beyond,
    own,
    parts,
)
from kfext.model.podspec import containers_of
from kfext.model.quantity import COMMON
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import GATE

Count = Callable[[Mapping[str, Any]], int]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod_excess(spec: Mapping[str, Any]) -> str:
    """Return which bound a pod spec is beyond, empty if none; the cheapest to count come first."""
    for what, most, count in _OF_PODS:
        number = count(spec)
        if number > most:
            return beyond(what, most, number)
    return ""


def template_excess(template: Mapping[str, Any]) -> str:
    """Return which bound a pod template is beyond, empty if none."""
    metadata = mapping(template.get("metadata"))
    for what, most, number in (
        ("labels", MOST_LABELS, len(mapping(metadata.get("labels")))),
        ("annotations of kfext", MOST_ANNOTATIONS, len(own(metadata.get("annotations")))),
    ):
        if number > most:
            return beyond(what, most, number)
    return pod_excess(mapping(template.get("spec")))


def trimmed(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pod spec beyond the bounds with as much of its resources as is counted.

    Of CPU, memory and what else every node has nothing is lost.
    """
    lists = {
        field: [_with_few_resources(mapping(one)) for one in sequence(spec.get(field))]
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
    if not isinstance(amounts, Mapping) or len(amounts) <= MOST_RESOURCES:
        return amounts
    native = {name: amounts[name] for name in COMMON if name in amounts}
    return native | dict(islice(amounts.items(), MOST_RESOURCES))


def _containers(spec: Mapping[str, Any]) -> int:
    return sum(len(sequence(spec.get(field))) for field in ("containers", "initContainers"))


def _resources(spec: Mapping[str, Any]) -> list[Any]:
    of_containers = (container.get("resources") for container in containers_of(spec))
    return [*of_containers, spec.get("resources"), {"requests": spec.get("overhead")}]


def _resource_names(spec: Mapping[str, Any]) -> int:
    return len(
        {
            name
            for resources in map(mapping, _resources(spec))
            for field in ("requests", "limits")
            for name in mapping(resources.get(field))
        }
    )


def _terms(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    return list(map(mapping, sequence(mapping(affinity.get(_REQUIRED)).get("nodeSelectorTerms"))))


def _requirements(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for term in _terms(spec):
        for field in ("matchExpressions", "matchFields"):
            yield from map(mapping, sequence(term.get(field)))


def _gates(spec: Mapping[str, Any]) -> int:
    gates = sequence(spec.get("schedulingGates"))
    return len(gates) - ({"name": GATE} in gates[: MOST_GATES + 1])


def _longest_name(spec: Mapping[str, Any]) -> int:
    fields = ("priorityClassName", "nodeName", "schedulerName")
    return max(len(text(spec.get(field))) for field in fields)


def _parts_of(field: str) -> Count:
    return lambda spec: parts(spec.get(field), most=MOST_PARTS)


_OF_PODS: tuple[tuple[str, int, Count], ...] = (
    ("containers", MOST_CONTAINERS, _containers),
    ("tolerations", MOST_TOLERATIONS, lambda spec: len(sequence(spec.get("tolerations")))),
    ("volumes", MOST_VOLUMES, lambda spec: len(sequence(spec.get("volumes")))),
    (
        "topology spread constraints",
        MOST_SPREADS,
        lambda spec: len(sequence(spec.get("topologySpreadConstraints"))),
    ),
    ("entries of nodeSelector", MOST_LABELS, lambda spec: len(mapping(spec.get("nodeSelector")))),
    ("scheduling gates of others", MOST_GATES, _gates),
    ("characters in a name", LONGEST_NAME, _longest_name),
    ("values or more in tolerations", MOST_PARTS, _parts_of("tolerations")),
    ("values or more in nodeSelector", MOST_PARTS, _parts_of("nodeSelector")),
    ("values or more in affinity", MOST_PARTS, _parts_of("affinity")),
    ("terms of required node affinity", MOST_TERMS, lambda spec: len(_terms(spec))),
    (
        "requirements in required node affinity",
        MOST_REQUIREMENTS,
        lambda spec: sum(1 for _ in _requirements(spec)),
    ),
    (
        "values in required node affinity",
        MOST_VALUES,
        lambda spec: sum(len(sequence(one.get("values"))) for one in _requirements(spec)),
    ),
    (
        "values or more in resources",
        MOST_PARTS,
        lambda spec: parts(_resources(spec), most=MOST_PARTS),
    ),
    ("resource names", MOST_RESOURCES, _resource_names),
    (
        "ports",
        MOST_PORTS,
        lambda spec: sum(len(sequence(one.get("ports"))) for one in containers_of(spec)),
    ),
    (
        "values or more in ports",
        MOST_PARTS,
        lambda spec: parts([one.get("ports") for one in containers_of(spec)], most=MOST_PARTS),
    ),
)
