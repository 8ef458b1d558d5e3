from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.gpu import (
    UNITS,
    CardNeed,
    CardsFor,
    GpuShare,
    cards_counted_by,
    decode_share,
    encode_share,
    folder_of,
    reservation_of,
    resource_of,
    slot_of,
    units_of,
)
from tests.unit.objects import json_values

needs = st.builds(
    CardNeed,
    units=st.integers(1, 100),
    memory=st.none() | st.integers(1, 2**20),
    high=st.booleans(),
    idle=st.integers(0, 1000),
    slot=st.none() | st.integers(0, 63),
)
shares = st.builds(
    GpuShare,
    units=st.integers(1, 100),
    memory=st.none() | st.integers(1, 2**40),
    high=st.booleans(),
    loss_budget=st.floats(0, 0.99),
    min_share=st.floats(0, 0.99),
)


@given(needs, st.booleans())
def test_the_name_of_a_resource_tells_the_cards_that_it_counts(need: CardNeed, whole: bool) -> None:
    cards = CardsFor(need, whole)
    assert cards_counted_by(cards.name) == cards


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "GPU shares of ", "GPU shares of 0.1 or", ""]
)
def test_a_resource_of_another_kind_counts_no_cards(resource: str) -> None:
    assert cards_counted_by(resource) is None


@given(shares)
def test_terms_read_back_as_they_were_written(share: GpuShare) -> None:
    assert decode_share(encode_share(share)) == share
    assert decode_share(encode_share(replace(share, busy=400))) == share, "busy is not a term"


def test_terms_of_an_earlier_version_read_back_without_removed_fields() -> None:
    written = {**encode_share(GpuShare(50, high=True)), "limit": 80, "gated": False}
    assert decode_share(written) == GpuShare(50, high=True)


@given(json_values)
def test_malformed_terms_are_not_decoded(written: object) -> None:
    assert decode_share(written) is None


GOOD = encode_share(GpuShare(50))
BAD = {
    "more than a card": {**GOOD, "units": 101},
    "a string for a boolean": {**GOOD, "high": "yes"},
    "a boolean for a number": {**GOOD, "units": True},
    "no memory": {**GOOD, "memory": 0},
    "a loss budget of the whole speed": {**GOOD, "loss_budget": 1.0},
}


@pytest.mark.parametrize("written", BAD.values(), ids=BAD)
def test_impossible_terms_are_not_decoded(written: object) -> None:
    assert decode_share(written) is None


def test_only_a_low_priority_share_needs_time_beside_a_high_priority_sharer() -> None:
    assert GpuShare(50).need.idle == 200  # min_share is 0.2 by default
    assert GpuShare(50, high=True).need.idle == 0


def test_the_memory_of_a_need_is_rounded_up_to_mebibytes() -> None:
    assert GpuShare(50, memory=2**20 + 1).need.memory == 2


def test_a_job_that_is_not_always_busy_needs_less_idle_time() -> None:
    assert GpuShare(50, busy=500).need.idle == 100
    assert GpuShare(50, busy=501).need.idle == 101
    assert GpuShare(50, busy=0).need.idle == 0


@given(slot=st.integers(0, 63))
def test_a_slot_is_found_by_its_resource(slot: int) -> None:
    assert slot_of(resource_of(slot)) == slot
    assert len(set(units_of(slot))) == UNITS


OTHERS = (
    *("nvidia.com/gpu", "kfext.dev/gpu-", "kfext.dev/gpu-x", "kfext.dev/gpu-01"),
    *("kfext.dev/gpu-64", "kfext.dev/gpu-share", "kfext.dev/gpu--1", "kfext.dev/gpu-²"),
    "kfext.dev/gpu-" + "9" * 5000,
)


@pytest.mark.parametrize("resource", OTHERS)
def test_a_resource_of_another_kind_has_no_slot(resource: str) -> None:
    assert slot_of(resource) is None


def test_a_reservation_has_the_same_name_whoever_creates_it() -> None:
    assert reservation_of("node-a", 0) == reservation_of("node-a", 0)
    names = {reservation_of(node, slot) for node in ("node-a", "node-b") for slot in range(8)}
    assert len(names) == 16
    assert all(len(name) < 63 for name in names)
    assert len(reservation_of("a" * 253, 63)) < 63


def test_each_container_has_its_own_folder_name() -> None:
    units = units_of(3)
    assert folder_of(units[:30]) != folder_of(units[30:])
    assert folder_of(reversed(units[:30])) == folder_of(units[:30])
