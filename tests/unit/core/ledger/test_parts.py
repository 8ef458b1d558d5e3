import pytest

from kfext.core.ledger.parts import (
    CONTEXT,
    capacity,
    has_priority,
    is_of_card,
    kept_for,
    lines_of,
    slots_among,
    slots_in,
    taken_by,
    taken_by_reservation,
)
from kfext.model.gpu_share import CardNeed
from kfext.model.gpu_slots import resource_of
from kfext.model.quantity import Resources
from kfext.names import NATIVE_GPU

TIME, MEMORY, UNSIZED, HIGH, IDLE, RESERVED = lines_of(3)
TAKEN: dict[str, tuple[CardNeed, Resources]] = {
    "its time, and as much of the memory": (CardNeed(50), {TIME: 50, UNSIZED: 50}),
    "memory that it states, and what its process takes": (
        CardNeed(50, memory=900),
        {TIME: 50, MEMORY: 900 + CONTEXT},
    ),
    "the place of high priority with all the time": (
        CardNeed(50, high=True),
        {TIME: 50, UNSIZED: 50, HIGH: 1, IDLE: 1000},
    ),
    "a minimum beside it": (CardNeed(50, idle=200), {TIME: 50, UNSIZED: 50, IDLE: 200}),
}


@pytest.mark.parametrize(("need", "want"), TAKEN.values(), ids=TAKEN)
def test_what_a_replica_takes_of_a_slot(need: CardNeed, want: Resources) -> None:
    assert taken_by(need, 3) == want
    assert has_priority(taken_by(need, 3), 3) == need.high
    assert not has_priority(taken_by(need, 3), 2)


def test_one_of_high_priority_takes_the_time_in_which_it_is_busy() -> None:
    high = CardNeed(50, high=True)
    assert taken_by(high, 3, busy=400) == {**taken_by(high, 3), IDLE: 400}


KEPT: dict[str, tuple[CardNeed, Resources]] = {
    "what it will take": (CardNeed(50), {}),
    "the place of high priority, if that might leave it too little": (
        CardNeed(50, idle=200),
        {HIGH: 1},
    ),
    "its own place of high priority once": (CardNeed(50, high=True), {}),
}


@pytest.mark.parametrize(("need", "more"), KEPT.values(), ids=KEPT)
def test_what_is_kept_of_a_slot_for_a_replica_that_waits(need: CardNeed, more: Resources) -> None:
    assert kept_for(need, 3) == {**taken_by(need, 3), **more}


def test_who_reserves_a_gpu_has_no_part_of_it() -> None:
    assert slots_in({**taken_by(CardNeed(50), 3), **taken_by(CardNeed(10), 5), "cpu": 1}) == {3, 5}
    assert slots_in(taken_by_reservation(3)) == set()


def test_a_card_has_what_its_sharers_can_take() -> None:
    has = capacity(3, memory=100_000)
    assert has == {MEMORY: 97_000, UNSIZED: 100, HIGH: 1, IDLE: 1000, RESERVED: 1}
    assert taken_by_reservation(3) == {NATIVE_GPU: 1, RESERVED: 1}


def test_only_the_time_of_a_slot_is_a_resource_of_kubernetes() -> None:
    assert [name for name in lines_of(3) if not is_of_card(name)] == [resource_of(3)]
    assert slots_among(["cpu"]) == 0
    assert slots_among(["cpu", resource_of(3), resource_of(1)]) == 4
