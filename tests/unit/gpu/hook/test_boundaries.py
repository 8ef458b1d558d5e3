from hypothesis import given
from hypothesis import strategies as st

from kfext.gpu.hook.boundaries import choose, longest_between

Step = list[tuple[int, float]]
LAPS = st.lists(st.tuples(st.integers(0, 30), st.floats(0.0001, 0.02)), min_size=1, max_size=60)


def laps(*seconds: float) -> Step:
    return list(enumerate(seconds))


def test_places_are_kept_so_that_the_work_between_two_is_one_micro_step() -> None:
    assert choose([laps(0.002, 0.002, 0.002, 0.001, 0.004)], 0.005) == {0, 2, 4}


def test_after_a_place_with_more_work_than_that_the_next_one_is_kept() -> None:
    assert choose([laps(0.001, 0.030, 0.001, 0.001)], 0.005) == {0, 1, 2}


def test_one_slow_step_decides_nothing() -> None:
    quick, slow = laps(0.001, 0.001, 0.001), laps(0.001, 0.9, 0.001)
    assert choose([quick, slow, quick], 0.005) == {0}


@given(steps=st.lists(LAPS, min_size=1, max_size=5))
def test_no_stretch_is_longer_than_a_micro_step_or_one_lap(steps: list[Step]) -> None:
    longest = 0.005
    kept = choose(steps, longest)
    most = max(seconds for step in steps for _, seconds in step)
    assert longest_between(steps, kept) <= max(longest, most) + 1e-9
    assert all(step[0][0] in kept for step in steps)


@given(steps=st.lists(LAPS, min_size=1, max_size=5))
def test_longer_micro_steps_never_need_more_places_of_one_step(steps: list[Step]) -> None:
    unique = [list({place: (place, lap) for place, lap in step}.values()) for step in steps[:1]]
    assert len(choose(unique, 0.010)) <= len(choose(unique, 0.005))
