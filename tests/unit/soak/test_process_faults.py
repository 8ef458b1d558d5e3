"""The soak's record of the leadership and of the memory of kfext's processes."""

import os

import pytest

from e2e.soak.process_faults import Leadership, limit_bytes, peak_bytes, too_large

FIRST, SECOND = 11, 22


def hand_over(leadership: Leadership, *, at: float) -> Leadership:
    leadership.record_holder(SECOND, at=at)
    return leadership


@pytest.fixture
def leadership() -> Leadership:
    leadership = Leadership()
    leadership.record_holder(FIRST, at=0.0)
    return leadership


def test_a_leader_without_a_fault_keeps_its_lease(leadership: Leadership) -> None:
    leadership.record_holder(FIRST, at=1.0)
    leadership.record_holder(None, at=2.0)
    leadership.record_holder(FIRST, at=3.0)
    assert (leadership.changes, leadership.unexplained) == (0, [])
    assert len(hand_over(leadership, at=4.0).unexplained) == 1


def test_a_leader_that_was_killed_loses_its_lease(leadership: Leadership) -> None:
    leadership.record_fault(FIRST)
    leadership.record_holder(None, at=6.0)
    assert (hand_over(leadership, at=500.0).changes, leadership.unexplained) == (1, [])


def test_a_pause_long_ago_explains_nothing(leadership: Leadership) -> None:
    leadership.record_fault(FIRST)
    leadership.resume(FIRST, at=10.0)
    assert len(hand_over(leadership, at=41.0).unexplained) == 1


def test_a_late_successor_does_not_make_a_loss_unexpected(leadership: Leadership) -> None:
    leadership.record_fault(FIRST)
    leadership.resume(FIRST, at=10.0)
    leadership.record_holder(None, at=12.0)
    leadership.record_holder(None, at=60.0)
    assert (hand_over(leadership, at=73.0).changes, leadership.unexplained) == (1, [])


def test_peak_memory_is_compared_with_the_limit_of_the_deployment() -> None:
    assert peak_bytes(os.getpid()) > 1 << 20
    assert peak_bytes(None) == 0
    assert limit_bytes() == 512 << 20
    assert too_large(limit_bytes() - 1, limit_bytes()) == []
    assert too_large(limit_bytes(), limit_bytes()) != []
