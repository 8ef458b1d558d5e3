"""For which jobs a gang waits that needs GPUs, whole ones or parts of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.core.placement.gang import Member
from kfext.core.queue.leavers import leavers
from kfext.core.queue.occupants import Need, Occupants
from kfext.model.gpu_share import CardNeed
from kfext.names import NATIVE_GPU
from tests.unit.core.queue.shared import Floor, part, whole


@dataclass(frozen=True)
class Case:
    """A node of two cards. `there`: who is there, in which slot if it matters."""

    there: Mapping[str, tuple[list[Member], int | None]]
    need: Need
    waits_for: Sequence[str]
    ends: Mapping[str, float] = field(default_factory=dict)


GPU, TWO = Need({NATIVE_GPU: 1}), Need({NATIVE_GPU: 2})
SMALL, BIG = part("0.2"), part("0.5")
CASES: dict[str, Case] = {
    "a GPU comes free with all that share it": Case(
        {"a": (SMALL, 0), "b": (SMALL, 0), "x": (whole(1), None)}, GPU, ("a", "b")
    ),
    "of two cards, that with less on it": Case(
        {"a": (BIG, 0), "b": (SMALL, 1), "c": (SMALL, 1), "d": (part("0.4"), 0)}, GPU, ("b", "c")
    ),
    "of two cards, that of which the end is known": Case(
        {"a": (BIG, 0), "b": (SMALL, 1)}, GPU, ("a",), {"a": 70.0}
    ),
    "both, if it needs both": Case({"a": (BIG, 0), "b": (SMALL, 1)}, TWO, ("a", "b")),
    "a job with parts of both frees two at once": Case(
        {"a": (part("0.5", replicas=2, priority="high"), None)}, TWO, ("a",)
    ),
    "a part, of the smallest that leaves enough": Case(
        {"a": (part("0.9"), 0), "b": (part("0.4"), 1), "c": (BIG, 1)},
        Need({}, (CardNeed(50),)),
        ("b",),
    ),
    "a part with high priority, of the one that has it": Case(
        {"a": (part("0.2", priority="high"), 0), "b": (SMALL, 0), "x": (whole(1), None)},
        Need({}, (CardNeed(20, high=True),)),
        ("a",),
    ),
    "a part of low priority, of the one of high priority": Case(
        {"a": (part("0.2", priority="high"), 0), "b": (SMALL, 0), "x": (whole(1), None)},
        Need({}, (CardNeed(20, idle=200),)),
        ("a",),
    ),
    "memory, of the one that has most": Case(
        {"a": (part("0.1", memory="12Gi"), 0), "b": (SMALL, 0), "x": (whole(1), None)},
        Need({}, (CardNeed(10, memory=9000),)),
        ("a",),
    ),
    "two parts are on two cards": Case(
        {"a": (SMALL, 0), "b": (part("0.9"), 1)}, Need({}, (CardNeed(50), CardNeed(50))), ("b",)
    ),
    "a part beside a whole GPU": Case(
        {"a": (SMALL, 0), "x": (whole(1), None)},
        Need({NATIVE_GPU: 1}, (CardNeed(50),)),
        ("x",),
    ),
    "nobody, where there is room": Case({"a": (SMALL, 0)}, GPU, ()),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_D5_a_gang_waits_for_the_fewest_that_leave_it_its_cards(case: Case) -> None:
    floor = Floor()
    for uid, (wanted, slot) in case.there.items():
        assert floor.starts(uid, wanted, slot=slot)
    on = Occupants({"n": case.need}, floor.ledger)
    found = leavers(on, {"n": case.need}, total=case.need, ends=case.ends)
    assert sorted(found) == sorted(case.waits_for)
    assert on.holds("n", case.need)


jobs = st.one_of(
    st.builds(part, st.sampled_from(["0.2", "0.5"]), priority=st.sampled_from(["low", "high"])),
    st.builds(whole, st.integers(1, 2)),
)
needs = st.builds(
    Need,
    st.sampled_from([{}, {NATIVE_GPU: 1}]),
    st.lists(st.builds(CardNeed, st.integers(10, 100)), min_size=1, max_size=1).map(tuple),
)


@settings(deadline=None)
@given(there=st.lists(jobs, max_size=6), need=needs, ended=st.sets(st.integers(0, 5)))
def test_none_of_those_that_leave_is_too_many(
    there: list[list[Member]], need: Need, ended: set[int]
) -> None:
    floor = Floor()
    for number, one in enumerate(there):
        floor.starts(f"job-{number}", one)
    ends = {f"job-{number}": float(number) for number in ended}
    on = Occupants({"n": need}, floor.ledger)
    found = leavers(on, {"n": need}, total=need, ends=ends)
    assert on.holds("n", need)
    for uid in found:
        on.stay(uid)
        assert not on.holds("n", need)
        on.leave(uid)
