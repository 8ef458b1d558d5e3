"""The ledger: the allocatable amounts of every node, less the claims on them.

A claim is the capacity that one pod uses on one node. The pod is bound or pinned, or it is planned
and does not exist yet. The amounts are columns of NumPy arrays (core.ledger.columns), so a query
over 5,000 nodes costs microseconds. They are integers in the units of model.quantity.
"""

import copy
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kfext.core.ledger.cards import Cards, Read, slots_among, with_cards
from kfext.core.ledger.claim import Claim, Claims, Leaves, Tiers, below, tier_of
from kfext.core.ledger.columns import LARGEST, Amounts, Columns, Domains, Topology
from kfext.core.ledger.fit import Eligibility, Mask, Obstacle
from kfext.model.constraints import Constraints
from kfext.model.gang_terms import Exclusive
from kfext.model.gpu import COUNTS, SLOT, UNITS, Place, resource_of
from kfext.model.node import Node
from kfext.model.quantity import CPU, MEMORY, PODS
from kfext.names import HOSTNAME


class Ledger:
    """Nodes and the claims on them. A claim on an unknown node counts once the node appears.

    `gains` counts the events that may end a refusal or change its reason: capacity was freed, or a
    node changed. A refusal holds until `gains` changes. `version` counts every change of a claim.

    Freed capacity is offered by the next call of `offer`. Until then `offered` only shrinks, so
    that a job never gets capacity that was not offered to the jobs before it.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.gains = 0
        self.version = 0
        self.nodes: list[Node | None] = []
        self._row: dict[str, int] = {}
        self._unused_rows: list[int] = []
        self._columns = Columns()
        self._claims = Claims()
        self._tiers = Tiers()
        self._leaves: Leaves | None = None
        self._eligible = Eligibility()
        self._topology = Topology()
        self._name_order: NDArray[np.int64] | None = None
        self._least: dict[int, Amounts] = {}  # the least free amounts since the last offer, by row
        self._gains_offered = 0
        self._offered: tuple[int, int, Self] | None = None  # for a version and a number of gains
        for node in nodes:
            self.set_node(node)

    # --- nodes ------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """Add a node, or replace it."""
        row = self._row.get(node.name)
        before = self.nodes[row] if row is not None else None
        unchanged = before is not None and _eligibility_fields(before) == _eligibility_fields(node)
        free = None if row is None or not unchanged else self._columns.row_free(row)
        self._count(self._columns.learn(node.allocatable))
        if row is None:
            row = self._new_row(node.name)
            self.nodes[row] = node
            for claim in self._claims.on(node.name):
                self._book(row, claim, +1)
        self.nodes[row] = node
        self._columns.set_allocatable(row, node.allocatable)
        if not unchanged:
            self._eligible.set(row, node)
            self._topology.forget()
        if before is None or _refusal_fields(before) != _refusal_fields(node):
            self._gain(row, free)

    def remove_node(self, name: str) -> None:
        """Remove a node; its claims stay, because it may be added again."""
        row = self._row.pop(name, None)
        if row is None:
            return
        self.nodes[row] = None
        self._columns.clear(row)
        self._tiers.clear(row)
        self._eligible.set(row, None)
        self._topology.forget()
        self._unused_rows.append(row)
        self._name_order = None
        self._least.pop(row, None)
        self.gains += 1

    def node(self, name: str) -> Node | None:
        """Return a node by name."""
        row = self._row.get(name)
        return self.nodes[row] if row is not None else None

    def row(self, name: str) -> int | None:
        """Return the position of a node in the arrays."""
        return self._row.get(name)

    @property
    def node_count(self) -> int:
        """The number of nodes; some rows may be unused."""
        return len(self._row)

    # --- claims -----------------------------------------------------------------------------

    def claim(self, key: Hashable, claim: Claim) -> None:
        """Set or replace the claim of `key`."""
        if self._claims.get(key) != claim:
            self.drop(key, heir=claim)
            self._add([key], claim)

    def claim_all(self, claims: Mapping[Hashable, Claim]) -> None:
        """Set the claims of many keys; keys that share one claim object are booked at once."""
        alike: dict[int, list[Hashable]] = {}
        for key, claim in claims.items():
            if self._claims.get(key) is None:
                alike.setdefault(id(claim), []).append(key)
            else:
                self.claim(key, claim)
        for keys in alike.values():
            self._add(keys, claims[keys[0]])

    def drop(self, key: Hashable, *, heir: Claim | None = None) -> None:
        """Remove any claim of `key`; its capacity is freed unless `heir` covers the claim."""
        claim = self._claims.get(key)
        if claim is None:
            return
        row = self._row.get(claim.node)
        free = None if row is None else self._columns.row_free(row)
        self.version += 1
        self._claims.remove(key)
        if row is not None:
            self._book(row, claim, -1)
        self._tiers.count_claim(claim, -1)
        if heir is None or not heir.covers(claim):
            self._gain(row, free)

    def hand_over(self, key: Hashable, heir: Hashable) -> None:
        """Drop the claim of `key` in favour of the claim of `heir`."""
        self.drop(key, heir=self._claims.get(heir))

    def claims(self) -> dict[Hashable, Claim]:
        """Return all claims by key, as a new dictionary."""
        return self._claims.all()

    def claim_of(self, key: Hashable) -> Claim | None:
        """Return the claim of a key, or None."""
        return self._claims.get(key)

    def __len__(self) -> int:
        return len(self._claims)

    # --- offers ---------------------------------------------------------------------------------

    def offer(self) -> list[int]:
        """Offer the freed capacity; return its rows."""
        self._gains_offered, self._offered = self.gains, None
        least, self._least = self._least, {}
        return list(least)

    def offered(self) -> Self:
        """Return a ledger with the least free amounts since the last `offer`.

        The result is for immediate queries only, see `without`. Its `gains` do not change.
        """
        if not self._least:
            return self
        if self._offered is None or self._offered[:2] != (self.version, self.gains):
            offered = copy.copy(self)
            offered._columns = self._columns.capped(self._least)
            offered.gains, offered._offered = self._gains_offered, None
            self._offered = self.version, self.gains, offered
        return self._offered[2]

    def _gain(self, row: int | None, before: Amounts | None) -> None:
        """Record that a row may have gained; `before` has its earlier free amounts, if any."""
        self.gains += 1
        if row is not None:
            now = np.zeros(0, dtype=np.int64) if before is None else before
            least = self._least.get(row, now)
            lines = min(len(least), len(now))
            self._least[row] = np.minimum(least[:lines], now[:lines])

    # --- questions --------------------------------------------------------------------------

    def free(self, resources: Collection[str], *, ignoring: Collection[Hashable] = ()) -> Amounts:
        """Return the free amounts without the `ignoring` claims, shape (resources, rows)."""
        free = self._columns.free(resources, len(self.nodes))
        known = (claim for key in set(ignoring) if (claim := self._claims.get(key)))
        for claim in self._staying(known):
            row = self._row.get(claim.node)
            if row is not None:
                for line, resource in enumerate(resources):
                    if resource in self._columns.resources:
                        free[line, row] += min(claim.requests.get(resource, 0), LARGEST)
        if not any(name.startswith(COUNTS) for name in resources):
            return free
        return with_cards(free, resources, lambda: self.cards(ignoring=ignoring))

    def allocatable(self, resources: Collection[str]) -> Amounts:
        """Return the allocatable amounts, shape (resources, rows)."""
        amounts = self._columns.allocatable(resources, len(self.nodes))
        if not any(name.startswith(COUNTS) for name in resources):
            return amounts
        everything = self.allocatable
        return with_cards(amounts, resources, lambda: self._cards(everything))

    def cards(self, *, ignoring: Collection[Hashable] = ()) -> Cards:
        """Return the shareable cards without the `ignoring` claims."""
        return self._cards(partial(self.free, ignoring=ignoring))

    @property
    def withholds(self) -> bool:
        """Whether there may be freed capacity that is not offered yet."""
        return bool(self._least)

    @property
    def resources(self) -> Collection[str]:
        """The names of the resources that nodes have."""
        return self._columns.resources

    @property
    def extended(self) -> list[str]:
        """The names of the extended resources that nodes have, such as GPUs, without slots."""
        return [name for name in self.resources if "/" in name and not name.startswith(SLOT)]

    @property
    def main_resources(self) -> tuple[str, ...]:
        """The resources that reports on usage list: CPU, memory and the extended resources."""
        return (CPU, MEMORY, *self.extended)

    @property
    def slots(self) -> int:
        """The largest number of slots that a node has."""
        resources = [name for name in self._columns.resources if name.startswith(SLOT)]
        return slots_among(resources) if resources else 0

    def _cards(self, free: Read) -> Cards:
        return Cards(self.slots, free=free, allocatable=self.allocatable)

    def scored_load(self) -> Amounts:
        """Return claimed CPU and memory for scores, shape (2, rows); every pod counts."""
        return self._columns.scored_load(len(self.nodes))

    def eligible(self, constraints: Constraints) -> Mask:
        """Return a read-only mask of the eligible rows for a pod, regardless of free capacity."""
        mask = self._eligible.judge(constraints, self.nodes, width=self._columns.width).mask
        possible: Mask = mask[: len(self.nodes)]
        if constraints.apart:
            possible = possible & self._topology.alone(HOSTNAME, self.nodes)
        if constraints.together:
            possible = possible & (self.domains((HOSTNAME,))[0] >= 0)
        return possible

    def excluded(self, constraints: Constraints) -> Mapping[Obstacle, int]:
        """Return the number of nodes that each obstacle excludes; a node counts for its first."""
        return self._eligible.judge(constraints, self.nodes, width=self._columns.width).counts

    def rows_with_any(
        self, exclusive: Iterable[Exclusive], *, ignoring: Collection[Hashable] = ()
    ) -> list[int]:
        """Return the rows where a claim, except the `ignoring` claims, has any of `exclusive`."""
        claims = self._staying(self._claims.with_any(exclusive, ignoring=ignoring))
        rows = {self._row.get(claim.node) for claim in claims}
        return sorted(row for row in rows if row is not None)

    def name_order(self) -> NDArray[np.int64]:
        """Return the index of each row in the order of node names, which breaks ties."""
        if self._name_order is None:
            rows = sorted(self._row.values(), key=lambda row: _name(self.nodes[row]))
            self._name_order = np.zeros(len(self.nodes), dtype=np.int64)
            self._name_order[rows] = np.arange(len(rows))
        return self._name_order

    def claims_on(
        self, nodes: Iterable[str], *, ignoring: Collection[Hashable] = ()
    ) -> list[Claim]:
        """Return the claims on some nodes, except the `ignoring` claims."""
        on = (claim for node in nodes for claim in self._claims.on(node, ignoring=ignoring))
        return list(self._staying(on))

    def would_free(self, leaves: Leaves) -> bool:
        """Return whether any claim is in a leaving tier."""
        return self._tiers.count(leaves) > 0

    def without(self, leaves: Leaves) -> Self:
        """Return the ledger without the claims of some tiers, for immediate queries only.

        The result shares claims and nodes with this ledger: do not store or change it.
        """
        result = copy.copy(self)
        result._columns = self._columns.less(self._tiers.leaving(leaves))
        result._leaves = leaves
        return result

    def rows_below(self, priority: int) -> Sequence[int]:
        """Return the rows where a pod of this priority may preempt pods, the fewest pods first.

        Pods of gangs do not count, and a row with a gang member below the priority is skipped:
        kube-scheduler might preempt the member instead.
        """
        lower = below(priority)
        if not self.would_free(lambda tier: lower(tier) and not tier.of_job):
            return ()
        pods = self._tiers.claimed(PODS, lambda tier: lower(tier) and not tier.of_job)
        gangs = self._tiers.claimed(PODS, lambda tier: lower(tier) and tier.of_job)
        pods[: len(gangs)] *= gangs[: len(pods)] == 0
        rows = np.flatnonzero(pods)
        return [int(row) for row in rows[np.argsort(pods[rows], kind="stable")]]

    def after_preemption(self, priority: int, rows: Sequence[int]) -> Self:
        """Return the ledger without the pods below a priority on some rows, except gang members.

        The result is for immediate queries only, see `without`.
        """
        lower = below(priority)
        result = self.without(lambda tier: lower(tier) and not tier.of_job)
        others = np.setdiff1d(np.arange(self._columns.width), rows)
        result._columns.copy_rows(self._columns, others)
        return result

    def closing(self, places: Iterable[Place]) -> Self:
        """Return the ledger as if all time of some slots were claimed.

        The result is for immediate queries only, see `without`.
        """
        rows = [(row, slot) for node, slot in places if (row := self._row.get(node)) is not None]
        if not rows:
            return self
        result = copy.copy(self)
        result._columns = self._columns.copy()
        for row, slot in rows:
            result._columns.book_one(row, resource_of(slot), UNITS, +1)
        return result

    def domains(self, keys: tuple[str, ...]) -> tuple[Domains, ...]:
        """Return the topology domain of each row on each level of labels, the widest first."""
        return self._topology.domains(keys, self.nodes) if keys else ()

    # --- private ----------------------------------------------------------------------------

    def _add(self, keys: Sequence[Hashable], claim: Claim) -> None:
        """Add one claim under several keys that have none."""
        self.version += 1
        for key in keys:
            self._claims.add(key, claim)
        self._tiers.count_claim(claim, len(keys))
        row = self._row.get(claim.node)
        if row is not None:
            self._book(row, claim, len(keys))

    def _book(self, row: int, claim: Claim, times: int) -> None:
        self._columns.book(row, claim.requests, times)
        self._tiers.book(row, claim, times)

    def _staying(self, claims: Iterable[Claim]) -> Iterator[Claim]:
        leaves = self._leaves  # set in a ledger without some tiers
        return (claim for claim in claims if leaves is None or not leaves(tier_of(claim)))

    def _count(self, resources: Collection[str]) -> None:
        """Count resources that no node had before, in existing claims too."""
        self._tiers.learn(resources)
        claims = self._claims.all().values() if resources else ()
        for claim in claims:
            row = self._row.get(claim.node)
            for resource in resources:
                if row is not None:
                    self._columns.book_one(row, resource, claim.requests.get(resource, 0), +1)
                    self._tiers.book_one(row, resource, claim)

    def _new_row(self, name: str) -> int:
        if self._unused_rows:
            row = self._unused_rows.pop()
        else:
            row = len(self.nodes)
            self.nodes.append(None)
            if row >= self._columns.width:
                self._columns.widen()
                self._eligible.widen(self._columns.width)
        self._row[name] = row
        self._name_order = None
        return row


def _eligibility_fields(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that decide whether it is eligible for a pod."""
    return node.labels, node.taints, node.unschedulable


def _refusal_fields(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that decide whether a job fits, or appear in a refusal."""
    return _eligibility_fields(node), node.allocatable, node.troubles


def _name(node: Node | None) -> str:
    return node.name if node else ""
