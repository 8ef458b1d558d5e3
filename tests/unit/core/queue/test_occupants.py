"""The capacity that jobs hold, which of them must end for a gang, and its reservation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kfext.core.lifecycle.cards import slots_for
from kfext.core.placement.gang import Member
from kfext.core.placement.place import place
from kfext.core.queue.occupants import Need, Occupants, leavers, need_of
from kfext.core.queue.reservation import reserve
from kfext.model.gpu import CardNeed, CardsFor
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from kfext.names import NATIVE_GPU
from tests.builders import job, limits
from tests.unit.core.queue.shared import Floor, part, whole

HALF, HIGH = CardNeed(50), CardNeed(20, high=True)
NEEDS: dict[str, tuple[dict[str, int], Need]] = {
    "no request of another resource": ({"cpu": 0, "pods": 1}, Need({"pods": 1})),
    "whole GPUs are amounts": ({NATIVE_GPU: 2}, Need({NATIVE_GPU: 2})),
    "each part is a separate need": ({HALF.name: 2}, Need({}, (HALF, HALF))),
    "the resource that counts parts with whole GPUs adds no need": (
        {HALF.name: 1, HIGH.name: 1, CardsFor(HALF, whole=True).name: 2},
        Need({}, (HALF, HIGH)),
    ),
}


@pytest.mark.parametrize(("amounts", "want"), NEEDS.values(), ids=NEEDS)
def test_the_needs_of_a_gang_on_a_node(amounts: dict[str, int], want: Need) -> None:
    assert need_of(amounts.keys(), amounts.values()) == want


def test_whole_gpus_and_parts_of_them_are_one_measure() -> None:
    assert Need({NATIVE_GPU: 2}, (HALF, HIGH)).gpu_units == 270
    floor = Floor()
    floor.starts("a", part("0.5"))
    floor.starts("b", whole(1))
    occupants = Occupants({"n": Need({NATIVE_GPU: 2})}, floor.ledger)
    assert [occupants.size(uid, Need({NATIVE_GPU: 2})) for uid in "ab"] == [0.25, 0.5]


HELPS: dict[str, tuple[Need, dict[str, bool]]] = {
    "of a GPU, a job with a GPU or a part": (
        Need({NATIVE_GPU: 1}),
        {"whole": True, "part": True, "idle": False},
    ),
    "of a card, a job with a GPU or a part": (
        Need({}, (CardNeed(60), CardNeed(60))),
        {"whole": True, "part": True, "idle": False},
    ),
    "of CPU, a job with CPU": (
        Need({"cpu": 64_000}),
        {"whole": False, "part": False, "idle": True},
    ),
    "no job, where nothing is short": (
        Need({"cpu": 1}, (HALF,)),
        {"whole": False, "part": False, "idle": False},
    ),
}


@pytest.mark.parametrize(("need", "want"), HELPS.values(), ids=HELPS)
def test_which_jobs_free_a_short_resource_when_they_end(need: Need, want: dict[str, bool]) -> None:
    floor = Floor()
    floor.starts("whole", whole(1))
    floor.starts("part", part("0.5"))
    floor.starts("idle", job().worker(1, cpu="1").members())
    occupants = Occupants({"n": need}, floor.ledger)
    assert {uid: occupants.helps(uid, "n", need) for uid in want} == want


def test_the_gpu_of_a_slot_is_freed_with_its_last_sharer() -> None:
    floor = Floor(cards=1)
    floor.starts("a", part("0.2"))
    floor.starts("b", part("0.3"))
    need = Need({NATIVE_GPU: 1})
    occupants = Occupants({"n": need}, floor.ledger)
    occupants.leave("a")
    assert (occupants.holds("n", need), occupants.emptied("n")) == (False, [])
    occupants.leave("b")
    assert (occupants.holds("n", need), occupants.emptied("n")) == (True, [0])
    assert not occupants.holds("n", need, already=True)
    occupants.stay("a")
    assert not occupants.holds("n", need)


def test_a_gpu_without_sharers_is_about_to_be_released() -> None:
    floor = Floor(cards=1)
    floor.starts("a", part("0.2"))
    floor.ledger.drop(("a", ReplicaKey("worker", 0)))
    need = Need({NATIVE_GPU: 1})
    occupants = Occupants({"n": need}, floor.ledger)
    assert (occupants.holds("n", need), occupants.holds("n", need, already=True)) == (True, False)


any_jobs = st.one_of(
    st.builds(part, st.sampled_from(["0.2", "0.5"]), replicas=st.integers(1, 2)),
    st.builds(part, st.just("0.5"), priority=st.just("high"), memory=st.just("2Gi")),
    st.builds(whole, st.integers(1, 2)),
)


@settings(deadline=None)
@given(there=st.lists(any_jobs, max_size=6), data=st.data())
def test_the_capacity_after_some_jobs_end_is_that_of_the_ledger_without_them(
    there: Sequence[list[Member]], data: st.DataObject
) -> None:
    floor = Floor("a", "b")
    for number, members in enumerate(there):
        floor.starts(f"job-{number}", members)
    needs = {node: Need({NATIVE_GPU: 1, "cpu": 1}, (HALF,)) for node in "ab"}
    occupants = Occupants(needs, floor.ledger)
    before = {node: amounts.copy() for node, amounts in occupants.now.items()}
    gone = data.draw(
        st.lists(st.sampled_from(sorted(occupants.held)), unique=True)
        if occupants.held
        else st.just([])
    )
    for uid in gone:
        occupants.leave(uid)
    left = {node: amounts.copy() for node, amounts in occupants.now.items()}
    for uid in gone:
        occupants.stay(uid)
    assert all(np.array_equal(occupants.now[node], before[node]) for node in "ab")
    floor.ends(*gone)
    then = Occupants(needs, floor.ledger)
    assert all(np.array_equal(then.free[node], left[node]) for node in "ab")


@dataclass(frozen=True)
class Leaving:
    """A node of two cards. `there`: the jobs there, with their slots if they matter."""

    there: Mapping[str, tuple[list[Member], int | None]]
    need: Need
    waits_for: Sequence[str]
    ends: Mapping[str, float] = field(default_factory=dict)


GPU, TWO = Need({NATIVE_GPU: 1}), Need({NATIVE_GPU: 2})
SMALL, BIG = part("0.2"), part("0.5")
LEAVING: dict[str, Leaving] = {
    "a GPU is freed with all of its sharers": Leaving(
        {"a": (SMALL, 0), "b": (SMALL, 0), "x": (whole(1), None)}, GPU, ("a", "b")
    ),
    "of two cards, the card with fewer parts": Leaving(
        {"a": (BIG, 0), "b": (SMALL, 1), "c": (SMALL, 1), "d": (part("0.4"), 0)}, GPU, ("b", "c")
    ),
    "of two cards, the card with the known end": Leaving(
        {"a": (BIG, 0), "b": (SMALL, 1)}, GPU, ("a",), {"a": 70.0}
    ),
    "both cards, if it needs both": Leaving({"a": (BIG, 0), "b": (SMALL, 1)}, TWO, ("a", "b")),
    "a job with parts of both frees two at once": Leaving(
        {"a": (part("0.5", replicas=2, priority="high"), None)}, TWO, ("a",)
    ),
    "a part, of the smallest sufficient job": Leaving(
        {"a": (part("0.9"), 0), "b": (part("0.4"), 1), "c": (BIG, 1)},
        Need({}, (CardNeed(50),)),
        ("b",),
    ),
    "a part with high priority, of the job that has it": Leaving(
        {"a": (part("0.2", priority="high"), 0), "b": (SMALL, 0), "x": (whole(1), None)},
        Need({}, (CardNeed(20, high=True),)),
        ("a",),
    ),
    "a part of low priority, of the job of high priority": Leaving(
        {"a": (part("0.2", priority="high"), 0), "b": (SMALL, 0), "x": (whole(1), None)},
        Need({}, (CardNeed(20, idle=200),)),
        ("a",),
    ),
    "memory, of the job that has most": Leaving(
        {"a": (part("0.1", memory="12Gi"), 0), "b": (SMALL, 0), "x": (whole(1), None)},
        Need({}, (CardNeed(10, memory=9000),)),
        ("a",),
    ),
    "two parts are on two cards": Leaving(
        {"a": (SMALL, 0), "b": (part("0.9"), 1)}, Need({}, (CardNeed(50), CardNeed(50))), ("b",)
    ),
    "a part beside a whole GPU": Leaving(
        {"a": (SMALL, 0), "x": (whole(1), None)},
        Need({NATIVE_GPU: 1}, (CardNeed(50),)),
        ("x",),
    ),
    "no job, where there is capacity": Leaving({"a": (SMALL, 0)}, GPU, ()),
}


@pytest.mark.parametrize("case", LEAVING.values(), ids=LEAVING)
def test_D5_a_gang_waits_for_the_fewest_jobs_that_free_its_cards(case: Leaving) -> None:
    floor = Floor()
    for uid, (wanted, slot) in case.there.items():
        assert floor.starts(uid, wanted, slot=slot)
    occupants = Occupants({"n": case.need}, floor.ledger)
    result = leavers(occupants, {"n": case.need}, total=case.need, ends=case.ends)
    assert sorted(result) == sorted(case.waits_for)
    assert occupants.holds("n", case.need)


sharers = st.one_of(
    st.builds(part, st.sampled_from(["0.2", "0.5"]), priority=st.sampled_from(["low", "high"])),
    st.builds(whole, st.integers(1, 2)),
)
needs = st.builds(
    Need,
    st.sampled_from([{}, {NATIVE_GPU: 1}]),
    st.lists(st.builds(CardNeed, st.integers(10, 100)), min_size=1, max_size=1).map(tuple),
)


@settings(deadline=None)
@given(there=st.lists(sharers, max_size=6), need=needs, ended=st.sets(st.integers(0, 5)))
def test_each_awaited_job_is_necessary(
    there: list[list[Member]], need: Need, ended: set[int]
) -> None:
    floor = Floor()
    for number, members in enumerate(there):
        floor.starts(f"job-{number}", members)
    ends = {f"job-{number}": float(number) for number in ended}
    occupants = Occupants({"n": need}, floor.ledger)
    result = leavers(occupants, {"n": need}, total=need, ends=ends)
    assert occupants.holds("n", need)
    for uid in result:
        occupants.stay(uid)
        assert not occupants.holds("n", need)
        occupants.leave(uid)


shares = st.builds(
    part,
    st.sampled_from(["0.2", "0.5", "0.6", "0.9"]),
    replicas=st.integers(1, 2),
    priority=st.sampled_from(["low", "high"]),
    memory=st.sampled_from(["1Gi", "6Gi", "12Gi"]),
    min_share=st.sampled_from(["0", "0.2", "0.5"]),
)
unsized = st.builds(
    part,
    st.sampled_from(["0.2", "0.5", "0.6", "0.9"]),
    replicas=st.integers(1, 2),
    priority=st.sampled_from(["low", "high"]),
)
small = st.builds(
    part, st.sampled_from(["0.05", "0.1", "0.3"]), priority=st.sampled_from(["low", "high"])
)
others = st.one_of(shares, unsized, st.builds(whole, st.integers(1, 2), replicas=st.integers(1, 2)))


@settings(max_examples=300, deadline=None)
@given(
    nodes=st.sampled_from(["a", "ab"]),
    there=st.lists(others, min_size=1, max_size=6),
    head=others,
    young=st.lists(others | small, max_size=6),
)
def test_D5_no_job_takes_the_cards_for_which_the_head_waits(
    nodes: str, there: list[list[Member]], head: list[Member], young: list[list[Member]]
) -> None:
    floor = Floor(*nodes)
    for number, members in enumerate(there):
        floor.starts(f"old-{number}", members)
    if fits(floor, head):
        return
    reservation = floor.reserve(head)
    if reservation is None:
        assert not fits(Floor(*nodes), head), "it would fit if all of them ended"
        return
    started = [floor.starts(f"young-{number}", members) for number, members in enumerate(young)]
    event(f"{sum(started)} started beside a reservation")
    floor.ends(*reservation.waits_for)
    floor.give_up()
    assert fits(floor, head, within=reservation.nodes)


def fits(floor: Floor, wanted: Sequence[Member], *, within: Sequence[str] | None = None) -> bool:
    others = [
        node.name for node in floor.ledger.nodes if node and within and node.name not in within
    ]
    placement = place(wanted, floor.ledger, limits(excluded=others))
    return (
        not isinstance(placement, Verdict)
        and slots_for(wanted, placement, floor.ledger) is not None
    )


@dataclass(frozen=True)
class Case:
    """The jobs in each slot, the job with the reservation, and the job that comes then.

    `starts`: whether the last job starts.
    """

    there: Mapping[str, tuple[list[Member], int | None]]
    head: list[Member]
    comes: list[Member]
    starts: bool = False
    cards: int = 2


FIRST = ReplicaKey("worker", 0)
HALF_HEAD, GPU_HEAD = part("0.5"), whole(1)
LOW_HEAD = part("0.5", min_share="0.2")
CASES: dict[str, Case] = {
    "no job joins the jobs that free the GPU": Case(
        {"a": (part("0.5"), 0), "x": (whole(1), None)}, GPU_HEAD, part("0.1")
    ),
    "a job joins jobs on another GPU that is not awaited": Case(
        {"a": (part("0.5"), 0), "b": (part("0.3"), 1)}, GPU_HEAD, part("0.1"), starts=True
    ),
    "the free part of a GPU until the whole GPU is freed": Case(
        {"a": (part("0.5"), 0)}, whole(2), whole(1)
    ),
    "no part of a GPU that is free": Case({"a": (part("0.5"), 0)}, whole(2), part("0.6")),
    "a GPU, while parts of both are waited for": Case(
        {"a": (part("0.9"), 0)}, part(replicas=2, priority="high"), whole(1)
    ),
    "the rest of a card beside the reservation": Case(
        {"a": (part("0.6"), None)}, HALF_HEAD, part("0.4"), starts=True, cards=1
    ),
    "more than the rest of a card": Case(
        {"a": (part("0.4"), None), "b": (part("0.2"), None)}, part("0.7"), part("0.2"), cards=1
    ),
    "memory that will be needed": Case(
        {"a": (part("0.6", memory="4Gi"), None)},
        part("0.5", memory="12Gi"),
        part("0.1", memory="6Gi"),
        cards=1,
    ),
    "no job of high priority beside a low job that might get too little": Case(
        {"a": (part("0.6"), None)}, LOW_HEAD, part("0.3", priority="high"), cards=1
    ),
    "a job of high priority beside a job without a minimum": Case(
        {"a": (part("0.6"), None)}, HALF_HEAD, part("0.3", priority="high"), starts=True, cards=1
    ),
    "no second job of high priority": Case(
        {"a": (part("0.8"), None)},
        part("0.5", priority="high"),
        part("0.1", priority="high"),
        cards=1,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_D5_which_jobs_may_start_beside_a_job_that_waits_for_cards(case: Case) -> None:
    floor = Floor(cards=case.cards)
    for uid, (wanted, slot) in case.there.items():
        assert floor.starts(uid, wanted, slot=slot)
    assert floor.reserve(case.head) is not None
    assert floor.starts("young", case.comes) == case.starts


def test_a_gpu_that_is_about_to_be_released_is_reserved_too() -> None:
    floor = Floor(cards=1)
    floor.starts("a", part("0.5"))
    floor.ledger.drop(("a", FIRST))
    reservation = floor.reserve(GPU_HEAD)
    assert reservation is not None
    assert reservation.waits_for == ()
    assert not floor.starts("young", part("0.1"))
    assert floor.reserve(HALF_HEAD) is None, "that job can have it now"


def test_no_capacity_is_reserved_on_a_card_that_is_closed_to_the_job() -> None:
    floor = Floor()
    for uid, share, slot in (("a", "0.6", 0), ("b", "0.9", 1)):
        assert floor.starts(uid, part(share), slot=slot)
    for closed, waits_for in (((), ("a",)), ([("n", 0)], ("b",))):
        reservation = reserve("head", part("0.5"), floor.ledger, limits(closed=closed), ends={})
        assert reservation is not None
        assert reservation.waits_for == waits_for


def test_of_full_nodes_the_node_where_least_must_be_freed() -> None:
    floor = Floor("a", "b", "c", cards=1)
    for uid, share in (("a", "0.9"), ("b", "0.6"), ("c", "0.8")):
        assert floor.starts(uid, part(share))
    reservation = floor.reserve(part("0.5"))
    assert reservation is not None
    assert (reservation.nodes, reservation.waits_for) == (("b",), ("b",))
