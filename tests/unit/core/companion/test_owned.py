"""Whose a CPU limit is, and what is noted on the job before kfext writes one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.companion.owned import Owner, asked_of, noted, owner_of
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import REMEMBERED, AskedCpu, CpuState, decode_cpu
from kfext.model.pod import Pod
from tests.unit.core.companion.pods import REQUEST, running

BY = frozenset({"resize"})
NOTED = CpuState(asked={"worker": AskedCpu(20, 1000)}, written={"worker-0": (350, 500)}, by=BY)

OWNERS: dict[str, tuple[Pod, Owner]] = {
    "what the user asked for": (running(0, 1000), Owner.USER),
    "what was written last": (running(0, 350), Owner.KFEXT),
    "what was written before": (running(0, 500), Owner.KFEXT),
    "none, as on a pod that was made anew": (running(0), Owner.USER),
    "any other limit": (running(0, 777), Owner.OTHER),
    "what was written to another pod": (running(1, 350), Owner.OTHER),
    "a type of which nothing is noted": (running(0, 350, of="ps"), Owner.USER),
    "a pod that is no replica": (running(0, 777, replica=None), Owner.USER),
}


@pytest.mark.parametrize(("pod", "want"), OWNERS.values(), ids=OWNERS)
def test_who_set_a_limit(pod: Pod, want: Owner) -> None:
    assert owner_of(pod, NOTED) is want


def test_what_the_user_asked_for_is_noted_once_for_a_type() -> None:
    first = noted(CpuState(), [(running(0, 1000), CpuSize(350))], by=BY)
    then = noted(first, [(running(0, 350), CpuSize(500)), (running(1), CpuSize(500))], by=BY)
    assert asked_of(running(3), then) == first.asked["worker"] == AskedCpu(REQUEST, 1000)
    assert asked_of(running(0, of="ps"), then) is None


def test_what_the_user_wrote_for_single_pods_is_noted_for_all_pods_before_the_first_write() -> None:
    pods = [running(0, 400), running(1, 800), running(2, 400, request=30), running(0, of="ps")]
    first = noted(CpuState(), [(pods[0], CpuSize(200))], by=BY, pods=pods)
    assert first.asked == {
        "worker": AskedCpu(REQUEST, 400),
        "worker-1": AskedCpu(REQUEST, 800),
        "worker-2": AskedCpu(30, 400),
    }
    assert [owner_of(pod, first) for pod in pods] == [Owner.USER] * 4
    assert owner_of(running(1, 400), first) is Owner.OTHER
    assert decode_cpu(first.encode()) == first
    again = noted(first, [(running(1, 800), CpuSize(300))], by=BY, pods=[running(0, 200)])
    assert again.asked == first.asked


def test_a_pod_without_a_known_container_is_not_noted() -> None:
    state = noted(CpuState(), [(running(0, replica=None), CpuSize(1))], by=BY)
    assert (state.asked, state.written) == ({}, {})


def test_the_rest_of_the_state_stays() -> None:
    before = CpuState(rests={"shift": "why"}, used=5.0, lost=1.0, by=frozenset({"shift"}))
    after = noted(before, [(running(0, 1000), CpuSize(350))], by=BY)
    assert (after.rests, after.used, after.lost, after.by) == (before.rests, 5.0, 1.0, BY)


limits = st.integers(1, 2000)
asked = st.none() | limits
ARRIVES, LOST, DIED = "arrives", "its answer is lost", "the controller dies before it"


@given(
    user=asked,
    writes=st.lists(st.tuples(limits, st.sampled_from([ARRIVES, LOST, DIED])), min_size=1),
)
def test_whatever_a_write_came_to_the_limit_is_never_taken_for_that_of_others(
    user: int | None, writes: list[tuple[int, str]]
) -> None:
    """After an answer that was lost, the mirror has not seen yet what the pod has."""
    state, really, seen = CpuState(), user, user
    for limit, outcome in writes:
        state = noted(state, [(running(0, seen), CpuSize(limit))], by=BY)
        state = decode_cpu(state.encode())
        before, really = really, really if outcome == DIED else limit
        for one in (before, seen, really):
            assert owner_of(running(0, one), state) is not Owner.OTHER
        seen = before if outcome == LOST else really
    assert len(state.written["worker-0"]) <= REMEMBERED


@given(user=asked, writes=st.lists(limits, min_size=1), other=limits)
def test_a_limit_that_was_never_noted_is_that_of_others(
    user: int | None, writes: list[int], other: int
) -> None:
    state, now = CpuState(), user
    for limit in writes:
        state, now = noted(state, [(running(0, now), CpuSize(limit))], by=BY), limit
    if other not in {user, *writes}:
        assert owner_of(running(0, other), state) is Owner.OTHER
