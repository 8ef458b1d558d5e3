"""Clusters to ask the solver about, and what it answered."""

from collections.abc import Mapping, Sequence

from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.division import DEFAULT, Weights
from kfext.core.placement.place import place
from kfext.model.plan import Assignment
from kfext.model.verdict import Verdict
from tests.builders import JobBuilder, ledger, node

GPU = "nvidia.com/gpu"


def nodes_of(found: Assignment | Verdict) -> list[str]:
    """The node of each member in rank order."""
    assert not isinstance(found, Verdict), found
    return list(found.values())


def verdict_of(found: Assignment | Verdict) -> Verdict:
    assert isinstance(found, Verdict), found
    return found


def placed(
    of: JobBuilder, on: Ledger, *, one_node: bool = False, weights: Weights = DEFAULT
) -> list[str]:
    return nodes_of(place(of.members(), on, one_node=one_node, weights=weights))


def gpus(room: Mapping[str, int]) -> Ledger:
    return ledger(*(node(name, gpus=count) for name, count in room.items()))


def numbered(room: Sequence[int]) -> Ledger:
    return gpus({f"n{number}": count for number, count in enumerate(room)})
