"""All bounds on the size of the jobs and pods that kfext places.

Any account that may create a job can put objects of 1.5 MiB into the cluster, and kfext reads all
of them. So the size of an object is checked first. kfext leaves an object beyond a bound to plain
Kubernetes, and neither parses nor stores its large parts. MAX_VALUES bounds all values of a pod
together. The other bounds limit numbers that are multiplied by the number of nodes, pods or replica
types. All are far above the size of real training jobs.
"""

import json
from collections.abc import Mapping
from itertools import chain, islice
from typing import Any

from kfext.model.quantity import ON_EVERY_NODE, Resources
from kfext.model.tolerant import mapping, strings, text
from kfext.names import COLOCATION, DOMAIN, HELD, PLAN, RELEASED, STATE

MAX_PODS = 10_000
"""Pods of a job. Its plan must fit into an annotation, and each pod is a member of the gang."""
MAX_REPLICA_TYPES = 16
"""Entries of the replica specs. A kind has at most five types, but their case may vary."""
MAX_ANNOTATIONS = 64
"""Annotations of kfext on a job, template or namespace. There are about thirty settings."""
MAX_VALUES = 1_000
"""All values of a pod that kfext reads; see `count_values`. The environment, commands and mounts do
not count, because kfext does not store them."""
MAX_RESOURCES = 32
"""Resource names in the requests of a pod. Each is a vector over all nodes for the solver."""
MAX_PORTS = 256
"""Declared ports of a pod. Each is looked up on the nodes."""
MAX_TOLERATIONS = 64
"""Tolerations of a pod. Each is compared with every taint of every node."""
MAX_TERMS = 64
"""Terms of a pod that kfext compares with the nodes: the terms of its required node affinity with
their requirements, and its topology spread constraints."""
MAX_RENDERED = 20_000
"""Values of the object rendered from a job, counted by commas: 1.5 MiB can take half a second."""
LONGEST_SETTING = 1024
"""Characters of the value of a setting."""
MAX_ANNOTATION_BYTES = 256 * 1024
"""Bytes of all annotations of an object: the API server refuses more."""
LONGEST_NAME = 253
"""Characters of the name of an object, such as a priority class; the API server has this bound on
pods, but not on the templates of a job."""

PLAN_BYTES_PER_POD = 2
"""The fewest bytes of a plan for a pod: a digit and a comma."""

_STATE_BYTES = 6 * 1024
"""Bytes reserved beside a plan for the state and the marks of kfext, with their keys."""
_PREFIX = f"{DOMAIN}/"
_CHARACTERS = 64
"""Characters of a text that count as one more value; labels have at most 63."""
_MARKS = frozenset({HELD, PLAN, STATE, RELEASED, COLOCATION})
"""The only annotations kept of a job with too many: kfext needs them to release the job."""


def count_values(value: object, *, most: int) -> int:
    """Return the number of values inside a JSON value; a long text counts as several.

    Counting ends beyond `most`, so a larger value costs no more.
    """
    total, pending = 0, [value]
    while pending and total <= most:
        item = pending.pop()
        if isinstance(item, str):
            total += len(item) // _CHARACTERS
        elif isinstance(item, Mapping | list | tuple):
            total += len(item)
            if total <= most and isinstance(item, Mapping):
                total += sum(len(str(key)) // _CHARACTERS for key in item)
                pending += item.values()
            elif total <= most:
                pending += item
    return total


def job_excess(specs: Mapping[str, Any], annotations: Mapping[str, str]) -> str:
    """Return the bound that the replica specs or annotations of a job exceed, in words, or ''."""
    if len(specs) > MAX_REPLICA_TYPES:
        return beyond("replica types", MAX_REPLICA_TYPES)
    if len(annotations) > MAX_ANNOTATIONS:
        return beyond("annotations of kfext", MAX_ANNOTATIONS)
    return ""


def pods_excess(number: int) -> str:
    """Return the bound that the number of pods exceeds, in words; empty within the bound."""
    return beyond("pods", MAX_PODS, number) if number > MAX_PODS else ""


def kfext_annotations(annotations: object) -> dict[str, str]:
    """Return the annotations of kfext on an object.

    A value is cut one character after LONGEST_SETTING, so that it still counts as too long; values
    that kfext writes itself stay whole. Of too many annotations, the first and the marks are read.
    """
    written = mapping(annotations)
    keys = (key for key in written if isinstance(key, str) and key.startswith(_PREFIX))
    return {
        key: value if key in {PLAN, STATE} else value[: LONGEST_SETTING + 1]
        for key in (*islice(keys, MAX_ANNOTATIONS + 1), *sorted(_MARKS & written.keys()))
        if isinstance(value := written[key], str)
    }


def bytes_of(annotations: object) -> int:
    """Return the size of annotations as the API server counts it, without plan and state."""
    others = (item for item in strings(annotations).items() if item[0] not in {PLAN, STATE})
    return len("".join(chain.from_iterable(others)).encode(errors="replace"))


def plan_excess(size: int, *, other_bytes: int) -> str:
    """Return why a plan of at least `size` bytes is too large; empty if it fits.

    `other_bytes`: the size in bytes of the job's other annotations.
    """
    free = MAX_ANNOTATION_BYTES - other_bytes - _STATE_BYTES
    if size <= free:
        return ""
    return (
        f"its plan has at least {size} bytes, but its annotations have room for {max(free, 0)} only"
    )


def bounded(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return kfext's annotations on an object, or only the marks if there are too many."""
    if len(annotations) <= MAX_ANNOTATIONS:
        return annotations
    return {key: value for key, value in annotations.items() if key in _MARKS}


def bounded_name(value: object) -> str:
    """Return the name of an object; a text that is too long for a name is cut."""
    return text(value)[:LONGEST_NAME]


def bounded_resources(resources: Resources) -> Resources:
    """Return the requests of a pod with at most MAX_RESOURCES names, native names first.

    Only a pod that bypassed kube-scheduler can run with more: no node has so many resources.
    """
    if len(resources) <= MAX_RESOURCES:
        return resources
    native = sorted(ON_EVERY_NODE & resources.keys())
    others = sorted(resources.keys() - ON_EVERY_NODE)
    return {name: resources[name] for name in [*native, *others][:MAX_RESOURCES]}


def beyond(things: str, most: int, number: int | None = None) -> str:
    """Return a phrase about more than `most` things; `number`: how many there are, if known."""
    if number is None:
        return f"more than {most} {things}"
    return f"{number} {things}, more than the {most} that kfext handles"


def cut(message: str, *, most: int) -> str:
    """Return a text cut to at most `most` bytes of JSON, where a character may need twelve."""
    while len(json.dumps(message)) > most:
        message = message[: len(message) * 3 // 4]
    return message
