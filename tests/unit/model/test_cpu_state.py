"""The stored state of resizes reads back as written, and is bounded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.bounds import cut
from kfext.model.cpu_state import MAX_RESIZED, CpuState, PodCpu, decode_cpu
from tests.unit.objects import json_values

types = st.sampled_from(["worker", "master", "ps"])
# Indices: of three types at most MAX_RESIZED / 2 pods in sum, so that all are stored.
unlike = st.integers(0, MAX_RESIZED // 2 // 3 - 1)
names = types | st.builds(lambda type_, index: f"{type_}-{index}", types, unlike)
amounts = st.integers(min_value=1, max_value=2**20)
pod_cpus = st.builds(PodCpu, amounts, st.none() | amounts)
cpu_states = st.builds(
    CpuState,
    requested=st.dictionaries(names, pod_cpus),
    written=st.dictionaries(
        st.builds(lambda type_, index: f"{type_}-{index}", types, st.integers(0, 10_000)),
        st.lists(pod_cpus, min_size=1, max_size=3).map(tuple),
        max_size=5,
    ),
    by=st.frozensets(st.sampled_from(["resize", "shift"])),
    disabled=st.dictionaries(st.sampled_from(["resize", "shift"]), st.text(max_size=15)),
)


@given(cpu_states)
def test_the_state_reads_back_as_it_was_written(state: CpuState) -> None:
    assert decode_cpu(json.loads(json.dumps(state.encode()))) == state


@given(json_values | st.fixed_dictionaries({}, optional=dict.fromkeys(
    ["asked", "written", "by", "rests"],
    st.dictionaries(st.sampled_from(["worker", "0", "-1"]), json_values) | json_values,
)))  # fmt: skip
def test_any_written_state_can_be_read(raw: Any) -> None:
    result = decode_cpu(raw if isinstance(raw, dict) else {})
    assert isinstance(hash((*result.written.values(), *result.requested.values())), int)


WRITTEN = {"worker": {"0": [[370], [20, 1400]]}}
DAMAGED: dict[str, tuple[dict[str, Any], CpuState]] = {
    "nothing": ({}, CpuState()),
    "a state that kfext writes": (
        {"asked": {"worker": [20]}, "written": WRITTEN},
        CpuState(
            {"worker": PodCpu(20, None)}, {"worker-0": (PodCpu(370, None), PodCpu(20, 1400))}
        ),
    ),
    "more sizes than kfext writes": (
        {"written": {"worker": {"0": [[4], [3], [2], [1]]}}},
        CpuState(written={"worker-0": (PodCpu(4, None), PodCpu(3, None), PodCpu(2, None))}),
    ),
    "a limit that is not a number": ({"written": {"worker": {"0": [[700, "1"]]}}}, CpuState()),
    "a request that is a boolean": ({"written": {"worker": {"0": [[True]]}}}, CpuState()),
    "a negative request": ({"written": {"worker": {"0": [[-1]]}}}, CpuState()),
    "an index in other digits": ({"written": {"worker": {"\u0661": [[1]]}}}, CpuState()),
    "a reason that is not a string": (
        {"rests": {"resize": 1, "shift": "a"}}, CpuState(disabled={"shift": "a"})
    ),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "want"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_parts_are_left_out(raw: dict[str, Any], want: CpuState) -> None:
    assert decode_cpu(raw) == want


def test_an_empty_state_is_not_written() -> None:
    assert CpuState().encode() == {}


def test_pods_and_policies_beyond_the_bounds_are_not_written() -> None:
    many = CpuState(
        written={f"worker-{index}": (PodCpu(100, None),) for index in range(1000)},
        disabled={f"policy-{number}": "why" for number in range(100)},
    )
    result = decode_cpu(many.encode())
    assert (len(result.written), len(result.disabled)) == (MAX_RESIZED, 8)


def test_a_reason_is_cut_to_the_bytes_that_fit() -> None:
    long = CpuState(disabled={"resize": "\U0001f600" * 200})
    (longer,), (short,) = (
        decode_cpu(long.encode(longest=longest)).disabled.values() for longest in (1024, 64)
    )
    assert 0 < len(json.dumps(short)) <= 64 < len(json.dumps(longer)) <= 200
    assert cut("short", most=64) == "short"


def test_a_job_without_its_pods_keeps_its_disabled_policies() -> None:
    state = CpuState(
        requested={"worker": PodCpu(20, None)},
        written={"worker-0": (PodCpu(700, None),)},
        by=frozenset({"resize"}),
        disabled={"resize": "a"},
    )
    assert state.without_pods() == CpuState(disabled={"resize": "a"})
