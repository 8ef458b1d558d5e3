"""The stored state of sizes reads back as written, and is bounded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.pod import ReplicaKey
from kfext.model.scale_state import MAX_SPEEDS, ScaleState, StopState, decode_scale, decode_stop
from tests.unit.objects import json_values

sizes = st.integers(min_value=0, max_value=10_000)
tenths = st.integers(min_value=0, max_value=2**33).map(lambda number: number / 10)
scale_states = st.builds(
    ScaleState,
    before=sizes,
    changed_at=tenths,
    cause=st.sampled_from(["", "guard", "growth"]),
    largest=sizes,
    failed=sizes,
    pause=tenths,
    speeds=st.dictionaries(sizes, st.integers(1, 999).map(float), max_size=MAX_SPEEDS),
    disabled=st.text(max_size=15),
)

stop_states = st.builds(
    StopState,
    at=tenths,
    count=sizes,
    waiting=st.text(max_size=15),
    places=st.sampled_from([{}, {ReplicaKey("worker", 0): "a", ReplicaKey("worker", 2): "b"}]),
    restarts=sizes,
)


@given(scale_states)
def test_the_state_reads_back_as_it_was_written(state: ScaleState) -> None:
    assert decode_scale(json.loads(json.dumps(state.encode()))) == state


@given(stop_states)
def test_a_stop_reads_back_as_it_was_written(state: StopState) -> None:
    assert decode_stop(json.loads(json.dumps(state.encode()))) == state


@given(json_values)
def test_any_written_state_can_be_read(raw: Any) -> None:
    decode_scale(raw if isinstance(raw, dict) else {"speeds": raw})
    decode_stop(raw if isinstance(raw, dict) else {"nodes": raw, "for": raw})


DAMAGED: dict[str, tuple[dict[str, Any], ScaleState]] = {
    "nothing": ({}, ScaleState()),
    "a state that kfext writes": (
        {"before": 4, "cause": "guard", "speeds": {"2": 1.5}},
        ScaleState(before=4, cause="guard", speeds={2: 1.5}),
    ),
    "a malformed size": ({"speeds": {"two": 1.0, "2": 1.0}}, ScaleState(speeds={2: 1.0})),
    "a malformed speed": ({"speeds": {"1": 0, "2": -1.0, "3": True}}, ScaleState()),
    "an infinite size": ({"before": float("inf"), "largest": 1e99}, ScaleState()),
    "a negative size": ({"failed": -3}, ScaleState()),
}


@pytest.mark.parametrize(("raw", "want"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_parts_are_left_out(raw: dict[str, Any], want: ScaleState) -> None:
    assert decode_scale(raw) == want


def test_of_too_many_speeds_the_speeds_of_the_smallest_sizes_are_kept() -> None:
    many = ScaleState(speeds={size: float(size) for size in range(1, 40)})
    assert list(decode_scale(many.encode()).speeds) == list(range(1, MAX_SPEEDS + 1))
