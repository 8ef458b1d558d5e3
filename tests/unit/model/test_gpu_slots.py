import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.gpu_slots import UNITS, folder_of, reservation_of, resource_of, slot_of, units_of


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
def test_other_resources_are_no_slots(resource: str) -> None:
    assert slot_of(resource) is None


def test_a_reservation_has_the_same_name_whoever_makes_it() -> None:
    assert reservation_of("node-a", 0) == reservation_of("node-a", 0)
    names = {reservation_of(node, slot) for node in ("node-a", "node-b") for slot in range(8)}
    assert len(names) == 16
    assert all(len(name) < 63 for name in names)
    assert len(reservation_of("a" * 253, 63)) < 63


def test_no_two_containers_have_a_folder_of_one_name() -> None:
    units = units_of(3)
    assert folder_of(units[:30]) != folder_of(units[30:])
    assert folder_of(reversed(units[:30])) == folder_of(units[:30])
