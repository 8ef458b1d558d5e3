"""What is kept for a job that waits for GPUs, whole ones or parts of them, and from whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kfext.core.placement.gang import Member
from kfext.core.placement.place import place
from kfext.core.placement.slots import slots_for
from kfext.core.queue.backfill import reserve
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from tests.builders import limits
from tests.unit.core.queue.shared import Floor, part, whole

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
jobs = st.one_of(shares, unsized, st.builds(whole, st.integers(1, 2), replicas=st.integers(1, 2)))


@settings(max_examples=300, deadline=None)
@given(
    nodes=st.sampled_from(["a", "ab"]),
    there=st.lists(jobs, min_size=1, max_size=6),
    head=jobs,
    young=st.lists(jobs | small, max_size=6),
)
def test_D5_no_job_takes_the_cards_for_which_the_head_waits(
    nodes: str, there: list[list[Member]], head: list[Member], young: list[list[Member]]
) -> None:
    floor = Floor(*nodes)
    for number, one in enumerate(there):
        floor.starts(f"old-{number}", one)
    if fits(floor, head):
        return
    found = floor.reserve(head)
    if found is None:
        assert not fits(Floor(*nodes), head), "it would fit if all of them ended"
        return
    started = [floor.starts(f"young-{number}", one) for number, one in enumerate(young)]
    event(f"{sum(started)} started beside a reservation")
    floor.ends(*found.waits_for)
    floor.give_up()
    assert fits(floor, head, within=found.nodes)


def fits(floor: Floor, wanted: Sequence[Member], *, within: Sequence[str] | None = None) -> bool:
    others = [one.name for one in floor.ledger.nodes if one and within and one.name not in within]
    found = place(wanted, floor.ledger, limits(excluded=others))
    return not isinstance(found, Verdict) and slots_for(wanted, found, floor.ledger) is not None


@dataclass(frozen=True)
class Case:
    """Who is there in which slot, for whom room is kept, and who comes then.

    `taken`: whether that one starts.
    """

    there: Mapping[str, tuple[list[Member], int | None]]
    head: list[Member]
    comes: list[Member]
    starts: bool
    cards: int = 2


FIRST = ReplicaKey("worker", 0)
HALF_HEAD, GPU_HEAD = part("0.5"), whole(1)
LOW_HEAD = part("0.5", min_share="0.2")
CASES: dict[str, Case] = {
    "nobody joins those with whom the GPU comes free": Case(
        {"a": (part("0.5"), 0), "x": (whole(1), None)}, GPU_HEAD, part("0.1"), starts=False
    ),
    "but those with whom another GPU does not": Case(
        {"a": (part("0.5"), 0), "b": (part("0.3"), 1)}, GPU_HEAD, part("0.1"), starts=True
    ),
    "what is free of a GPU until it comes free as a whole": Case(
        {"a": (part("0.5"), 0)}, whole(2), whole(1), starts=False
    ),
    "no part of a GPU that is free": Case(
        {"a": (part("0.5"), 0)}, whole(2), part("0.6"), starts=False
    ),
    "a GPU, while parts of both are waited for": Case(
        {"a": (part("0.9"), 0)}, part(replicas=2, priority="high"), whole(1), starts=False
    ),
    "what is left of a card beside what is kept": Case(
        {"a": (part("0.6"), None)}, HALF_HEAD, part("0.4"), starts=True, cards=1
    ),
    "more than that": Case(
        {"a": (part("0.4"), None), "b": (part("0.2"), None)},
        part("0.7"),
        part("0.2"),
        starts=False,
        cards=1,
    ),
    "memory that will be needed": Case(
        {"a": (part("0.6", memory="4Gi"), None)},
        part("0.5", memory="12Gi"),
        part("0.1", memory="6Gi"),
        starts=False,
        cards=1,
    ),
    "no job of high priority beside one of low that it might leave too little": Case(
        {"a": (part("0.6"), None)}, LOW_HEAD, part("0.3", priority="high"), starts=False, cards=1
    ),
    "but beside one that asks for no minimum": Case(
        {"a": (part("0.6"), None)}, HALF_HEAD, part("0.3", priority="high"), starts=True, cards=1
    ),
    "no second job of high priority": Case(
        {"a": (part("0.8"), None)},
        part("0.5", priority="high"),
        part("0.1", priority="high"),
        starts=False,
        cards=1,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_D5_who_may_start_beside_a_job_that_waits_for_cards(case: Case) -> None:
    floor = Floor(cards=case.cards)
    for uid, (wanted, slot) in case.there.items():
        assert floor.starts(uid, wanted, slot=slot)
    assert floor.reserve(case.head) is not None
    assert floor.starts("young", case.comes) == case.starts


def test_a_gpu_that_is_about_to_be_given_back_is_kept_too() -> None:
    floor = Floor(cards=1)
    floor.starts("a", part("0.5"))
    floor.ledger.drop(("a", FIRST))
    found = floor.reserve(GPU_HEAD)
    assert found is not None
    assert found.waits_for == ()
    assert not floor.starts("young", part("0.1"))
    assert floor.reserve(HALF_HEAD) is None, "that job can have it now"


def test_no_room_is_kept_on_a_card_that_is_closed_to_the_job() -> None:
    floor = Floor()
    for uid, share, slot in (("a", "0.6", 0), ("b", "0.9", 1)):
        assert floor.starts(uid, part(share), slot=slot)
    for closed, waits_for in (((), ("a",)), ([("n", 0)], ("b",))):
        found = reserve("head", part("0.5"), floor.ledger, limits(closed=closed), ends={})
        assert found is not None
        assert found.waits_for == waits_for


def test_of_nodes_whose_cards_are_all_taken_that_where_least_is_to_be_freed() -> None:
    floor = Floor("a", "b", "c", cards=1)
    for uid, share in (("a", "0.9"), ("b", "0.6"), ("c", "0.8")):
        assert floor.starts(uid, part(share))
    found = floor.reserve(part("0.5"))
    assert found is not None
    assert (found.nodes, found.waits_for) == (("b",), ("b",))
