"""Room that is kept, and what it leaves to the others."""

import math

import pytest

from kfext.core.queue.reservation import Reservation

LETS_IN = {
    "a job that ends before": (100.0, 90.0, True),
    "a job that ends at the same time": (100.0, 100.0, True),
    "a job that ends later": (100.0, 101.0, False),
    "a job of which nobody knows when it ends": (100.0, None, False),
    "nobody, when nobody knows what the head waits for": (math.inf, 90.0, False),
}


@pytest.mark.parametrize(("until", "ends", "want"), LETS_IN.values(), ids=LETS_IN.keys())
def test_D5_who_may_start_in_kept_room(until: float, ends: float | None, want: bool) -> None:
    kept_room = Reservation("head", ("a",), ("x",), until, 1.0, {})
    assert kept_room.lets_in(ends) is want
