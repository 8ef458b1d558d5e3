from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.core.placement.gang import Member
from kfext.core.queue.occupants import Need, Occupants, need_of
from kfext.model.gpu_share import CardNeed, CardsFor
from kfext.model.pod import ReplicaKey
from kfext.names import NATIVE_GPU
from tests.builders import job
from tests.unit.core.queue.shared import Floor, part, whole

HALF, HIGH = CardNeed(50), CardNeed(20, high=True)
NEEDS: dict[str, tuple[dict[str, int], Need]] = {
    "nothing of what it asks for elsewhere": ({"cpu": 0, "pods": 1}, Need({"pods": 1})),
    "whole GPUs are amounts": ({NATIVE_GPU: 2}, Need({NATIVE_GPU: 2})),
    "each part is a need of its own": ({HALF.name: 2}, Need({}, (HALF, HALF))),
    "what counts them together with whole GPUs adds none": (
        {HALF.name: 1, HIGH.name: 1, CardsFor(HALF, whole=True).name: 2},
        Need({}, (HALF, HIGH)),
    ),
}


@pytest.mark.parametrize(("amounts", "want"), NEEDS.values(), ids=NEEDS)
def test_what_a_gang_takes_of_a_node(amounts: dict[str, int], want: Need) -> None:
    assert need_of(amounts.keys(), amounts.values()) == want


def test_whole_gpus_and_parts_of_them_are_one_measure() -> None:
    assert Need({NATIVE_GPU: 2}, (HALF, HIGH)).parts == 270
    floor = Floor()
    floor.starts("a", part("0.5"))
    floor.starts("b", whole(1))
    on = Occupants({"n": Need({NATIVE_GPU: 2})}, floor.ledger)
    assert [on.size(uid, Need({NATIVE_GPU: 2})) for uid in "ab"] == [0.25, 0.5]


HELPS: dict[str, tuple[Need, dict[str, bool]]] = {
    "of a GPU, who has one or a part of one": (
        Need({NATIVE_GPU: 1}),
        {"whole": True, "part": True, "idle": False},
    ),
    "of a card, too": (
        Need({}, (CardNeed(60), CardNeed(60))),
        {"whole": True, "part": True, "idle": False},
    ),
    "of CPU, who has some": (
        Need({"cpu": 64_000}),
        {"whole": False, "part": False, "idle": True},
    ),
    "nobody, where nothing is short": (
        Need({"cpu": 1}, (HALF,)),
        {"whole": False, "part": False, "idle": False},
    ),
}


@pytest.mark.parametrize(("need", "want"), HELPS.values(), ids=HELPS)
def test_whose_end_frees_any_of_what_is_short(need: Need, want: dict[str, bool]) -> None:
    floor = Floor()
    floor.starts("whole", whole(1))
    floor.starts("part", part("0.5"))
    floor.starts("idle", job().worker(1, cpu="1").members())
    on = Occupants({"n": need}, floor.ledger)
    assert {uid: on.helps(uid, "n", need) for uid in want} == want


def test_the_gpu_of_a_slot_comes_free_with_the_last_that_has_a_part_of_it() -> None:
    floor = Floor(cards=1)
    floor.starts("a", part("0.2"))
    floor.starts("b", part("0.3"))
    need = Need({NATIVE_GPU: 1})
    on = Occupants({"n": need}, floor.ledger)
    on.leave("a")
    assert (on.holds("n", need), on.emptied("n")) == (False, [])
    on.leave("b")
    assert (on.holds("n", need), on.emptied("n")) == (True, [0])
    assert not on.holds("n", need, already=True)
    on.stay("a")
    assert not on.holds("n", need)


def test_a_gpu_of_which_nobody_has_a_part_is_about_to_be_given_back() -> None:
    floor = Floor(cards=1)
    floor.starts("a", part("0.2"))
    floor.ledger.drop(("a", ReplicaKey("worker", 0)))
    need = Need({NATIVE_GPU: 1})
    on = Occupants({"n": need}, floor.ledger)
    assert (on.holds("n", need), on.holds("n", need, already=True)) == (True, False)


jobs = st.one_of(
    st.builds(part, st.sampled_from(["0.2", "0.5"]), replicas=st.integers(1, 2)),
    st.builds(part, st.just("0.5"), priority=st.just("high"), memory=st.just("2Gi")),
    st.builds(whole, st.integers(1, 2)),
)


@settings(deadline=None)
@given(there=st.lists(jobs, max_size=6), data=st.data())
def test_what_is_free_once_some_have_ended_is_what_the_ledger_has_then(
    there: Sequence[list[Member]], data: st.DataObject
) -> None:
    floor = Floor("a", "b")
    for number, one in enumerate(there):
        floor.starts(f"job-{number}", one)
    needs = {node: Need({NATIVE_GPU: 1, "cpu": 1}, (HALF,)) for node in "ab"}
    on = Occupants(needs, floor.ledger)
    before = {node: amounts.copy() for node, amounts in on.now.items()}
    gone = data.draw(
        st.lists(st.sampled_from(sorted(on.held)), unique=True) if on.held else st.just([])
    )
    for uid in gone:
        on.leave(uid)
    left = {node: amounts.copy() for node, amounts in on.now.items()}
    for uid in gone:
        on.stay(uid)
    assert all(np.array_equal(on.now[node], before[node]) for node in "ab")
    floor.ends(*gone)
    then = Occupants(needs, floor.ledger)
    assert all(np.array_equal(then.free[node], left[node]) for node in "ab")
