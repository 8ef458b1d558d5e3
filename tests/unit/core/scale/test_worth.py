"""To how many workers a job grows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.scale.sizes import Sizes
from kfext.core.scale.speed import Speed, fitted
from kfext.core.scale.worth import HORIZON, LEAST_GAIN, SEEN_FACTOR, TRIAL_FACTOR, best_size

DIVIDED = Speed(12.0, 0.0, 0.0)
"""Twice the workers, twice the speed."""
FLAT = Speed(0.0, 1.0, 0.0)


def seen(of: Speed, *sizes: int) -> dict[int, float]:
    return {size: of.at(size) for size in sizes}


def grown(sizes: Sizes, **more: Any) -> int:
    given: dict[str, Any] = {"speeds": {}, "largest": 100, "room": 100, "pause": 20.0, "left": None}
    return best_size(sizes, **(given | more))


FULL = Sizes(4, 2, 16, 4)
"""It has what it asked for, and may grow further."""
SHRUNK = Sizes(4, 2, 16, 8)
"""It asked for more than it has."""

GIVEN_BACK: dict[str, tuple[dict[str, Any], int]] = {
    "all of it, at once": ({}, 8),
    "and no more as a trial in the same pause": ({"speeds": {4: 1.0}}, 8),
    "as much as there is room for": ({"room": 6}, 6),
    "at most twice the largest size seen": ({"largest": 3}, 6),
    "nothing without room": ({"room": 4}, 4),
    "though nothing is known of its speed, where half of its time makes up for the pause": (
        {"left": 41.0},
        8,
    ),
    "not for a job that ends before": ({"left": 40.0}, 4),
    "not where its speed is known to gain less": (
        {"left": 41.0, "speeds": seen(Speed(12.0, 1.0, 0.0), 4, 8)},
        4,
    ),
    "also where it was slower with more, as its user asked for them": (
        {"left": 41.0, "speeds": {4: 2.0, 8: 1.0}},
        8,
    ),
    "also where it gained nothing, if its end is unknown": ({"speeds": seen(FLAT, 4, 8)}, 8),
    "and more in the same pause if that pays": ({"left": 900.0, "speeds": seen(DIVIDED, 3, 4)}, 13),
}


@pytest.mark.parametrize(("more", "want"), GIVEN_BACK.values(), ids=GIVEN_BACK)
def test_D4_a_job_gets_back_what_it_asked_for(more: dict[str, Any], want: int) -> None:
    assert grown(SHRUNK, **more) == want


BEYOND: dict[str, tuple[dict[str, Any], int]] = {
    "not if nothing was measured": ({}, 4),
    "by one on trial, with one size measured": ({"speeds": {4: 1.0}}, 5),
    "not on trial shortly before its end": ({"speeds": {4: 1.0}, "left": 200.0}, 4),
    "on trial while the end is far": ({"speeds": {4: 1.0}, "left": 201.0}, 5),
    "not on trial without room": ({"speeds": {4: 1.0}, "room": 4}, 4),
    "not before its present size was measured": ({"speeds": {3: 1.0}}, 4),
    "nor then with two others": ({"speeds": seen(DIVIDED, 2, 3)}, 4),
    "as far as it may where a change costs nothing": (
        {"speeds": seen(DIVIDED, 3, 4), "pause": 0.0},
        16,
    ),
    "to twice the largest size seen": (
        {"speeds": seen(DIVIDED, 3, 4), "pause": 0.0, "largest": 4},
        8,
    ),
    "not where it gained too little": ({"speeds": {4: 1.0, 5: 1.01}, "pause": 0.0}, 4),
    "as far as the first size that gained too little": (
        {"speeds": {3: 0.75, 4: 1.0, 7: 1.7, 8: 1.7}, "pause": 0.0},
        7,
    ),
}


@pytest.mark.parametrize(("more", "want"), BEYOND.values(), ids=BEYOND)
def test_beyond_what_it_asked_for_a_job_grows(more: dict[str, Any], want: int) -> None:
    assert grown(FULL, **more) == want


@pytest.mark.parametrize("left", [None, 600.0])
def test_D7_growth_stops_where_the_next_worker_saves_no_more_than_a_pause_costs(
    left: float | None,
) -> None:
    steps = HORIZON * DIVIDED.at(4)
    for size in range(4, 10):
        saved = steps / DIVIDED.at(size) - steps / DIVIDED.at(size + 1)
        for pause, want in ((1.001 * saved, size), (0.999 * saved, size + 1)):
            assert grown(FULL, speeds=seen(DIVIDED, 3, 4), pause=pause, left=left) == want


def test_D7_a_job_that_is_no_faster_with_more_workers_never_grows_beyond_what_it_asked_for() -> (
    None
):
    for speeds in (seen(FLAT, 3, 4), {3: 1.2, 4: 1.0}, {4: 1.0, 5: 0.9}):
        assert grown(FULL, speeds=speeds, pause=0.0) == 4


def test_a_size_that_it_grew_to_is_not_left_for_another_at_once() -> None:
    """What is left of a job does not grow, so a second look finds nothing more to gain."""
    speeds = seen(Speed(12.0, 0.5, 0.05), 2, 3, 4)
    first = grown(FULL, speeds=speeds, left=2000.0)
    speed = fitted(speeds)
    assert speed is not None
    assert first > 4
    then = Sizes(first, 2, 16, 4)
    left = 2000.0 * speed.at(4) / speed.at(first)
    assert grown(then, speeds=speeds | {first: speed.at(first)}, left=left) == first


@st.composite
def all_sizes(draw: st.DrawFn) -> Sizes:
    least = draw(st.integers(1, 6))
    asked = least + draw(st.integers(0, 8))
    most = asked + draw(st.integers(0, 12))
    return Sizes(draw(st.integers(0, most + 2)), least, most, asked)


LEFT = st.one_of(st.none(), st.floats(0.0, 1e5))


@given(
    sizes=all_sizes(),
    speeds=st.dictionaries(st.integers(1, 24), st.floats(0.01, 100.0), max_size=6),
    largest=st.integers(0, 24),
    room=st.integers(0, 30),
    pause=st.floats(0.0, 300.0),
    left=LEFT,
)
def test_a_job_never_shrinks_and_never_grows_beyond_a_bound(
    *,
    sizes: Sizes,
    speeds: dict[int, float],
    largest: int,
    room: int,
    pause: float,
    left: float | None,
) -> None:
    size = best_size(sizes, speeds=speeds, largest=largest, room=room, pause=pause, left=left)
    bound = min(room, sizes.most, SEEN_FACTOR * largest)
    assert sizes.now <= size <= max(sizes.now, bound)
    if size > max(sizes.now, sizes.asked) and len(speeds) == 1:
        assert size == sizes.now + 1
        assert left is None or left > TRIAL_FACTOR * pause
    smaller = [one for one in speeds if one < size]
    if size > max(sizes.now, sizes.asked) and size in speeds and smaller:
        assert speeds[size] >= (1 + LEAST_GAIN) * speeds[max(smaller)]


@given(
    all_sizes(),
    st.builds(Speed, st.floats(0.1, 100.0), st.floats(0.0, 10.0), st.floats(0.0, 1.0)),
    st.floats(0.0, 100.0),
    st.floats(0.0, 1e5),
)
def test_what_a_growth_saves_is_more_than_it_costs(
    sizes: Sizes, of: Speed, pause: float, left: float
) -> None:
    """Of a job whose speed is known."""
    speeds = seen(of, *{1, 2, 3, max(1, sizes.now)})
    size = best_size(sizes, speeds=speeds, largest=100, room=100, pause=pause, left=left)
    found = fitted(speeds)
    assert found is not None
    if size > sizes.now and found.at(size) > found.at(sizes.now):
        assert left - left * found.at(sizes.now) / found.at(size) > 0.999 * pause
