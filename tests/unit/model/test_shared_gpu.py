"""The report of an agent about a slot: invalid values count as unknown."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.gpu import MAX_SLOTS
from kfext.model.shared_gpu import MAX_SHARERS, CardSharer, SharedGpu, parse_shared_gpu
from tests.unit.objects import Raw, json_values


def raw(spec: Raw | None = None, **status: Any) -> Raw:
    """Return the SharedGPU of slot 1 of node n."""
    return {
        "metadata": {"name": "gpu-1"},
        "spec": {"node": "n", "slot": 1, **(spec or {})},
        "status": status,
    }


def parsed(**status: Any) -> SharedGpu:
    result = parse_shared_gpu(raw(**status))
    assert result is not None
    return result


def test_every_field_of_a_report_is_read_and_invalid_values_are_left_out() -> None:
    sharers = [
        {"podUID": "a", "evict": True, "strikes": 3, "busyPermille": 450},
        {"podUID": "b", "evict": False, "lossPermille": 12, "harvestPermille": 2000},
        {"podUID": "c", "lossPermille": -1, "harvestPermille": 400, "strikes": 4},
        {"podUID": "d", "priority": "high", "strikes": "1", "unhooked": "any text"},
        {"podUID": "e", "unhooked": "HookFailed", "coarseMillis": 3_600_001},
        {"podUID": "f", "coarseMillis": 42, "guaranteeInfeasible": "true"},
        {"podUID": "g", "guaranteeInfeasible": True},
    ]
    result = parsed(
        reservation="uid",
        card="GPU-1",
        memoryMiB=16384,
        healthy=False,
        trouble="it is split by MIG",
        moved=True,
        sharers=sharers,
    )
    assert result == SharedGpu(
        "n",
        1,
        reservation="uid",
        card="GPU-1",
        memory=16384,
        healthy=False,
        trouble="it is split by MIG",
        moved=True,
        sharers=(
            CardSharer("a", busy=450, strikes=3, evict=True),
            CardSharer("b", loss=12),
            CardSharer("c", gets=400),
            CardSharer("d"),
            CardSharer("e", unhooked="HookFailed"),
            CardSharer("f", coarse=42),
            CardSharer("g", infeasible=True),
        ),
    )


def test_a_slot_without_a_report_has_the_defaults() -> None:
    assert parsed() == SharedGpu("n", 1)


@pytest.mark.parametrize("slot", [-1, MAX_SLOTS, True, 1.0, "1", None, [], 10**30])
def test_an_impossible_slot_is_ignored(slot: object) -> None:
    assert parse_shared_gpu(raw({"slot": slot})) is None


ODD: dict[str, tuple[str, object, object]] = {
    "no memory": ("memory", 0, 0),
    "negative memory": ("memory", -1, 0),
    "memory beyond all cards": ("memory", 2**32 + 1, 0),
    "memory as a string": ("memory", "16384", 0),
    "unknown health": ("healthy", None, True),
    "health as a string": ("healthy", "false", True),
    "a malformed problem": ("trouble", {"a": 1}, ""),
    "a problem that is too long": ("trouble", "x" * 300, "x" * 256),
    "moved as a string": ("moved", "true", False),
    "a card that is a number": ("card", 7, ""),
}
FIELDS = {"memory": "memoryMiB"}
BUSY: dict[str, tuple[object, int | None]] = {
    "idle": (0, 0),
    "always busy": (1000, 1000),
    "busier than always": (1001, None),
    "a negative number": (-1, None),
    "a boolean": (True, None),
    "a string": ("400", None),
}


@pytest.mark.parametrize(("written", "want"), BUSY.values(), ids=BUSY)
def test_an_impossible_busy_time_is_unknown(written: object, want: int | None) -> None:
    (sharer,) = parsed(sharers=[{"busyPermille": written}]).sharers
    assert sharer.busy == want


@pytest.mark.parametrize(("field", "written", "want"), ODD.values(), ids=ODD)
def test_an_impossible_value_counts_as_unknown(field: str, written: object, want: object) -> None:
    assert getattr(parsed(**{FIELDS.get(field, field): written}), field) == want


def test_no_more_sharers_are_read_than_a_card_has() -> None:
    sharers = [{"podUID": str(n), "evict": True} for n in range(MAX_SHARERS + 1)]
    assert len(parsed(sharers=sharers).sharers) == MAX_SHARERS


status = st.dictionaries(
    st.sampled_from(["reservation", "card", "memoryMiB", "healthy", "trouble", "moved", "sharers"]),
    json_values | st.lists(st.fixed_dictionaries({"podUID": json_values, "evict": json_values})),
)


@given(
    metadata=json_values,
    spec=st.fixed_dictionaries({"slot": st.just(1) | json_values, "node": json_values})
    | json_values,
    status=status | json_values,
)
def test_any_object_is_read_or_ignored(metadata: Any, spec: Any, status: Any) -> None:
    parsed = parse_shared_gpu({"metadata": metadata, "spec": spec, "status": status})
    if parsed is not None:
        assert 0 <= parsed.slot < MAX_SLOTS
        assert parsed.memory >= 0
        assert all(isinstance(word, str) for word in (parsed.node, parsed.card))
