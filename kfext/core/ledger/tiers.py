"""What the claims of each kind take together, so that some can be left out without a look at all.

Questions such as "would it fit if all training jobs ended?" or "... if pods of lower priority were
evicted?" are asked for every waiting job, over all claims of the cluster.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.columns import Columns


class Tier(NamedTuple):
    """What claims have in common that leave together.

    `of_job`: whether they are of training jobs, or of GPUs that are reserved for their parts.
    `priority`: that of their pods, None if there is no pod that could be preempted.
    """

    of_job: bool
    priority: int | None


Leaves = Callable[[Tier], bool]
"""Whether the claims of a tier leave."""


def below(priority: int) -> Leaves:
    """Return which tiers pods of a priority may preempt."""
    return lambda tier: tier.priority is not None and tier.priority < priority


def tier_of(claim: Claim) -> Tier:
    """Return the tier of a claim."""
    return Tier(bool(claim.job) or claim.reserves is not None, claim.priority)


class Tiers:
    """The claimed amounts by tier; there are as many as priorities in use, twice."""

    def __init__(self) -> None:
        self._columns: dict[Tier, Columns] = {}
        self._claims: dict[Tier, int] = {}
        self._resources: dict[str, None] = {}

    def learn(self, resources: Iterable[str]) -> None:
        """Count these resources from now on."""
        self._resources.update(dict.fromkeys(resources))
        for columns in self._columns.values():
            columns.learn(self._resources)

    def count(self, leaves: Leaves) -> int:
        """Return how many claims would leave."""
        return sum(number for tier, number in self._claims.items() if leaves(tier))

    def note(self, claim: Claim, times: int) -> None:
        """Take in that there are so many more of such a claim, or fewer."""
        tier = tier_of(claim)
        self._claims[tier] = self._claims.get(tier, 0) + times
        if not self._claims[tier]:
            del self._claims[tier]
            self._columns.pop(tier, None)

    def book(self, row: int, claim: Claim, times: int) -> None:
        """Add what so many of a claim take of a row; a negative number subtracts."""
        self._columns_of(claim, row).book(row, claim.requests, times)

    def book_one(self, row: int, resource: str, claim: Claim) -> None:
        """Add what a claim takes of one resource of a row."""
        number = claim.requests.get(resource, 0)
        self._columns_of(claim, row).book_one(row, resource, number, +1)

    def _columns_of(self, claim: Claim, row: int) -> Columns:
        tier = tier_of(claim)
        columns = self._columns.get(tier)
        if columns is None:
            columns = self._columns[tier] = Columns()
            columns.learn(self._resources)
        while columns.width <= row:
            columns.widen()
        return columns

    def clear(self, row: int) -> None:
        """Forget everything of a row."""
        for columns in self._columns.values():
            if row < columns.width:
                columns.clear(row)

    def leaving(self, leaves: Leaves) -> list[Columns]:
        """Return what the claims take that would leave."""
        return [columns for tier, columns in self._columns.items() if leaves(tier)]
