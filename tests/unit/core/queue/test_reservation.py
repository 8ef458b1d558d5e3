"""Room that is kept for a job, and what it leaves to the others."""

import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.queue.occupants import Need, Occupants
from kfext.core.queue.reservation import Reservation, keep
from tests.unit.core.queue.cluster import GPU, Use, cluster

FOUR = Need({GPU: 4})


def kept(
    on: Ledger,
    needs: Mapping[str, int],
    *,
    ends: Mapping[str, float] | None = None,
    ignoring: Collection[Hashable] = (),
) -> Reservation:
    """The reservation of four pods that will take so many GPUs of each node."""
    wanted = {name: Need({GPU: count}) for name, count in needs.items()}
    there = Occupants(wanted, on, ignoring=ignoring)
    return keep("head", there, needs=wanted, total=FOUR, ends=ends or {})


def left_alone(of: Reservation) -> dict[str, int]:
    """GPUs that younger jobs must leave alone, by node."""
    return {claim.node: claim.requests[GPU] for claim in of.claims.values()}


@dataclass(frozen=True)
class Case:
    """Nodes have 8 GPUs each. `kept` has the nodes where some of them are kept."""

    use: Use
    needs: Mapping[str, int]
    waits_for: tuple[str, ...]
    kept: Mapping[str, int]
    ends: Mapping[str, float] = field(default_factory=dict)
    until: float = math.inf
    to_free: float = 0.0


CASES: dict[str, Case] = {
    "all is free: nobody is waited for": Case(
        use={"a": {"x": 2}}, needs={"a": 4}, waits_for=(), kept={"a": 4}
    ),
    "who is known to end is waited for before who is smaller": Case(
        use={"a": {"x": 3, "y": 5}},
        needs={"a": 3},
        ends={"y": 70.0},
        waits_for=("y",),
        kept={},
        until=70.0,
        to_free=1.25,
    ),
    "the earliest of those that are known to end": Case(
        use={"a": {"x": 4, "y": 4}},
        needs={"a": 4},
        ends={"x": 90.0, "y": 70.0},
        waits_for=("y",),
        kept={},
        until=70.0,
        to_free=1.0,
    ),
    "else the smallest": Case(
        use={"a": {"x": 6, "y": 2}}, needs={"a": 2}, waits_for=("y",), kept={}, to_free=0.5
    ),
    "nobody is waited for whose room is to spare": Case(
        use={"a": {"x": 1, "y": 5, "z": 2}},
        needs={"a": 5},
        waits_for=("y",),
        kept={},
        to_free=1.25,
    ),
    "of those to spare the largest is spared first": Case(
        use={"a": {"x": 1, "y": 2, "z": 3, "": 2}},
        needs={"a": 4},
        waits_for=("x", "z"),
        kept={},
        to_free=1.0,
    ),
    "what is free already is kept, what comes free may be used until then": Case(
        use={"a": {"x": 3, "": 3}}, needs={"a": 4}, waits_for=("x",), kept={"a": 1}, to_free=0.75
    ),
    "a job that is on two of the nodes is one job": Case(
        use={"a": {"x": 8}, "b": {"x": 6, "y": 2}},
        needs={"a": 2, "b": 2},
        waits_for=("x",),
        kept={},
        to_free=3.5,
    ),
    "until the last of them has ended": Case(
        use={"a": {"x": 8}, "b": {"y": 8}},
        needs={"a": 2, "b": 2},
        ends={"x": 50.0, "y": 70.0},
        waits_for=("x", "y"),
        kept={},
        until=70.0,
        to_free=4.0,
    ),
    "one of them has no known end": Case(
        use={"a": {"x": 8}, "b": {"y": 8}},
        needs={"a": 2, "b": 2},
        ends={"x": 50.0},
        waits_for=("x", "y"),
        kept={},
        to_free=4.0,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_for_whom_is_waited_and_what_is_kept_meanwhile(case: Case) -> None:
    found = kept(cluster(case.use), case.needs, ends=case.ends)
    assert found.job_uid == "head"
    assert found.nodes == tuple(sorted(case.needs))
    assert found.waits_for == case.waits_for
    assert left_alone(found) == case.kept
    assert (found.until, found.to_free) == (case.until, case.to_free)
    assert all(claim.job == "head" for claim in found.claims.values())


def test_the_claims_of_the_reservation_before_do_not_count() -> None:
    on = cluster({"a": {"x": 5}})
    on.claim("before", Claim("a", {GPU: 3}, job="other head"))
    assert kept(on, {"a": 3}, ignoring=["before"]).waits_for == ()
    assert kept(on, {"a": 4}, ignoring=["before"]).waits_for == ("x",)
    assert kept(on, {"a": 3}).waits_for == ("other head",)


@pytest.mark.parametrize("pods", [1, 5000])
def test_amounts_beyond_64_bits_are_cut(pods: int) -> None:
    on = cluster({"a": {"": 1}})
    for number in range(pods):
        on.claim(("pod", number), Claim("a", {GPU: 2**64}, job="x"))
    found = kept(on, {"a": 8})
    assert found.waits_for == ("x",)
    assert math.isfinite(found.to_free)


uses = st.dictionaries(
    st.sampled_from("ab"),
    st.dictionaries(st.sampled_from(["", *"wxyz"]), st.integers(1, 3), max_size=4),
    min_size=1,
)


@given(
    use=uses,
    wanted=st.dictionaries(st.sampled_from("ab"), st.integers(1, 12), min_size=1),
    ends=st.dictionaries(st.sampled_from("wxyz"), st.floats(0, 99)),
)
def test_those_waited_for_free_what_is_missing_and_none_of_them_is_too_many(
    use: Use, wanted: dict[str, int], ends: dict[str, float]
) -> None:
    on = cluster(use, gpus=12)
    # Only what the end of all jobs would free is ever asked for.
    needs = {name: min(wanted.get(name, 1), 12 - held.get("", 0)) for name, held in use.items()}
    found = kept(on, needs, ends=ends)

    def has_room(without: Collection[str]) -> bool:
        left = {
            name: {uid: of[uid] for uid in of if uid not in without} for name, of in use.items()
        }
        free = cluster(left, gpus=12)
        return all(free.free([GPU])[0, free.row(name)] >= count for name, count in needs.items())

    assert has_room(found.waits_for)
    for spared in found.waits_for:
        assert not has_room([uid for uid in found.waits_for if uid != spared])


LETS_IN: dict[str, tuple[float, float | None, bool]] = {
    "a job that ends before": (100.0, 90.0, True),
    "a job that ends at the same time": (100.0, 100.0, True),
    "a job that ends later": (100.0, 101.0, False),
    "a job of which nobody knows when it ends": (100.0, None, False),
    "nobody, when nobody knows what the head waits for": (math.inf, 90.0, False),
}


@pytest.mark.parametrize(("until", "ends", "want"), LETS_IN.values(), ids=LETS_IN.keys())
def test_D5_who_may_start_in_kept_room(until: float, ends: float | None, want: bool) -> None:
    kept_room = Reservation("head", ("a",), ("x",), until, 1.0, {})
    assert kept_room.lets_in(ends) is want
