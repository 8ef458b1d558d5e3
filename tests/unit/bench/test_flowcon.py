"""FlowCon as published: progress, growth and limits, computed by hand from its published code."""

from collections.abc import Sequence

import pytest

from e2e.bench.model.flowcon import Algorithm, Timer, growth, progress

ALL = frozenset({"a", "b"})


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        # The largest loss is 4: the means are 4/4 before and 1/4 now, so 0.75 in 30 s.
        pytest.param([(45, 4.0), (75, 1.0)], 0.025, id="a loss that falls"),
        pytest.param([(45, 1.0), (75, 4.0)], 0.025, id="a loss that rises counts as well: a fault"),
        # (4 + 2) / 2 / 4 = 0.75 before, (2 + 1) / 2 / 4 = 0.375 now.
        pytest.param(
            [(41, 4.0), (60, 2.0), (71, 2.0), (99, 1.0)], 0.0125, id="means of the two windows"
        ),
        # The same fall, divided by the peak of 40, is a tenth as large.
        pytest.param(
            [(1, 40.0), (45, 4.0), (75, 1.0)], 0.0025, id="an early peak makes it small: a fault"
        ),
        pytest.param([(75, 1.0)], 0.0, id="nothing printed in the window before"),
        pytest.param([(45, 1.0)], 0.0, id="nothing printed in the last window"),
        pytest.param([], 0.0, id="nothing printed at all"),
        pytest.param([(45, 0.0), (75, 0.0)], 0.0, id="a loss that is always 0"),
        # 4/4 before, (4 + 2) / 2 / 4 now.
        pytest.param([(70, 4.0), (99, 2.0)], 0.25 / 30, id="a value on the border is in both"),
    ],
)
def test_progress_is_the_change_per_second_of_the_mean_normalised_loss(
    losses: Sequence[tuple[float, float]], expected: float
) -> None:
    assert progress(losses, now=100, interval=30) == pytest.approx(expected)


def test_growth_is_progress_divided_by_the_used_fraction_of_the_machine() -> None:
    assert growth(0.01, 0.25) == pytest.approx(0.04)
    assert growth(0.01, 0.001) == pytest.approx(10)  # no floor: a fault
    assert growth(0.01, None) == growth(0.01, 0.0) == 0.0


def test_growing_containers_get_their_share_and_watched_containers_keep_their_limit() -> None:
    algorithm = Algorithm(0.03)
    assert algorithm.run({"a": 0.09, "b": 0.03, "c": 0.0}) == pytest.approx({"a": 0.75, "b": 0.25})


def test_a_container_without_growth_for_two_rounds_gets_its_share_but_at_least_the_floor() -> None:
    algorithm = Algorithm(0.03)
    assert algorithm.run({"a": 0.08, "b": 0.02, "c": 0.0}) == pytest.approx({"a": 0.8})
    # b has 20 % of all growth, less than 1/(3+1).
    limits = algorithm.run({"a": 0.08, "b": 0.02, "c": 0.0})
    assert limits == pytest.approx({"a": 0.8, "b": 0.25, "c": 0.25})
    # With alpha so high, a container that does not "grow" may have most of the growth.
    strict = Algorithm(1.0)
    strict.run({"a": 0.9, "b": 0.1})
    strict.run({"a": 0.9, "b": 0.1})
    assert strict.all_completing


def test_a_completing_container_with_more_growth_than_the_floor_gets_its_share_of_growth() -> None:
    algorithm = Algorithm(0.05)
    for _ in range(2):
        limits = algorithm.run({"a": 0.04, "b": 0.06})
    assert limits == pytest.approx({"a": 0.4, "b": 0.6})


def test_one_round_of_growth_takes_a_container_off_every_list() -> None:
    algorithm = Algorithm(0.03)
    for _ in range(3):
        algorithm.run({"a": 0.09, "b": 0.0})
    assert algorithm.run({"a": 0.09, "b": 0.09}) == pytest.approx({"a": 0.5, "b": 0.5})
    # Without growth, a is watched again for a round before it is limited.
    assert algorithm.run({"a": 0.09, "b": 0.0}) == pytest.approx({"a": 1.0})


def test_limits_are_lifted_one_round_after_all_have_converged() -> None:
    algorithm = Algorithm(0.03)
    algorithm.run({"a": 0.01, "b": 0.0})
    assert algorithm.run({"a": 0.01, "b": 0.0}) == pytest.approx({"a": 1.0, "b": 1 / 3})
    assert algorithm.all_completing  # and b is held down nevertheless: a fault
    assert algorithm.run({"a": 0.01, "b": 0.0}) == {"a": 1.0, "b": 1.0}


def test_no_limit_changes_while_there_is_no_growth_at_all() -> None:
    algorithm = Algorithm(0.03)
    assert algorithm.run({"a": 0.0, "b": 0.0}) == {}
    assert algorithm.run({"a": 0.0, "b": 0.0}) == {}
    assert algorithm.run({"a": 0.0, "b": 0.0}) == {"a": 1.0, "b": 1.0}


def test_a_new_container_with_the_name_of_an_ended_container_is_on_no_list() -> None:
    algorithm = Algorithm(0.03)
    for _ in range(2):
        algorithm.run({"a": 0.09, "b": 0.0})
    algorithm.run({"a": 0.09})
    assert algorithm.run({"a": 0.09, "b": 0.0}) == pytest.approx({"a": 1.0})


def rounds(timer: Timer, running: dict[int, frozenset[str]], *, converged: bool) -> list[int]:
    """Return at which seconds rounds are due; `running` changes at the seconds of its keys."""
    results, now_running = [], frozenset[str]()
    for second in range(200):
        now_running = running.get(second, now_running)
        if timer.due(now_running, now=second):
            results.append(second)
            timer.record_round(now_running, now=second, all_completing=converged)
    return results


@pytest.mark.parametrize(
    ("running", "converged", "expected"),
    [
        pytest.param({0: ALL}, False, [30, 60, 90, 120, 150, 180], id="each interval"),
        pytest.param(
            {0: ALL, 40: frozenset("a")}, False, [30, 60, 90, 120, 150, 180],
            id="a container that ends wakes nothing while some grow",
        ),
        pytest.param({0: ALL}, True, [30, 90], id="twice as long each time when all converged"),
        # It checks at 40, 50, ...; at 100 it finds that b has ended, and the interval is 30 again.
        pytest.param(
            {0: ALL, 95: frozenset("a")}, True, [30, 90, 100, 130, 190],
            id="while backed off, a container that ends is seen within ten seconds",
        ),
        pytest.param(
            {0: frozenset("a"), 95: ALL}, True, [30, 90, 100, 130, 190], id="so is a new container"
        ),
    ],
)  # fmt: skip
def test_rounds_are_due_at_each_interval_which_doubles_each_time_once_all_have_converged(
    running: dict[int, frozenset[str]], converged: bool, expected: list[int]
) -> None:
    assert rounds(Timer(30, now=0), running, converged=converged) == expected


def test_a_container_that_grows_again_does_not_end_the_back_off() -> None:
    timer = Timer(30, now=0)
    assert timer.due(ALL, now=30)
    timer.record_round(ALL, now=30, all_completing=True)
    assert timer.due(ALL, now=90)
    timer.record_round(ALL, now=90, all_completing=False)
    assert not timer.due(ALL, now=149)
    assert timer.due(ALL, now=150)
