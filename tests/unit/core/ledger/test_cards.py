"""Which cards can serve a share of a GPU, and how they are counted."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.core.ledger.cards import (
    CONTEXT,
    capacity,
    has_priority,
    is_of_card,
    kept_for,
    slot_resources,
    slots_among,
    slots_in,
    taken_by,
    taken_by_reservation,
)
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import share_claim
from kfext.core.ledger.ledger import Ledger
from kfext.model.gpu import CardNeed, GpuShare, resource_of
from kfext.model.node import Node
from kfext.model.quantity import Resources
from kfext.names import NATIVE_GPU
from tests.gpu_builders import MEMORY, USABLE, memory_of, sharing_node

TIME_OF, MEMORY_OF, UNSIZED_OF, HIGH_OF, IDLE_OF, RESERVED_OF = slot_resources(3)
TAKEN: dict[str, tuple[CardNeed, Resources]] = {
    "its time, and as much of the memory": (CardNeed(50), {TIME_OF: 50, UNSIZED_OF: 50}),
    "the memory that it states, and the overhead of its process": (
        CardNeed(50, memory=900),
        {TIME_OF: 50, MEMORY_OF: 900 + CONTEXT},
    ),
    "the high-priority place, and all the time": (
        CardNeed(50, high=True),
        {TIME_OF: 50, UNSIZED_OF: 50, HIGH_OF: 1, IDLE_OF: 1000},
    ),
    "a minimum of time": (CardNeed(50, idle=200), {TIME_OF: 50, UNSIZED_OF: 50, IDLE_OF: 200}),
}


@pytest.mark.parametrize(("need", "want"), TAKEN.values(), ids=TAKEN)
def test_the_claim_of_a_replica_on_a_slot(need: CardNeed, want: Resources) -> None:
    assert taken_by(need, 3) == want
    assert has_priority(taken_by(need, 3), 3) == need.high
    assert not has_priority(taken_by(need, 3), 2)


def test_a_high_priority_replica_uses_the_time_in_which_it_is_busy() -> None:
    high = CardNeed(50, high=True)
    assert taken_by(high, 3, busy=400) == {**taken_by(high, 3), IDLE_OF: 400}


KEPT: dict[str, tuple[CardNeed, Resources]] = {
    "its later claim": (CardNeed(50), {}),
    "the high-priority place, if such a job might leave it too little time": (
        CardNeed(50, idle=200),
        {HIGH_OF: 1},
    ),
    "its own high-priority place once": (CardNeed(50, high=True), {}),
}


@pytest.mark.parametrize(("need", "more"), KEPT.values(), ids=KEPT)
def test_the_reservation_of_a_slot_for_a_waiting_replica(need: CardNeed, more: Resources) -> None:
    assert kept_for(need, 3) == {**taken_by(need, 3), **more}


def test_a_pod_that_reserves_a_gpu_has_no_share_of_it() -> None:
    assert slots_in({**taken_by(CardNeed(50), 3), **taken_by(CardNeed(10), 5), "cpu": 1}) == {3, 5}
    assert slots_in(taken_by_reservation(3)) == set()


def test_a_card_reserves_3_percent_of_its_memory() -> None:
    card = capacity(3, memory=100_000)
    assert card == {MEMORY_OF: 97_000, UNSIZED_OF: 100, HIGH_OF: 1, IDLE_OF: 1000, RESERVED_OF: 1}
    assert taken_by_reservation(3) == {NATIVE_GPU: 1, RESERVED_OF: 1}


def test_only_the_time_of_a_slot_is_a_resource_of_kubernetes() -> None:
    assert [name for name in slot_resources(3) if not is_of_card(name)] == [resource_of(3)]
    assert slots_among(["cpu"]) == 0
    assert slots_among(["cpu", resource_of(3), resource_of(1)]) == 4


HALF, HIGH = GpuShare(50).need, GpuShare(50, high=True).need
BIG = GpuShare(10, memory=12 * 2**30).need
Present = Sequence[tuple[int, CardNeed]]
"""The present shares of the cards: slot and need."""


def ledger(present: Present = (), *, whole: int = 0, cards: int = 2) -> Ledger:
    """A node of cards; `present` shares are claimed and their slots reserved, `whole` GPUs used."""
    capacity = Ledger([sharing_node("n", cards=cards)])
    for number, (slot, need) in enumerate(present):
        capacity.claim(("pod", number), Claim("n", taken_by(need, slot)))
        capacity.claim(("reserved", slot), Claim("n", taken_by_reservation(slot)))
    capacity.claim("natively", Claim("n", {NATIVE_GPU: whole}))
    return capacity


COUNTS: dict[str, tuple[Present, int, CardNeed, int]] = {
    "an empty node has a card for each GPU": ([], 0, HALF, 2),
    "GPUs in whole use are not shared": ([], 1, HALF, 1),
    "a card with a half has another half": ([(0, HALF)], 1, HALF, 1),
    "two halves fill a card": ([(0, HALF), (0, HALF)], 1, HALF, 0),
    "a share that is larger than the remaining share": ([(0, HALF)], 1, GpuShare(60).need, 0),
    "only one high-priority job on a card": ([(0, HIGH)], 1, HIGH, 0),
    "no low-priority job beside a high-priority job without a profile": ([(0, HIGH)], 1, HALF, 0),
    "a low-priority job without a minimum beside it": (
        [(0, HIGH)],
        1,
        GpuShare(50, min_share=0).need,
        1,
    ),
    "a high-priority job beside a low-priority job": ([(0, HALF)], 1, HIGH, 1),
    "memory for two, and not for three": ([(0, BIG)], 1, BIG, 0),
    "memory beside a job with half of all memory": ([(0, HALF)], 1, BIG, 0),
    "half of all memory, with less free": ([(0, BIG)], 1, HALF, 0),
    "a tenth of all memory, with more free": ([(0, BIG)], 1, GpuShare(10).need, 1),
    "one given slot": ([(0, HALF)], 0, replace(HALF, slot=0), 1),
    "one given slot that is full": ([(0, HALF), (0, HALF)], 0, replace(HALF, slot=0), 0),
}


@pytest.mark.parametrize(("present", "whole", "need", "want"), COUNTS.values(), ids=COUNTS)
def test_how_many_cards_can_serve_a_replica(
    present: Present, whole: int, need: CardNeed, want: int
) -> None:
    assert ledger(present, whole=whole).free([need.name]).tolist() == [[want]]


def test_an_empty_cluster_would_have_a_card_for_each_gpu() -> None:
    full = ledger([(0, HALF), (0, HALF)], whole=1)
    assert full.allocatable([HALF.name]).tolist() == [[2]]


def test_ignored_claims_count_as_free() -> None:
    capacity = ledger([(0, HALF), (0, HALF)], whole=1)
    assert capacity.free([HALF.name], ignoring=[("pod", 1)]).tolist() == [[1]]


def test_a_slot_without_a_report_of_an_agent_serves_no_job() -> None:
    node = Node("n", {NATIVE_GPU: 2, resource_of(0): 100, resource_of(1): 100})
    assert Ledger([node]).free([HALF.name, HIGH.name]).tolist() == [[0], [0]]


def test_an_unhealthy_card_serves_no_job() -> None:
    node = sharing_node("n", cards=1)
    sick = Node("n", {name: n for name, n in node.allocatable.items() if name != resource_of(0)})
    assert Ledger([sick]).free([HALF.name]).tolist() == [[0]]


BESIDE: dict[str, tuple[int | None, int | None, int]] = {
    "the high job leaves less": (900, None, 0),
    "the high job leaves as much": (800, None, 1),
    "the high job leaves more": (100, None, 1),
    "the high job leaves less, but enough for a low job that uses half a card": (900, 500, 1),
    "the high job leaves less than a low job needs that uses more": (900, 510, 0),
    "a high job without a profile leaves nothing": (None, 100, 0),
    "a low job that uses no time needs none": (None, 0, 1),
}


@pytest.mark.parametrize(("high", "low", "want"), BESIDE.values(), ids=BESIDE)
def test_a_low_priority_job_fits_beside_a_high_priority_job_that_leaves_its_minimum_of_a_fifth(
    high: int | None, low: int | None, want: int
) -> None:
    capacity = Ledger([sharing_node("n", cards=1)])
    busy = GpuShare(50, high=True, busy=high)
    capacity.claim("high", share_claim(busy, 0, "n", job="high"))
    capacity.claim("reservation", Claim("n", taken_by_reservation(0)))
    assert capacity.free([GpuShare(50, busy=low).need.name]).tolist() == [[want]]


def test_the_minimums_of_low_priority_jobs_on_a_card_add_up() -> None:
    capacity = Ledger([sharing_node("n", cards=1)])
    capacity.claim("high", share_claim(GpuShare(50, high=True, busy=100), 0, "n", job="high"))
    capacity.claim("reservation", Claim("n", taken_by_reservation(0)))
    assert capacity.free([GpuShare(20).need.name]).tolist() == [[1]]
    capacity.claim("low", Claim("n", taken_by(GpuShare(20, min_share=0.8).need, 0)))
    assert capacity.free([GpuShare(20).need.name]).tolist() == [[0]]


CHOICES: dict[str, tuple[Present, Sequence[CardNeed], int, list[int] | None]] = {
    "a card that it fills": ([(1, HALF)], [HALF], 0, [1]),
    "the first of equal cards": ([], [HALF], 0, [0]),
    "two replicas of one job use two cards": ([(1, HALF)], [HALF, HALF], 0, [1, 0]),
    "no more than the remaining GPUs": ([(1, HALF)], [HALF, HALF], 1, None),
    "a given slot is chosen first": ([(0, HALF)], [HALF, replace(HIGH, slot=0)], 0, [1, 0]),
    "the slot of a pod": ([], [replace(HALF, slot=1)], 0, [1]),
}


@pytest.mark.parametrize(("present", "needs", "whole", "want"), CHOICES.values(), ids=CHOICES)
def test_the_slots_that_replicas_get(
    present: Present, needs: Sequence[CardNeed], whole: int, want: list[int] | None
) -> None:
    assert ledger(present).cards().choose(0, needs, whole=whole) == want


def test_the_card_with_the_least_harm_is_chosen() -> None:
    cards = ledger([(0, GpuShare(75).need), (1, HALF)], cards=3).cards()
    assert cards.choose(0, [GpuShare(25).need]) == [0]
    assert cards.choose(0, [HALF]) == [1]
    assert cards.harm(HALF)[0] < 0 < ledger().cards().harm(HALF)[0]


needs = st.builds(
    lambda units, high, memory: GpuShare(units, high=high, memory=memory).need,
    units=st.integers(1, 100),
    high=st.booleans(),
    memory=st.none() | st.integers(1, 16).map(lambda gi: gi * 2**30),
)


@settings(max_examples=1000)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), needs), max_size=30))
def test_G2_a_card_is_never_promised_twice(events: list[tuple[bool, int, CardNeed]]) -> None:
    """Replicas start and end at random; `choose` chooses the slot of each."""
    capacity, present = ledger(cards=3), dict[int, tuple[int, CardNeed]]()
    for starts, key, need in events:
        if not starts or key in present:
            present.pop(key, None)
            capacity.drop(key)
            continue
        chosen = capacity.cards().choose(0, [need])
        assert (chosen is None) == (capacity.free([need.name])[0, 0] == 0)
        if chosen is not None:
            present[key] = (chosen[0], need)
            capacity.claim(key, Claim("n", taken_by(need, chosen[0])))
        for slot in range(3):
            sharers = [need for at, need in present.values() if at == slot]
            units = sum(sharer.units for sharer in sharers)
            assert units <= 100
            assert sum(sharer.high for sharer in sharers) <= 1
            assert memory_of(sharers) <= USABLE < MEMORY
            capacity.drop(("slot", slot))
            if sharers:
                capacity.claim(("slot", slot), Claim("n", taken_by_reservation(slot)))


profiles = st.builds(
    lambda units, high, busy, minimum: GpuShare(units, high=high, busy=busy, min_share=minimum),
    units=st.integers(1, 30),
    high=st.booleans(),
    busy=st.none() | st.integers(0, 1000),
    minimum=st.sampled_from([0, 0.1, 0.2, 0.5, 0.9]),
)


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | profiles), max_size=30))
def test_a_low_priority_job_never_joins_a_card_without_time_for_its_minimum(
    events: list[tuple[int, GpuShare | None]],
) -> None:
    """Sharers start, end, and are measured again; until then they count as always busy."""
    capacity, present = ledger(cards=2), dict[int, tuple[int, GpuShare]]()
    for key, event in events:
        slot, share = present.get(key, (None, event))
        if event is None or share is None:
            present.pop(key, None)
            capacity.drop(key)
            continue
        if slot is not None:  # it is measured again
            share = replace(share, busy=event.busy)
        else:
            chosen = capacity.cards().choose(0, [share.need])
            if chosen is None:
                continue
            slot = chosen[0]
            beside = [sharer for at, sharer in present.values() if at == slot]
            _assert_fits(share, beside)
        present[key] = slot, share
        taken = {**share_claim(share, slot, "n", job="").requests, resource_of(slot): share.units}
        capacity.claim(key, Claim("n", taken))


def _assert_fits(low: GpuShare, beside: Sequence[GpuShare]) -> None:
    high = [sharer for sharer in beside if sharer.high]
    if low.high or not high or not low.min_share:
        return
    high_use = 1 if high[0].busy is None else high[0].busy / 1000
    lows = [low, *(sharer for sharer in beside if not sharer.high)]
    minimums = sum(
        sharer.min_share * (1 if sharer.busy is None else sharer.busy / 1000) for sharer in lows
    )
    assert low.busy == 0 or minimums <= 1 - high_use + 1e-9


@given(
    present=st.lists(st.tuples(st.integers(0, 2), needs), max_size=4),
    need=needs,
    replicas=st.integers(1, 3),
    whole=st.integers(0, 2),
)
def test_slots_are_chosen_if_and_only_if_enough_cards_fit(
    present: Present, need: CardNeed, replicas: int, whole: int
) -> None:
    """Compared with a search over all orders of slots."""
    capacity, wanted = ledger(present, whole=whole, cards=3), [need] * replicas
    enough = replicas <= capacity.free([need.name])[0, 0]
    assert (capacity.cards().choose(0, wanted) is not None) == enough
    assert enough == _is_possible(capacity, wanted)


def _is_possible(capacity: Ledger, wanted: list[CardNeed]) -> bool:
    possible = [
        {slot for slot in range(3) if capacity.free([replace(need, slot=slot).name])[0, 0]}
        for need in wanted
    ]
    unreserved = {
        slot
        for slot in range(3)
        if not any(
            resource == f"card {slot} reserved"
            for claim in capacity.claims().values()
            for resource in claim.requests
        )
    }
    free_gpus = int(capacity.free([NATIVE_GPU])[0, 0])
    for slots in permutations(range(3), len(wanted)):
        able = all(slot in able for slot, able in zip(slots, possible, strict=True))
        if able and len(unreserved.intersection(slots)) <= max(free_gpus, 0):
            return True
    return False
