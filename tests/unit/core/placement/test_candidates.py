"""Which nodes a gang may use: `place`, `still_fits` and `reserve` give the same answer."""

from typing import Any

import pytest

from kfext.core.placement.gang import Limits, members_of
from kfext.core.placement.place import place, still_fits
from kfext.core.queue.reservation import reserve
from kfext.core.settings.table import TABLE
from kfext.model.limit import Awaited, Excluded, KeptAnyway, Limit, MaxNodes
from kfext.model.verdict import Verdict
from tests.builders import job, limits
from tests.unit.core.queue.cluster import cluster

FREE: dict[str, dict[str, int]] = {"a": {}, "b": {}}
FULL = {"a": {"x": 8}, "b": {"y": 8}}
GANGS: dict[type[Limit], tuple[Limit, int]] = {
    Awaited: (Awaited(frozenset("a")), 1),
    KeptAnyway: (KeptAnyway(frozenset("b")), 1),
    Excluded: (Excluded(frozenset("a")), 1),
    MaxNodes: (MaxNodes(1), 2),
}
"""A limit of each kind, and the size of a gang that would break it on nodes a and b."""


def answers(number: int, within: Limits) -> dict[str, Any]:
    """The answer of each function for a gang of one or two pods, which need a node each."""
    members = members_of(job(uid="head").worker(number, gpus=5).build())
    placed = place(members, cluster(FREE, gpus=8), within)
    planned = {member.key: home for member, home in zip(members, "ab", strict=False)}
    reservation = reserve("head", members, cluster(FULL, gpus=8), within, ends={})
    return {
        "place": None if isinstance(placed, Verdict) else set(placed.values()),
        "still_fits": still_fits(members, cluster(FREE, gpus=8), within, assignment=planned),
        "reserve": reservation and set(reservation.nodes),
    }


@pytest.mark.parametrize("kind", GANGS, ids=lambda kind: kind.__name__)
def test_every_limit_changes_the_answers_of_all_three_functions(kind: type[Limit]) -> None:
    limit, number = GANGS[kind]
    nothing: tuple[Any, ...] = (frozenset(), (), (), None)
    without, within = (answers(number, Limits((*given,), *nothing)) for given in ((), (limit,)))
    assert without == {
        "place": set("ab"[:number]),
        "still_fits": True,
        "reserve": set("ab"[:number]),
    }
    assert {name for name, answer in within.items() if answer == without[name]} == set()


def test_the_cases_have_every_kind_of_limit_also_of_settings() -> None:
    assert {kind.__name__ for kind in Limit.__subclasses__()} == {kind.__name__ for kind in GANGS}
    of_settings = {
        type(row.limit(row.parse(row.example))) for row in TABLE.values() if row.limit is not None
    }
    assert of_settings <= GANGS.keys()


def test_a_node_that_no_limit_excludes_is_allowed() -> None:
    assert answers(1, limits())["place"] == {"a"}
