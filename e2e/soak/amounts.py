"""What pods ask for and nodes offer, counted as Kubernetes counts it, from the raw JSON."""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

Object = Mapping[str, Any]
Amounts = dict[str, Fraction]

_UNITS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


@lru_cache(maxsize=4096)
def amount(text: str) -> Fraction:
    """Return a Kubernetes quantity, e.g. `100m`, `4Gi`, `2`. Raises ValueError."""
    digits = text.rstrip("numkKMGTPEi")
    return Fraction(digits) * _UNITS[text[len(digits) :]]


def amounts(resources: Object | None) -> Amounts:
    """Return the quantities of a resource list."""
    return {name: amount(str(text)) for name, text in (resources or {}).items()}


def requests(spec: Object, status: Object | None = None) -> Amounts:
    """Return what a pod occupies on its node, one place among `pods` included.

    Its containers and sidecars together, or the init container (with the sidecars started before
    it) that asks for most, whichever is more, resource by resource; and the overhead. While a
    container is resized, the larger of what it asks for and what its kubelet says it has.
    """
    return _occupied(spec, status, larger)


def granted(spec: Object, status: Object | None = None) -> Amounts:
    """Return what a pod has on its node: of a container that is resized, what its kubelet says."""
    return _occupied(spec, status, lambda asked, has: has or asked)


def _occupied(
    spec: Object, status: Object | None, of: Callable[[Amounts, Amounts], Amounts]
) -> Amounts:
    """Return the room of a pod; `of` a container that asks for one amount and has another."""
    told = (status or {}).get("containerStatuses", ())
    has = {one["name"]: amounts((one.get("resources") or {}).get("requests")) for one in told}
    main = (of(_requests(one), has.get(one.get("name"), {})) for one in spec.get("containers", ()))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers", ()):
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = total((sidecars, own))
            own = {}
        peak = larger(peak, total((own, sidecars)))
    running = total((sidecars, *main))
    asked = total((larger(peak, running), amounts(spec.get("overhead"))))
    return {**asked, "pods": Fraction(1)}


def total(many: Iterable[Mapping[str, Fraction]]) -> Amounts:
    """Return the sum, resource by resource."""
    added: Amounts = {}
    for one in many:
        for name, number in one.items():
            added[name] = added.get(name, Fraction(0)) + number
    return added


def larger(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> Amounts:
    """Return the larger of two amounts of each resource."""
    zero = Fraction(0)
    return {name: max(one.get(name, zero), other.get(name, zero)) for name in {*one, *other}}


def times(one: Mapping[str, Fraction], number: int) -> Amounts:
    """Return an amount so many times."""
    return {name: much * number for name, much in one.items()}


def excess(wanted: Mapping[str, Fraction], offered: Mapping[str, Fraction]) -> Amounts:
    """Return by how much more is wanted than offered, only where it is more."""
    zero = Fraction(0)
    over = {name: number - offered.get(name, zero) for name, number in wanted.items()}
    return {name: number for name, number in over.items() if number > 0}


def _requests(container: Object) -> Amounts:
    resources = container.get("resources") or {}
    # What is limited but not requested is requested in the amount of the limit.
    return amounts({**resources.get("limits", {}), **resources.get("requests", {})})
