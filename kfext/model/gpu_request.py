"""What a pod spec asks for of GPUs, and whether it could have a part of one instead."""

from collections.abc import Iterator, Mapping
from typing import Any

from kfext.errors import QuantityError
from kfext.model.gpu_slots import slot_of
from kfext.model.podspec import containers_of, limits_of, requests_of
from kfext.model.quantity import parse_quantity
from kfext.model.tolerant import mapping, sequence
from kfext.names import NATIVE_GPU

CARDS = "NVIDIA_VISIBLE_DEVICES"
"""Which GPUs a container sees: what a pod sets itself would replace what it was given."""
_SHOWN = 40
"""Characters of a number that somebody wrote."""
_ALLOWED = f"allowed: {NATIVE_GPU}: 1 in the limits of one container"

Raw = Mapping[str, Any]


def asks_for_gpu(holder: Raw) -> bool:
    """Return whether a container, or a pod at its own level, asks for a GPU."""
    return any(of(holder).get(NATIVE_GPU, 0) > 0 for of in (requests_of, limits_of))


def why_no_part(spec: Raw) -> str:
    """Return what of a pod spec that asks for GPUs keeps it from a part of one; empty if nothing.

    It begins with a verb, of which the template or the pod is the subject.
    """
    return next(_obstacles(spec), "")


def _obstacles(spec: Raw) -> Iterator[str]:
    if any(map(asks_for_gpu, map(mapping, sequence(spec.get("initContainers"))))):
        yield "has an init container that asks for a GPU"
    asking = [one for one in map(mapping, sequence(spec.get("containers"))) if asks_for_gpu(one)]
    if asks_for_gpu(spec):
        yield f"asks for {NATIVE_GPU} at the level of the pod; {_ALLOWED}"
    if len(asking) > 1:
        yield f"asks for {NATIVE_GPU} in {len(asking)} containers; {_ALLOWED}"
    elif asking and not _is_one(stated := _stated(asking[0])):
        shown = [f"{number[:_SHOWN] or 'none'} in {kind}" for kind, number in stated.items()]
        yield f"asks for {NATIVE_GPU}: {' and '.join(shown)}; {_ALLOWED}"
    if spec.get("resourceClaims"):
        yield "has resourceClaims: GPUs that are given out by DRA cannot be shared yet"
    if any(map(_names_cards, asking)):
        yield f"sets {CARDS}, which is set by what the pod is given"
    for container in containers_of(spec):
        for name in requests_of(container):
            if slot_of(name) is not None:
                yield f"asks for {name} itself, which kfext writes"


def _stated(container: Raw) -> dict[str, str]:
    """Return the number of GPUs as its limits and requests have it, empty where none is stated."""
    resources = mapping(container.get("resources"))
    found = {kind: mapping(resources.get(kind)).get(NATIVE_GPU) for kind in ("limits", "requests")}
    return {kind: "" if number is None else str(number) for kind, number in found.items()}


def _is_one(stated: Mapping[str, str]) -> bool:
    """Return whether exactly one GPU is stated: a limit without a request is both."""
    limit, request = stated["limits"], stated["requests"]
    try:
        return parse_quantity(limit) == 1 == parse_quantity(request or limit)
    except QuantityError:
        return False


def _names_cards(container: Raw) -> bool:
    return any(mapping(one).get("name") == CARDS for one in sequence(container.get("env")))
