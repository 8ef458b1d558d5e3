"""What a pod uses, from the readings of a counter that may begin anew under clocks that are set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.cpu_use import MOST_DRIFT, SHORTEST_WINDOW, CpuCounter, CpuReading, CpuUse


def reading(seconds: float, at: float, *, read: float | None = None) -> CpuReading:
    """A counter's state at a time; without `read`, our clock has gone as the node's has."""
    return CpuReading(seconds, at=at, read=at if read is None else read)


def followed(*readings: CpuReading) -> CpuCounter:
    first, *others = readings
    counter = CpuCounter(first)
    for one in others:
        counter = counter.then(one)
    return counter


COURSES: dict[str, tuple[list[CpuReading], CpuUse | None]] = {
    "of one reading nothing is known": ([reading(5, 100)], None),
    "two give the mean of the time between them": (
        [reading(5, 100), reading(11, 130)],
        CpuUse(0.2, at=130, window=30),
    ),
    "the last two count": (
        [reading(5, 100), reading(11, 130), reading(12, 140)],
        CpuUse(0.1, at=140, window=10),
    ),
    "a pod that does nothing uses nothing": (
        [reading(5, 100), reading(5, 130)],
        CpuUse(0.0, at=130, window=30),
    ),
    "the kubelet has not measured since: the last use still counts": (
        [reading(5, 100), reading(11, 130), reading(11, 130, read=135)],
        CpuUse(0.2, at=130, window=30),
    ),
    "readings that are too close are compared with the one before them": (
        [reading(0, 100), reading(1, 104), reading(2, 108)],
        CpuUse(0.25, at=108, window=8),
    ),
    "a kubelet that measures no more": (
        [reading(5, 100), reading(11, 130), reading(11, 130, read=170)],
        None,
    ),
    "the counter began anew": ([reading(50, 100), reading(1, 130)], None),
    "and is followed from there": (
        [reading(50, 100), reading(1, 130), reading(4, 160)],
        CpuUse(0.1, at=160, window=30),
    ),
    "the node's clock was set back": (
        [reading(5, 1000), reading(11, 130, read=1030)],
        None,
    ),
    "the node's clock was set forward": ([reading(5, 100), reading(11, 5000, read=130)], None),
    "the node's clock was set back by less than has passed": (
        [reading(0, 100), reading(30, 106, read=130)],
        None,
    ),
    "the kubelet measured a little earlier than it was read": (
        [reading(0, 95, read=100), reading(3, 125, read=135)],
        CpuUse(0.1, at=125, window=30),
    ),
}


@pytest.mark.parametrize(("readings", "want"), COURSES.values(), ids=COURSES)
def test_what_a_course_of_readings_shows(readings: list[CpuReading], want: CpuUse | None) -> None:
    assert followed(*readings).use == want


_numbers = st.floats(min_value=0, max_value=1e9)
_readings = st.builds(CpuReading, _numbers, at=_numbers, read=_numbers)


@given(st.lists(_readings, min_size=1, max_size=10))
def test_whatever_is_read_the_use_is_never_negative_and_of_no_shorter_window(
    readings: list[CpuReading],
) -> None:
    use = followed(*readings).use
    if use is not None:
        assert use.cores >= 0
        assert use.window >= SHORTEST_WINDOW


@given(st.lists(_readings, min_size=2, max_size=10))
def test_no_window_is_longer_than_the_time_in_which_it_was_read(
    readings: list[CpuReading],
) -> None:
    counter = CpuCounter(readings[0])
    for one in readings[1:]:
        before, counter = counter, counter.then(one)
        if counter.use is not None and counter is not before:
            assert counter.use.window <= one.read - before.reading.read + MOST_DRIFT
