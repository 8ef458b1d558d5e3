import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.gpu.hook.learning import Learning, choose, micro_steps
from tests.unit.gpu.hook.training import Parameter


class Trial:
    """A Learning with its results, and the training that it learns."""

    def __init__(self, *, most: int = 1000) -> None:
        self.said: list[str] = []
        self.learning = Learning(
            steps=3,
            most=most,
            learn=lambda: self.said.append("learn"),
            settle=lambda: self.said.append("settle"),
        )

    def train(self, steps: int, *, optimizers: int = 1) -> None:
        for _ in range(steps):
            self.learning.record_pass()
            for _ in range(optimizers):
                self.learning.record_step()

    def train_unseen(self, steps: int) -> None:
        for _ in range(steps):
            self.learning.record_step()


def test_some_steps_are_enough() -> None:
    trial = Trial()
    trial.train(2)
    assert trial.said == []
    trial.train(1)
    assert trial.said == ["settle"]


def test_several_optimizers_of_an_iteration_are_one_step_and_no_other_model() -> None:
    trial = Trial()
    trial.train(2, optimizers=3)
    assert trial.said == []
    trial.train(1000, optimizers=3)
    assert trial.said == ["settle"]


def test_a_job_that_makes_no_steps_has_eventually_passed_enough_places() -> None:
    trial = Trial(most=50)
    for _ in range(500):
        trial.learning.record_pass()
    assert trial.said == ["settle"]


def test_new_parameters_are_another_model_even_beside_known_modules() -> None:
    trial, folds = Trial(), [Parameter() for _ in range(5)]
    for parameter in folds:
        for _ in range(100):
            trial.learning.record_pass()
            trial.learning.record_parameter(parameter)
            trial.learning.record_step()
    assert trial.said == ["settle", *["learn", "settle"] * 4]


def test_a_second_model_found_while_learning_restarts_nothing() -> None:
    trial, pair = Trial(), [Parameter(), Parameter()]
    for _ in range(100):
        for parameter in pair:
            trial.learning.record_pass()
            trial.learning.record_parameter(parameter)
            trial.learning.record_step()
    assert trial.said == ["settle"]


def test_nothing_is_kept_of_removed_parameters() -> None:
    trial = Trial()
    for _ in range(100):
        trial.learning.record_parameter(Parameter())
    assert len(trial.learning._models) <= 2


def test_many_steps_without_a_known_place_are_another_model() -> None:
    trial = Trial()
    trial.train(3)
    trial.train_unseen(49)
    assert trial.said == ["settle"]
    trial.train_unseen(1)
    assert trial.said == ["settle", "learn"]
    trial.train(3)
    assert trial.said == ["settle", "learn", "settle"]


def test_a_training_with_places_that_never_repeat_restarts_ever_more_seldom() -> None:
    trial = Trial()
    for _ in range(10_000):
        if not trial.learning.settled:
            trial.train(3)
        trial.train_unseen(1)
    assert trial.said.count("learn") == 7


Step = list[tuple[int, float]]
LAPS = st.lists(st.tuples(st.integers(0, 30), st.floats(0.0001, 0.02)), min_size=1, max_size=60)


def laps(*seconds: float) -> Step:
    return list(enumerate(seconds))


def test_places_are_kept_so_that_the_work_between_two_is_one_micro_step() -> None:
    assert choose([laps(0.002, 0.002, 0.002, 0.001, 0.004)], 0.005) == {0, 2, 4}


def test_the_next_place_after_one_with_more_work_is_kept() -> None:
    assert choose([laps(0.001, 0.030, 0.001, 0.001)], 0.005) == {0, 1, 2}


def test_one_slow_step_decides_nothing() -> None:
    quick, slow = laps(0.001, 0.001, 0.001), laps(0.001, 0.9, 0.001)
    assert choose([quick, slow, quick], 0.005) == {0}


def test_the_length_of_a_micro_step_is_the_work_up_to_the_next_kept_place() -> None:
    quick, slow = laps(0.001, 0.002, 0.004, 0.001), laps(0.001, 0.9, 0.004, 0.001)
    result = micro_steps([quick, slow, quick], frozenset({0, 2, "never reached"}))
    assert result == pytest.approx({0: 0.003, 2: 0.005})


@given(steps=st.lists(LAPS, min_size=1, max_size=5))
def test_no_stretch_is_longer_than_a_micro_step_or_one_lap(steps: list[Step]) -> None:
    longest = 0.005
    kept = choose(steps, longest)
    most = max(seconds for step in steps for _, seconds in step)
    assert max(micro_steps(steps, kept).values()) <= max(longest, most) + 1e-9
    assert all(step[0][0] in kept for step in steps)


@given(steps=st.lists(LAPS, min_size=1, max_size=5))
def test_longer_micro_steps_never_need_more_places_in_one_step(steps: list[Step]) -> None:
    unique = [list({place: (place, lap) for place, lap in step}.values()) for step in steps[:1]]
    assert len(choose(unique, 0.010)) <= len(choose(unique, 0.005))
