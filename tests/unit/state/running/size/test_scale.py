"""How the size of a job can change, and to what size it scales up.

Names with D6 or another code check the statements of tests/statements.md.
"""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.elastic import interrupts, starts_anew, with_workers
from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob
from kfext.state.running.size.scale import (
    HORIZON,
    MIN_GAIN,
    SEEN_FACTOR,
    TRIAL_FACTOR,
    Sizes,
    Speed,
    best_size,
    fit_speed,
    sizes_of,
)
from tests.builders import JobBuilder, job
from tests.unit.state.running.elastic_jobs import dynamic, mirrored, torchrun

IN_PLACE: dict[str, tuple[TrainingJob, bool, bool]] = {
    "torchrun's agents restart all workers in place": (torchrun(), True, False),
    "torchrun, if an error of an agent fails the job": (torchrun(restart="Never"), True, True),
    "torchrun, if an exit code may fail the job": (torchrun(restart="ExitCode"), True, True),
    "dynamic workers come and go": (dynamic(), False, False),
    "dynamic workers, if the default policy fails the job": (dynamic(restart=""), True, True),
    "dynamic workers, if an exit code may fail the job": (dynamic(restart="ExitCode"), True, True),
    "workers that know all others restart": (mirrored(), True, True),
}


@pytest.mark.parametrize(("training", "interrupted", "anew"), IN_PLACE.values(), ids=IN_PLACE)
def test_whether_a_change_of_size_interrupts_a_job_or_starts_it_anew(
    training: TrainingJob, *, interrupted: bool, anew: bool
) -> None:
    assert starts_anew(training) is anew
    assert interrupts(training) is interrupted


def torch(workers: int, **policy: int) -> JobBuilder:
    return job().worker(workers, cpu="1").elastic(**policy)


def dynamic_job(workers: int) -> JobBuilder:
    builder = job("TFJob").ps(2, cpu="1").group("Chief", 1, cpu="1").worker(workers, cpu="1")
    builder.raw["spec"]["enableDynamicWorker"] = True
    return builder


class Case(NamedTuple):
    """A job and its sizes; `allowed`, `requested`: its setting and its requested size."""

    builder: JobBuilder
    want: Sizes
    allowed: Range = Range(2, 8)
    requested: int = 4


SIZES: dict[str, Case] = {
    "the range of the setting": Case(torch(4), Sizes(4, 2, 8, 4)),
    "without a recorded requested size, the present size is requested": Case(
        torch(4), Sizes(4, 2, 8, 4), requested=0
    ),
    "a job below its requested size": Case(torch(3), Sizes(3, 2, 8, 6), requested=6),
    "a job that was scaled up has the same minimum": Case(torch(6), Sizes(6, 4, 8, 4), Range(5, 8)),
    "a chief counts, servers do not": Case(dynamic_job(4), Sizes(4, 2, 7, 4), Range(3, 8)),
    "torchrun's own bounds count": Case(torch(4, minReplicas=3, maxReplicas=6), Sizes(4, 3, 6, 4)),
    "a requested size beyond the setting": Case(torch(9), Sizes(9, 2, 9, 9), requested=9),
    "a requested size beyond torchrun's bound": Case(
        torch(4, maxReplicas=6), Sizes(4, 2, 6, 9), requested=9
    ),
    "bounds that contradict each other leave one size": Case(
        torch(4, minReplicas=4, maxReplicas=3), Sizes(4, 3, 3, 4), Range(4, 8)
    ),
    "a job that cannot run with fewer workers keeps them": Case(job().worker(4), Sizes(4, 4, 8, 4)),
    "a TFJob may restart with fewer workers": Case(job("TFJob").worker(4), Sizes(4, 2, 8, 4)),
}


@pytest.mark.parametrize(("builder", "want", "allowed", "requested"), SIZES.values(), ids=SIZES)
def test_D6_the_sizes_that_a_job_may_have(
    builder: JobBuilder, allowed: Range, requested: int, want: Sizes
) -> None:
    assert sizes_of(builder.build(), allowed, requested=requested) == want


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 3), st.integers(1, 9))
def test_D6_the_bounds_of_a_job_do_not_depend_on_its_present_size(
    minimum: int, now: int, more: int, requested: int
) -> None:
    job, allowed = torch(requested).build(), Range(minimum, minimum + more)
    result = sizes_of(with_workers(job, now), allowed, requested=requested)
    assert (result.least, result.most) == (
        sizes_of(job, allowed, requested=requested).least,
        sizes_of(job, allowed, requested=requested).most,
    )
    assert 1 <= result.least <= requested <= result.most


SPEEDS = st.dictionaries(
    st.integers(-1, 10_000), st.floats(allow_nan=True, allow_infinity=True), max_size=20
)
TERM = st.one_of(st.just(0.0), st.floats(0.01, 100.0))


def at_sizes(speed: Speed, *sizes: int) -> dict[int, float]:
    return {size: speed.at(size) for size in sizes}


EXACT: dict[str, Speed] = {
    "all work is divided": Speed(8.0, 0.0, 0.0),
    "some work is constant": Speed(8.0, 1.0, 0.0),
    "each worker adds overhead": Speed(8.0, 0.0, 0.25),
    "all three": Speed(8.0, 1.0, 0.25),
    "all work is constant": Speed(0.0, 1.0, 0.0),
}


@pytest.mark.parametrize("speed", EXACT.values(), ids=EXACT)
def test_a_speed_that_follows_the_formula_is_fitted_exactly(speed: Speed) -> None:
    fit = fit_speed(at_sizes(speed, 1, 2, 4, 6))
    assert fit is not None
    assert [fit.at(size) for size in (3, 8, 12)] == pytest.approx(
        [speed.at(size) for size in (3, 8, 12)], rel=1e-3
    )


@given(TERM, TERM, TERM, st.sets(st.integers(1, 64), min_size=3, max_size=16))
def test_the_fit_meets_the_speeds_at_the_measured_sizes(
    divided: float, constant: float, added: float, sizes: set[int]
) -> None:
    speed = Speed(divided or 1.0, constant, added)
    fit = fit_speed(at_sizes(speed, *sizes))
    assert fit is not None
    for size in sizes:
        assert fit.at(size) == pytest.approx(speed.at(size), rel=1e-3)


def test_a_speed_that_falls_gives_no_negative_term() -> None:
    fit = fit_speed({1: 1.0, 2: 1.6, 3: 1.5, 4: 1.2})
    assert fit is not None
    assert min(fit.divided, fit.constant, fit.added) >= 0
    assert fit.at(5) < fit.at(3)


def test_of_the_fits_of_two_sizes_the_slowest_at_larger_sizes_is_chosen() -> None:
    fit = fit_speed({1: 1.0, 2: 1.5})
    divided_and_constant = Speed(2 / 3, 1 / 3, 0.0)
    assert fit is not None
    assert fit.at(2) == pytest.approx(1.5)
    assert fit.at(4) < 0.9 * divided_and_constant.at(4)


TOO_FEW: dict[str, dict[int, float]] = {
    "no size": {},
    "one size": {4: 2.0},
    "one size with a possible speed": {4: 2.0, 5: 0.0, 6: float("nan"), 7: float("inf"), 8: -1.0},
    "one size with workers": {4: 2.0, 0: 2.0},
}


@pytest.mark.parametrize("speeds", TOO_FEW.values(), ids=TOO_FEW)
def test_there_is_no_fit_of(speeds: dict[int, float]) -> None:
    assert fit_speed(speeds) is None


def test_only_the_16_largest_sizes_are_fitted() -> None:
    slow = dict.fromkeys(range(1, 100), 0.001)
    fit = fit_speed(slow | at_sizes(Speed(8.0, 1.0, 0.0), *range(100, 116)))
    assert fit is not None
    assert fit.at(120) == pytest.approx(Speed(8.0, 1.0, 0.0).at(120), rel=1e-3)


def test_without_workers_there_is_no_speed() -> None:
    assert Speed(1.0, 0.0, 0.0).at(0) == 0.0


@given(SPEEDS, st.integers(1, 20_000))
def test_any_fit_is_a_positive_speed(speeds: dict[int, float], workers: int) -> None:
    fit = fit_speed(speeds)
    assert fit is None or 0.0 < fit.at(workers) < float("inf")


DIVIDED = Speed(12.0, 0.0, 0.0)
"""Twice the workers, twice the speed."""
FLAT = Speed(0.0, 1.0, 0.0)
"""The same speed with any number of workers."""


def chosen_size(sizes: Sizes, **more: Any) -> int:
    """Return the best size of a job; `more`: arguments of `best_size` other than these."""
    given: dict[str, Any] = {"speeds": {}, "largest": 100, "fitting": 100, "pause": 20.0}
    return best_size(sizes, **(given | {"remaining": None} | more))


FULL = Sizes(4, 2, 16, 4)
"""It has its requested size, and may scale up further."""
BELOW_REQUESTED = Sizes(4, 2, 16, 8)
"""It is below its requested size."""

REGAINED: dict[str, tuple[dict[str, Any], int]] = {
    "to its requested size, at once": ({}, 8),
    "no further to try one more worker": ({"speeds": {4: 1.0}}, 8),
    "up to the capacity": ({"fitting": 6}, 6),
    "at most to twice the largest observed size": ({"largest": 3}, 6),
    "not without capacity": ({"fitting": 4}, 4),
    "at unknown speed, if half of its remaining time exceeds the cost": ({"remaining": 41.0}, 8),
    "not if it ends before the gain exceeds the cost": ({"remaining": 40.0}, 4),
    "not if its known speeds gain too little": (
        {"remaining": 41.0, "speeds": at_sizes(Speed(12.0, 1.0, 0.0), 4, 8)},
        4,
    ),
    "although it was slower there, as its user requested that size": (
        {"remaining": 41.0, "speeds": {4: 2.0, 8: 1.0}},
        8,
    ),
    "although it gained nothing, if its end is unknown": ({"speeds": at_sizes(FLAT, 4, 8)}, 8),
    "further if that pays": ({"remaining": 900.0, "speeds": at_sizes(DIVIDED, 3, 4)}, 13),
}


@pytest.mark.parametrize(("more", "want"), REGAINED.values(), ids=REGAINED)
def test_D4_a_job_regains_its_requested_size(more: dict[str, Any], want: int) -> None:
    assert chosen_size(BELOW_REQUESTED, **more) == want


BEYOND: dict[str, tuple[dict[str, Any], int]] = {
    "not before any speed was measured": ({}, 4),
    "by one worker on trial, if only its present size was measured": ({"speeds": {4: 1.0}}, 5),
    "not on trial shortly before its end": ({"speeds": {4: 1.0}, "remaining": 200.0}, 4),
    "on trial if over ten times the cost remains": ({"speeds": {4: 1.0}, "remaining": 201.0}, 5),
    "not on trial without capacity": ({"speeds": {4: 1.0}, "fitting": 4}, 4),
    "not before its present size was measured": ({"speeds": {3: 1.0}}, 4),
    "not from two other sizes": ({"speeds": at_sizes(DIVIDED, 2, 3)}, 4),
    "to the maximum if it costs nothing": ({"speeds": at_sizes(DIVIDED, 3, 4), "pause": 0.0}, 16),
    "to twice the largest size": (
        {"speeds": at_sizes(DIVIDED, 3, 4), "pause": 0.0, "largest": 4},
        8,
    ),
    "not to a size that gained too little": ({"speeds": {4: 1.0, 5: 1.01}, "pause": 0.0}, 4),
    "up to the first size that gained too little": (
        {"speeds": {3: 0.75, 4: 1.0, 7: 1.7, 8: 1.7}, "pause": 0.0},
        7,
    ),
}


@pytest.mark.parametrize(("more", "want"), BEYOND.values(), ids=BEYOND)
def test_growth_beyond_the_requested_size(more: dict[str, Any], want: int) -> None:
    assert chosen_size(FULL, **more) == want


@pytest.mark.parametrize("remaining", [None, 600.0])
def test_D7_growth_stops_where_one_more_worker_saves_no_more_than_a_change_costs(
    remaining: float | None,
) -> None:
    steps = HORIZON * DIVIDED.at(4)
    for size in range(4, 10):
        saved = steps / DIVIDED.at(size) - steps / DIVIDED.at(size + 1)
        for pause, want in ((1.001 * saved, size), (0.999 * saved, size + 1)):
            assert (
                chosen_size(FULL, speeds=at_sizes(DIVIDED, 3, 4), pause=pause, remaining=remaining)
                == want
            )


def test_D7_a_job_that_is_no_faster_with_more_workers_never_exceeds_its_requested_size() -> None:
    for speeds in (at_sizes(FLAT, 3, 4), {3: 1.2, 4: 1.0}, {4: 1.0, 5: 0.9}):
        assert chosen_size(FULL, speeds=speeds, pause=0.0) == 4


def test_a_job_does_not_change_its_size_again_at_once() -> None:
    """The remaining time does not increase, so a second decision finds no further gain."""
    speeds = at_sizes(Speed(12.0, 0.5, 0.05), 2, 3, 4)
    first = chosen_size(FULL, speeds=speeds, remaining=2000.0)
    speed = fit_speed(speeds)
    assert speed is not None
    assert first > 4
    after = Sizes(first, 2, 16, 4)
    remaining = 2000.0 * speed.at(4) / speed.at(first)
    assert (
        chosen_size(after, speeds=speeds | {first: speed.at(first)}, remaining=remaining) == first
    )


@st.composite
def all_sizes(draw: st.DrawFn) -> Sizes:
    least = draw(st.integers(1, 6))
    requested = least + draw(st.integers(0, 8))
    most = requested + draw(st.integers(0, 12))
    return Sizes(draw(st.integers(0, most + 2)), least, most, requested)


REMAINING = st.one_of(st.none(), st.floats(0.0, 1e5))


@given(
    sizes=all_sizes(),
    speeds=st.dictionaries(st.integers(1, 24), st.floats(0.01, 100.0), max_size=6),
    largest=st.integers(0, 24),
    fitting=st.integers(0, 30),
    pause=st.floats(0.0, 300.0),
    remaining=REMAINING,
)
def test_a_job_is_never_scaled_down_nor_scaled_up_beyond_a_bound(
    *,
    sizes: Sizes,
    speeds: dict[int, float],
    largest: int,
    fitting: int,
    pause: float,
    remaining: float | None,
) -> None:
    size = best_size(
        sizes, speeds=speeds, largest=largest, fitting=fitting, pause=pause, remaining=remaining
    )
    bound = min(fitting, sizes.most, SEEN_FACTOR * largest)
    assert sizes.now <= size <= max(sizes.now, bound)
    if size > max(sizes.now, sizes.requested) and len(speeds) == 1:
        assert size == sizes.now + 1
        assert remaining is None or remaining > TRIAL_FACTOR * pause
    smaller = [speed for speed in speeds if speed < size]
    if size > max(sizes.now, sizes.requested) and size in speeds and smaller:
        assert speeds[size] >= (1 + MIN_GAIN) * speeds[max(smaller)]


@given(
    all_sizes(),
    st.builds(Speed, st.floats(0.1, 100.0), st.floats(0.0, 10.0), st.floats(0.0, 1.0)),
    st.floats(0.0, 100.0),
    st.floats(0.0, 1e5),
)
def test_growth_of_a_job_with_a_known_speed_saves_more_than_it_costs(
    sizes: Sizes, speed: Speed, pause: float, remaining: float
) -> None:
    speeds = at_sizes(speed, *{1, 2, 3, max(1, sizes.now)})
    size = best_size(
        sizes, speeds=speeds, largest=100, fitting=100, pause=pause, remaining=remaining
    )
    fit = fit_speed(speeds)
    assert fit is not None
    if size > sizes.now and fit.at(size) > fit.at(sizes.now):
        assert remaining - remaining * fit.at(sizes.now) / fit.at(size) > 0.999 * pause
