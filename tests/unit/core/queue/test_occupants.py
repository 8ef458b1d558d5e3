"""The capacity that jobs occupy, which jobs must end for a gang, and the gang's reservation."""

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
from tests.unit.core.queue.shared import SharedCluster, share, whole

HALF, HIGH = CardNeed(50), CardNeed(20, high=True)
NEEDS: dict[str, tuple[dict[str, int], Need]] = {
    "no request of another resource": ({"cpu": 0, "pods": 1}, Need({"pods": 1})),
    "whole GPUs are amounts": ({NATIVE_GPU: 2}, Need({NATIVE_GPU: 2})),
    "each share is a separate need": ({HALF.name: 2}, Need({}, (HALF, HALF))),
    "the resource that counts shares and whole GPUs adds no need": (
        {HALF.name: 1, HIGH.name: 1, CardsFor(HALF, whole=True).name: 2},
        Need({}, (HALF, HIGH)),
    ),
}


@pytest.mark.parametrize(("amounts", "want"), NEEDS.values(), ids=NEEDS)
def test_the_needs_of_a_gang_on_a_node(amounts: dict[str, int], want: Need) -> None:
    assert need_of(amounts.keys(), amounts.values()) == want


def test_whole_gpus_and_gpu_shares_are_added_up() -> None:
    assert Need({NATIVE_GPU: 2}, (HALF, HIGH)).gpu_units == 270
    cluster = SharedCluster()
    cluster.start("a", share("0.5"))
    cluster.start("b", whole(1))
    occupants = Occupants({"n": Need({NATIVE_GPU: 2})}, cluster.ledger)
    assert [occupants.size(uid, Need({NATIVE_GPU: 2})) for uid in "ab"] == [0.25, 0.5]


HELPS: dict[str, tuple[Need, dict[str, bool]]] = {
    "of a GPU, a job with a GPU or a share": (
        Need({NATIVE_GPU: 1}),
        {"whole": True, "share": True, "idle": False},
    ),
    "of a card, a job with a GPU or a share": (
        Need({}, (CardNeed(60), CardNeed(60))),
        {"whole": True, "share": True, "idle": False},
    ),
    "of CPU, a job with CPU": (
        Need({"cpu": 64_000}),
        {"whole": False, "share": False, "idle": True},
    ),
    "no job, where nothing is short": (
        Need({"cpu": 1}, (HALF,)),
        {"whole": False, "share": False, "idle": False},
    ),
}


@pytest.mark.parametrize(("need", "want"), HELPS.values(), ids=HELPS)
def test_which_jobs_free_a_missing_resource(need: Need, want: dict[str, bool]) -> None:
    cluster = SharedCluster()
    cluster.start("whole", whole(1))
    cluster.start("share", share("0.5"))
    cluster.start("idle", job().worker(1, cpu="1").members())
    occupants = Occupants({"n": need}, cluster.ledger)
    assert {uid: occupants.helps(uid, "n", need) for uid in want} == want


def test_the_gpu_of_a_slot_is_freed_with_its_last_sharer() -> None:
    cluster = SharedCluster(cards=1)
    cluster.start("a", share("0.2"))
    cluster.start("b", share("0.3"))
    need = Need({NATIVE_GPU: 1})
    occupants = Occupants({"n": need}, cluster.ledger)
    occupants.leave("a")
    assert (occupants.holds("n", need), occupants.emptied("n")) == (False, [])
    occupants.leave("b")
    assert (occupants.holds("n", need), occupants.emptied("n")) == (True, [0])
    assert not occupants.holds("n", need, before=True)
    occupants.stay("a")
    assert not occupants.holds("n", need)


def test_a_gpu_without_sharers_is_about_to_be_released() -> None:
    cluster = SharedCluster(cards=1)
    cluster.start("a", share("0.2"))
    cluster.ledger.drop(("a", ReplicaKey("worker", 0)))
    need = Need({NATIVE_GPU: 1})
    occupants = Occupants({"n": need}, cluster.ledger)
    assert (occupants.holds("n", need), occupants.holds("n", need, before=True)) == (True, False)


any_jobs = st.one_of(
    st.builds(share, st.sampled_from(["0.2", "0.5"]), replicas=st.integers(1, 2)),
    st.builds(share, st.just("0.5"), priority=st.just("high"), memory=st.just("2Gi")),
    st.builds(whole, st.integers(1, 2)),
)


@settings(deadline=None)
@given(jobs=st.lists(any_jobs, max_size=6), data=st.data())
def test_the_capacity_without_jobs_that_left_equals_the_capacity_after_their_end(
    jobs: Sequence[list[Member]], data: st.DataObject
) -> None:
    cluster = SharedCluster("a", "b")
    for number, members in enumerate(jobs):
        cluster.start(f"job-{number}", members)
    needs = {node: Need({NATIVE_GPU: 1, "cpu": 1}, (HALF,)) for node in "ab"}
    occupants = Occupants(needs, cluster.ledger)
    before = {node: amounts.copy() for node, amounts in occupants.after.items()}
    ended = data.draw(
        st.lists(st.sampled_from(sorted(occupants.held)), unique=True)
        if occupants.held
        else st.just([])
    )
    for uid in ended:
        occupants.leave(uid)
    left = {node: amounts.copy() for node, amounts in occupants.after.items()}
    for uid in ended:
        occupants.stay(uid)
    assert all(np.array_equal(occupants.after[node], before[node]) for node in "ab")
    cluster.end(*ended)
    later = Occupants(needs, cluster.ledger)
    assert all(np.array_equal(later.free[node], left[node]) for node in "ab")


@dataclass(frozen=True)
class Leaving:
    """A gang that waits on a node of two cards.

    `jobs`: the members and the slot of each job there, by uid; None means any slot.
    `need`: the need of the gang.
    `waits_for`: the jobs that must end; `ends`: the known ends, in epoch seconds.
    """

    jobs: Mapping[str, tuple[list[Member], int | None]]
    need: Need
    waits_for: Sequence[str]
    ends: Mapping[str, float] = field(default_factory=dict)


GPU, TWO = Need({NATIVE_GPU: 1}), Need({NATIVE_GPU: 2})
SMALL, BIG = share("0.2"), share("0.5")
LEAVING: dict[str, Leaving] = {
    "a GPU is freed with all of its sharers": Leaving(
        {"a": (SMALL, 0), "b": (SMALL, 0), "x": (whole(1), None)}, GPU, ("a", "b")
    ),
    "of two cards, the card with the smaller shares": Leaving(
        {"a": (BIG, 0), "b": (SMALL, 1), "c": (SMALL, 1), "d": (share("0.4"), 0)}, GPU, ("b", "c")
    ),
    "of two cards, the card with the known end": Leaving(
        {"a": (BIG, 0), "b": (SMALL, 1)}, GPU, ("a",), {"a": 70.0}
    ),
    "both cards, if it needs both": Leaving({"a": (BIG, 0), "b": (SMALL, 1)}, TWO, ("a", "b")),
    "a job with shares of both frees two at once": Leaving(
        {"a": (share("0.5", replicas=2, priority="high"), None)}, TWO, ("a",)
    ),
    "for a share, the smallest sufficient job": Leaving(
        {"a": (share("0.9"), 0), "b": (share("0.4"), 1), "c": (BIG, 1)},
        Need({}, (CardNeed(50),)),
        ("b",),
    ),
    "for a high-priority share, the high-priority job": Leaving(
        {"a": (share("0.2", priority="high"), 0), "b": (SMALL, 0), "x": (whole(1), None)},
        Need({}, (CardNeed(20, high=True),)),
        ("a",),
    ),
    "for a low-priority share with a minimum, the high-priority job": Leaving(
        {"a": (share("0.2", priority="high"), 0), "b": (SMALL, 0), "x": (whole(1), None)},
        Need({}, (CardNeed(20, idle=200),)),
        ("a",),
    ),
    "for memory, the job with the most memory": Leaving(
        {"a": (share("0.1", memory="12Gi"), 0), "b": (SMALL, 0), "x": (whole(1), None)},
        Need({}, (CardNeed(10, memory=9000),)),
        ("a",),
    ),
    "two shares are on two cards": Leaving(
        {"a": (SMALL, 0), "b": (share("0.9"), 1)}, Need({}, (CardNeed(50), CardNeed(50))), ("b",)
    ),
    "for a share beside a whole GPU, the job with a whole GPU": Leaving(
        {"a": (SMALL, 0), "x": (whole(1), None)}, Need({NATIVE_GPU: 1}, (CardNeed(50),)), ("x",)
    ),
    "no job, where there is capacity": Leaving({"a": (SMALL, 0)}, GPU, ()),
}


@pytest.mark.parametrize("case", LEAVING.values(), ids=LEAVING)
def test_D5_a_gang_waits_for_the_fewest_jobs_that_free_its_cards(case: Leaving) -> None:
    cluster = SharedCluster()
    for uid, (wanted, slot) in case.jobs.items():
        assert cluster.start(uid, wanted, slot=slot)
    occupants = Occupants({"n": case.need}, cluster.ledger)
    result = leavers(occupants, {"n": case.need}, total=case.need, ends=case.ends)
    assert sorted(result) == sorted(case.waits_for)
    assert occupants.holds("n", case.need)


sharers = st.one_of(
    st.builds(share, st.sampled_from(["0.2", "0.5"]), priority=st.sampled_from(["low", "high"])),
    st.builds(whole, st.integers(1, 2)),
)
needs = st.builds(
    Need,
    st.sampled_from([{}, {NATIVE_GPU: 1}]),
    st.lists(st.builds(CardNeed, st.integers(10, 100)), min_size=1, max_size=1).map(tuple),
)


@settings(deadline=None)
@given(jobs=st.lists(sharers, max_size=6), need=needs, ended=st.sets(st.integers(0, 5)))
def test_each_awaited_job_is_necessary(
    jobs: list[list[Member]], need: Need, ended: set[int]
) -> None:
    cluster = SharedCluster()
    for number, members in enumerate(jobs):
        cluster.start(f"job-{number}", members)
    ends = {f"job-{number}": float(number) for number in ended}
    occupants = Occupants({"n": need}, cluster.ledger)
    result = leavers(occupants, {"n": need}, total=need, ends=ends)
    assert occupants.holds("n", need)
    for uid in result:
        occupants.stay(uid)
        assert not occupants.holds("n", need)
        occupants.leave(uid)


shares = st.builds(
    share,
    st.sampled_from(["0.2", "0.5", "0.6", "0.9"]),
    replicas=st.integers(1, 2),
    priority=st.sampled_from(["low", "high"]),
    memory=st.sampled_from(["1Gi", "6Gi", "12Gi"]),
    min_share=st.sampled_from(["0", "0.2", "0.5"]),
)
unsized = st.builds(
    share,
    st.sampled_from(["0.2", "0.5", "0.6", "0.9"]),
    replicas=st.integers(1, 2),
    priority=st.sampled_from(["low", "high"]),
)
small = st.builds(
    share, st.sampled_from(["0.05", "0.1", "0.3"]), priority=st.sampled_from(["low", "high"])
)
others = st.one_of(shares, unsized, st.builds(whole, st.integers(1, 2), replicas=st.integers(1, 2)))


@settings(max_examples=300, deadline=None)
@given(
    nodes=st.sampled_from(["a", "ab"]),
    older=st.lists(others, min_size=1, max_size=6),
    head=others,
    younger=st.lists(others | small, max_size=6),
)
def test_D5_no_job_takes_the_cards_that_the_head_waits_for(
    nodes: str, older: list[list[Member]], head: list[Member], younger: list[list[Member]]
) -> None:
    cluster = SharedCluster(*nodes)
    for number, members in enumerate(older):
        cluster.start(f"old-{number}", members)
    if fits(cluster, head):
        return
    reservation = cluster.reserve(head)
    if reservation is None:
        assert not fits(SharedCluster(*nodes), head), "no reservation though it fits empty nodes"
        return
    started = [cluster.start(f"young-{number}", members) for number, members in enumerate(younger)]
    event(f"{sum(started)} started beside a reservation")
    cluster.end(*reservation.waits_for)
    cluster.drop_reservation()
    assert fits(cluster, head, within=reservation.nodes)


def fits(
    cluster: SharedCluster, wanted: Sequence[Member], *, within: Sequence[str] | None = None
) -> bool:
    others = [
        node.name for node in cluster.ledger.nodes if node and within and node.name not in within
    ]
    placement = place(wanted, cluster.ledger, limits(excluded=others))
    return (
        not isinstance(placement, Verdict)
        and slots_for(wanted, placement, cluster.ledger) is not None
    )


@dataclass(frozen=True)
class Case:
    """A job `head` that waits on a node of `cards`, and a younger job.

    `jobs`: the members and the slot of each running job, by uid; None means any slot.
    `may_start`: whether the younger job may start beside the reservation.
    """

    jobs: Mapping[str, tuple[list[Member], int | None]]
    head: list[Member]
    younger: list[Member]
    may_start: bool = False
    cards: int = 2


FIRST = ReplicaKey("worker", 0)
HALF_HEAD, GPU_HEAD = share("0.5"), whole(1)
LOW_HEAD = share("0.5", min_share="0.2")
CASES: dict[str, Case] = {
    "no job joins the jobs that free the GPU": Case(
        {"a": (share("0.5"), 0), "x": (whole(1), None)}, GPU_HEAD, share("0.1")
    ),
    "a job joins jobs on another GPU that is not awaited": Case(
        {"a": (share("0.5"), 0), "b": (share("0.3"), 1)}, GPU_HEAD, share("0.1"), may_start=True
    ),
    "no whole GPU while the head waits for two": Case({"a": (share("0.5"), 0)}, whole(2), whole(1)),
    "no share of a reserved GPU": Case({"a": (share("0.5"), 0)}, whole(2), share("0.6")),
    "no whole GPU while the head waits for shares of both": Case(
        {"a": (share("0.9"), 0)}, share(replicas=2, priority="high"), whole(1)
    ),
    "the remaining share of a card beside the reservation": Case(
        {"a": (share("0.6"), None)}, HALF_HEAD, share("0.4"), may_start=True, cards=1
    ),
    "no more than the remaining share of a card": Case(
        {"a": (share("0.4"), None), "b": (share("0.2"), None)}, share("0.7"), share("0.2"), cards=1
    ),
    "no memory that the head will need": Case(
        {"a": (share("0.6", memory="4Gi"), None)},
        share("0.5", memory="12Gi"),
        share("0.1", memory="6Gi"),
        cards=1,
    ),
    "no high-priority job where the low-priority head might get too little time": Case(
        {"a": (share("0.6"), None)}, LOW_HEAD, share("0.3", priority="high"), cards=1
    ),
    "a high-priority job where the head has no minimum": Case(
        {"a": (share("0.6"), None)},
        HALF_HEAD,
        share("0.3", priority="high"),
        may_start=True,
        cards=1,
    ),
    "no high-priority job where the head has high priority": Case(
        {"a": (share("0.8"), None)},
        share("0.5", priority="high"),
        share("0.1", priority="high"),
        cards=1,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_D5_which_jobs_may_start_beside_a_job_that_waits_for_cards(case: Case) -> None:
    cluster = SharedCluster(cards=case.cards)
    for uid, (wanted, slot) in case.jobs.items():
        assert cluster.start(uid, wanted, slot=slot)
    assert cluster.reserve(case.head) is not None
    assert cluster.start("young", case.younger) == case.may_start


def test_a_gpu_that_is_about_to_be_released_is_reserved_too() -> None:
    cluster = SharedCluster(cards=1)
    cluster.start("a", share("0.5"))
    cluster.ledger.drop(("a", FIRST))
    reservation = cluster.reserve(GPU_HEAD)
    assert reservation is not None
    assert reservation.waits_for == ()
    assert not cluster.start("young", share("0.1"))
    assert cluster.reserve(HALF_HEAD) is None, "a share of the GPU is free now"


def test_no_capacity_is_reserved_on_a_card_that_is_closed_to_the_job() -> None:
    cluster = SharedCluster()
    for uid, size, slot in (("a", "0.6", 0), ("b", "0.9", 1)):
        assert cluster.start(uid, share(size), slot=slot)
    for closed, waits_for in (((), ("a",)), ([("n", 0)], ("b",))):
        reservation = reserve("head", share("0.5"), cluster.ledger, limits(closed=closed), ends={})
        assert reservation is not None
        assert reservation.waits_for == waits_for


def test_the_reservation_is_on_the_node_where_least_must_be_freed() -> None:
    cluster = SharedCluster("a", "b", "c", cards=1)
    for uid, size in (("a", "0.9"), ("b", "0.6"), ("c", "0.8")):
        assert cluster.start(uid, share(size))
    reservation = cluster.reserve(share("0.5"))
    assert reservation is not None
    assert (reservation.nodes, reservation.waits_for) == (("b",), ("b",))
