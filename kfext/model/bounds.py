"""How large a job or pod may be for kfext to place it: every bound, in one place.

Any account that may create a job can put objects of 1.5 MiB into the cluster, and kfext reads all
of them. So sizes are counted before anything else is done with an object. An object beyond a bound
is left to plain Kubernetes, and its large parts are neither parsed nor kept. One bound is for all
values of a pod together. The others limit what is multiplied by the number of nodes, pods or
replica types. The bounds are far above what training jobs have.
"""

import json
from collections.abc import Mapping
from itertools import chain, islice
from typing import Any

from kfext.model.quantity import ON_EVERY_NODE, Resources
from kfext.model.tolerant import mapping, strings, text
from kfext.names import COLOCATION, DOMAIN, HELD, PLAN, RELEASED, STATE

MOST_PODS = 10_000
"""Pods of a job. Its plan must fit into an annotation, and each pod is a member of the gang."""
MOST_REPLICA_TYPES = 16
"""Entries of the replica specs. A kind has at most five types, but their case is free."""
MOST_ANNOTATIONS = 64
"""Annotations of kfext on a job, template or namespace. There are about thirty settings."""
MOST_VALUES = 1_000
"""Values of a pod that kfext reads, all together; see `parts`. Its environment, commands and mounts
do not count, because kfext does not keep them."""
MOST_RESOURCES = 32
"""Resource names in the requests of a pod. Each is a vector over all nodes for the solver."""
MOST_PORTS = 256
"""Declared ports of a pod. Each is looked up on the nodes."""
MOST_TOLERATIONS = 64
"""Tolerations of a pod. Each is compared with every taint of every node."""
MOST_TERMS = 64
"""Terms of a pod that kfext compares with the nodes: the terms of its required node affinity with
their requirements, and its topology spread constraints."""
MOST_RENDERED = 20_000
"""Values of what an operator renders of a job, by its commas: 1.5 MiB can take half a second."""
LONGEST_SETTING = 1024
"""Characters of the value of a setting."""
MOST_ANNOTATION_BYTES = 256 * 1024
"""Bytes of all annotations of an object: the API server refuses more."""
LONGEST_NAME = 253
"""Characters of the name of an object, such as a priority class; the API server has this bound on
pods, but not on the templates of a job."""

PLAN_BYTES_PER_POD = 2
"""The fewest bytes of a plan for a pod: a digit and a comma."""

_ROOM_FOR_STATE = 6 * 1024
"""Bytes that the state and the marks of kfext may take beside a plan, with their keys."""
_OURS = f"{DOMAIN}/"
_CHARACTERS = 64
"""Characters of a text that weigh as much as a value; labels have at most 63."""
_MARKS = frozenset({HELD, PLAN, STATE, RELEASED, COLOCATION})
"""The annotations kept of a job with too many: they decide that kfext lets the job go."""


def parts(value: object, *, most: int) -> int:
    """Return how many values are inside a JSON value; a long text counts as several.

    Counting ends beyond `most`, so a larger value costs no more.
    """
    total, todo = 0, [value]
    while todo and total <= most:
        item = todo.pop()
        if isinstance(item, str):
            total += len(item) // _CHARACTERS
        elif isinstance(item, Mapping | list | tuple):
            total += len(item)
            if total <= most and isinstance(item, Mapping):
                total += sum(len(str(key)) // _CHARACTERS for key in item)
                todo += item.values()
            elif total <= most:
                todo += item
    return total


def job_excess(specs: Mapping[str, Any], annotations: Mapping[str, str]) -> str:
    """Return the bound that a job itself is beyond, empty if none; templates are not checked.

    `specs`: its replica specs. `annotations`: its own annotations.
    """
    if len(specs) > MOST_REPLICA_TYPES:
        return beyond("replica types", MOST_REPLICA_TYPES)
    if len(annotations) > MOST_ANNOTATIONS:
        return beyond("annotations of kfext", MOST_ANNOTATIONS)
    return ""


def pods_excess(number: int) -> str:
    """Return that a number of pods is beyond the bound; empty within it."""
    return beyond("pods", MOST_PODS, number) if number > MOST_PODS else ""


def own(annotations: object) -> dict[str, str]:
    """Return kfext's annotations among some; all others are dropped.

    Of a value beyond LONGEST_SETTING one character more is kept, so that it is seen to be too long;
    values that kfext writes itself are whole. Of too many annotations only the first are read, and
    the marks.
    """
    written = mapping(annotations)
    ours = (key for key in written if isinstance(key, str) and key.startswith(_OURS))
    return {
        key: value if key in {PLAN, STATE} else value[: LONGEST_SETTING + 1]
        for key in (*islice(ours, MOST_ANNOTATIONS + 1), *sorted(_MARKS & written.keys()))
        if isinstance(value := written[key], str)
    }


def bytes_of(annotations: object) -> int:
    """Return the size of annotations as the API server counts it, without plan and state."""
    others = (item for item in strings(annotations).items() if item[0] not in {PLAN, STATE})
    return len("".join(chain.from_iterable(others)).encode(errors="replace"))


def plan_excess(size: int, *, beside: int) -> str:
    """Return that a plan of at least `size` bytes does not fit into the annotations, else empty.

    `beside`: the size of the job's other annotations.
    """
    room = MOST_ANNOTATION_BYTES - beside - _ROOM_FOR_STATE
    if size <= room:
        return ""
    return (
        f"its plan has at least {size} bytes, but its annotations have room for {max(room, 0)} only"
    )


def kept(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return what is kept of kfext's annotations on an object, which may have too many."""
    if len(annotations) <= MOST_ANNOTATIONS:
        return annotations
    return {key: value for key, value in annotations.items() if key in _MARKS}


def name(value: object) -> str:
    """Return a text that names an object; a longer text names nothing and is cut."""
    return text(value)[:LONGEST_NAME]


def few(resources: Resources) -> Resources:
    """Return the requests of a pod with at most MOST_RESOURCES names, native names first.

    A pod with more can only have been sent to the kubelet directly: kube-scheduler wants a node
    that has all the resources.
    """
    if len(resources) <= MOST_RESOURCES:
        return resources
    first = sorted(ON_EVERY_NODE & resources.keys())
    others = sorted(resources.keys() - ON_EVERY_NODE)
    return {name: resources[name] for name in [*first, *others][:MOST_RESOURCES]}


def beyond(what: str, most: int, number: int | None = None) -> str:
    """Return the phrase that something is beyond its bound; number None: it was not counted."""
    if number is None:
        return f"more than {most} {what}"
    return f"{number} {what}, more than the {most} that kfext handles"


def cut(words: str, *, most: int) -> str:
    """Return a text cut to this many bytes of JSON, where a character may take twelve."""
    while len(json.dumps(words)) > most:
        words = words[: len(words) * 3 // 4]
    return words
