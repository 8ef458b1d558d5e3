"""The numbers of the ledger, by node: the amounts of each resource, and the topology domains."""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kfext.model.node import Node
from kfext.model.quantity import CPU, MEMORY, PODS, Resources

Amounts = NDArray[np.int64]

ASSUMED = {CPU: 100, MEMORY: 200 * 2**20}
"""The millicores and bytes that scores assume for a pod without requests, as kube-scheduler."""

LARGEST = 2**48
"""The upper bound of one amount (256 TiB), so that the sum of 30,000 amounts fits 64 bits."""


class Columns:
    """The allocatable and claimed amounts; an array has a line per resource and a row per node.

    Only resources that some node has are counted, because users invent others. Line 0 stands for
    all other resources and stays zero. Rows and lines are added as needed.
    """

    def __init__(self) -> None:
        self._line: dict[str, int] = {}
        self._allocatable: Amounts = np.zeros((4, 16), dtype=np.int64)
        self._claimed: Amounts = np.zeros((4, 16), dtype=np.int64)
        self._assumed: Amounts = np.zeros((2, 16), dtype=np.int64)
        self.learn(ASSUMED)

    @property
    def width(self) -> int:
        """The number of rows of the arrays, used or not."""
        return int(self._claimed.shape[1])

    @property
    def resources(self) -> Collection[str]:
        """The names of the resources that are counted."""
        return self._line.keys()

    def copy(self) -> Self:
        """Return a copy with claims that can be changed independently."""
        copied = copy.copy(self)
        copied._line = dict(self._line)
        copied._claimed = self._claimed.copy()
        copied._assumed = self._assumed.copy()
        return copied

    def less(self, others: Iterable[Self]) -> Self:
        """Return a copy less the claimed amounts of `others`, which count no further resources."""
        result = self.copy()
        for other in others:
            width = min(result.width, other.width)
            for resource, line in other._line.items():
                result._claimed[result._line[resource], :width] -= other._claimed[line, :width]
            result._assumed[:, :width] -= other._assumed[:, :width]
        return result

    def claimed(self, resource: str) -> Amounts:
        """Return the claimed amounts of a resource, shape (width,)."""
        claimed: Amounts = self._claimed[self._line.get(resource, 0)]
        return claimed

    def copy_rows(self, other: Self, rows: NDArray[np.intp]) -> None:
        """Copy the claimed amounts of some rows from `other`, which counts the same resources."""
        self._claimed[:, rows] = other._claimed[:, rows]
        self._assumed[:, rows] = other._assumed[:, rows]

    def row_free(self, row: int) -> Amounts:
        """Return the free amounts of a row, shape (lines,)."""
        free: Amounts = self._allocatable[:, row] - self._claimed[:, row]
        return free

    def capped(self, free: Mapping[int, Amounts]) -> Self:
        """Return a copy in which rows have at most the free amounts in `free` (`row_free`)."""
        result = self.copy()
        for row, most_free in free.items():
            lines = len(most_free)
            least_claimed = result._allocatable[:, row].copy()  # no newer resource is free
            least_claimed[:lines] -= most_free
            result._claimed[:, row] = np.maximum(result._claimed[:, row], least_claimed)
        return result

    def widen(self) -> None:
        """Double the number of rows."""
        self._allocatable = _doubled(self._allocatable, axis=1)
        self._claimed = _doubled(self._claimed, axis=1)
        self._assumed = _doubled(self._assumed, axis=1)

    def learn(self, resources: Iterable[str]) -> tuple[str, ...]:
        """Count these resources from now on; return the new ones among them."""
        new = tuple(resource for resource in resources if resource not in self._line)
        for resource in new:
            self._line[resource] = len(self._line) + 1
            if len(self._line) >= self._claimed.shape[0]:
                self._allocatable = _doubled(self._allocatable, axis=0)
                self._claimed = _doubled(self._claimed, axis=0)
        return new

    def set_allocatable(self, row: int, amounts: Resources) -> None:
        """Set the allocatable amounts of a row."""
        self.learn(amounts)
        self._allocatable[:, row] = 0
        for resource, number in amounts.items():
            self._allocatable[self._line[resource], row] = min(number, LARGEST)

    def clear(self, row: int) -> None:
        """Set all amounts of a row to zero."""
        self._allocatable[:, row] = self._claimed[:, row] = 0
        self._assumed[:, row] = 0

    def book(self, row: int, requests: Resources, times: int) -> None:
        """Add the requests of `times` pods to the claims on a row; a negative number subtracts.

        Only claims of pods have assumed requests: a claim may be for ports alone.
        """
        for resource, number in requests.items():
            self.book_one(row, resource, number, times)
        if PODS not in requests:
            return
        for line, (resource, number) in enumerate(ASSUMED.items()):
            if not requests.get(resource):
                self._assumed[line, row] += times * number

    def book_one(self, row: int, resource: str, number: int, times: int) -> None:
        """Add the request of `times` pods for one resource, if it is counted."""
        if line := self._line.get(resource):
            self._claimed[line, row] += times * min(number, LARGEST)

    def free(self, resources: Collection[str], count: int) -> Amounts:
        """Return the free amounts of the first `count` rows, shape (resources, count)."""
        lines = self._lines(resources)
        free: Amounts = self._allocatable[lines, :count] - self._claimed[lines, :count]
        return free

    def allocatable(self, resources: Collection[str], count: int) -> Amounts:
        """Return the allocatable amounts of the first `count` rows, shape (resources, count)."""
        lines = self._lines(resources)
        return self._allocatable[lines, :count]

    def scored_load(self, count: int) -> Amounts:
        """Return claimed and assumed CPU and memory of the first rows, shape (2, count)."""
        lines = self._lines(ASSUMED)
        loads: Amounts = self._claimed[lines, :count] + self._assumed[:, :count]
        return loads

    def _lines(self, resources: Iterable[str]) -> list[int]:
        return [self._line.get(resource, 0) for resource in resources]


def _doubled(array: NDArray[Any], *, axis: int) -> NDArray[Any]:
    """Return an array of twice the length along `axis`; the new half is zero."""
    return np.concatenate((array, np.zeros_like(array)), axis=axis)


Domains = NDArray[np.intp]
"""The number of each row's domain on one level; -1 means that the row is in no domain."""

_MAX_KEYS = 16
"""The largest number of cached lists of keys; the lists come from policies, so they are few."""


class Topology:
    """The topology domains of the rows, cached by list of label keys (zone, then rack)."""

    def __init__(self) -> None:
        self._levels: dict[tuple[str, ...], tuple[Domains, ...]] = {}

    def domains(self, keys: tuple[str, ...], nodes: Sequence[Node | None]) -> tuple[Domains, ...]:
        """Return the domains of the rows on each level, the widest first.

        Two nodes are in one domain of a level if they have equal labels for its key and all wider
        keys: rack 1 of zone a is not rack 1 of zone b. A node without the key is in no domain of
        the level.
        """
        levels = self._levels.get(keys)
        if levels is None:
            if len(self._levels) >= _MAX_KEYS:  # evict the oldest
                del self._levels[next(iter(self._levels))]
            levels = tuple(_domains_of(keys[:end], nodes) for end in range(1, len(keys) + 1))
            self._levels[keys] = levels
        return levels

    def alone(self, key: str, nodes: Sequence[Node | None]) -> NDArray[np.bool_]:
        """Return a mask of the rows that share their value of a label with no other row."""
        (numbers,) = self.domains((key,), nodes)
        sizes = np.bincount(numbers + 1, minlength=1)
        sizes[0] = 1
        unique: NDArray[np.bool_] = sizes[numbers + 1] == 1
        return unique

    def forget(self) -> None:
        """Empty the cache: a node was added, removed or relabelled."""
        self._levels.clear()


def _domains_of(keys: Sequence[str], nodes: Sequence[Node | None]) -> Domains:
    """Return the domains of a level, numbered in the order of their label values."""
    paths = [
        tuple(node.labels.get(key, "") for key in keys)
        if node is not None and keys[-1] in node.labels
        else None
        for node in nodes
    ]
    numbers = {path: i for i, path in enumerate(sorted({path for path in paths if path}))}
    return np.array([numbers[path] if path else -1 for path in paths], dtype=np.intp)
