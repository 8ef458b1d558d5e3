import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.gpu.hook.learning import Learning, choose, micro_steps
from tests.unit.gpu.hook.training import Parameter


class LearnedJob:
    """A job with a Learning. `calls`: the calls that the Learning has made."""

    def __init__(self, *, most: int = 1000) -> None:
        self.calls: list[str] = []
        self.learning = Learning(
            steps=3,
            most=most,
            learn=lambda: self.calls.append("learn"),
            settle=lambda: self.calls.append("settle"),
        )

    def train(self, steps: int, *, optimizers: int = 1) -> None:
        for _ in range(steps):
            self.learning.record_pass()
            for _ in range(optimizers):
                self.learning.record_step()

    def train_unwatched(self, steps: int) -> None:
        """Make steps without a pass of a watched place."""
        for _ in range(steps):
            self.learning.record_step()


def test_learning_ends_after_the_given_number_of_steps() -> None:
    job = LearnedJob()
    job.train(2)
    assert job.calls == []
    job.train(1)
    assert job.calls == ["settle"]


def test_several_optimizers_of_an_iteration_count_as_one_step_of_one_model() -> None:
    job = LearnedJob()
    job.train(2, optimizers=3)
    assert job.calls == []
    job.train(1000, optimizers=3)
    assert job.calls == ["settle"]


def test_learning_of_a_job_without_steps_ends_after_enough_passes() -> None:
    job = LearnedJob(most=50)
    for _ in range(500):
        job.learning.record_pass()
    assert job.calls == ["settle"]


def test_new_parameters_mean_another_model_even_with_known_modules() -> None:
    job, folds = LearnedJob(), [Parameter() for _ in range(5)]
    for parameter in folds:
        for _ in range(100):
            job.learning.record_pass()
            job.learning.record_parameter(parameter)
            job.learning.record_step()
    assert job.calls == ["settle", *["learn", "settle"] * 4]


def test_two_models_seen_while_learning_do_not_restart_it() -> None:
    job, pair = LearnedJob(), [Parameter(), Parameter()]
    for _ in range(100):
        for parameter in pair:
            job.learning.record_pass()
            job.learning.record_parameter(parameter)
            job.learning.record_step()
    assert job.calls == ["settle"]


def test_deleted_parameters_are_forgotten() -> None:
    job = LearnedJob()
    for _ in range(100):
        job.learning.record_parameter(Parameter())
    assert len(job.learning._models) <= 2


def test_50_steps_without_a_watched_place_mean_another_model() -> None:
    job = LearnedJob()
    job.train(3)
    job.train_unwatched(49)
    assert job.calls == ["settle"]
    job.train_unwatched(1)
    assert job.calls == ["settle", "learn"]
    job.train(3)
    assert job.calls == ["settle", "learn", "settle"]


def test_learning_restarts_ever_more_rarely_if_watched_places_never_repeat() -> None:
    job = LearnedJob()
    for _ in range(10_000):
        if not job.learning.settled:
            job.train(3)
        job.train_unwatched(1)
    assert job.calls.count("learn") == 7  # after 50, 100, ... steps: the number doubles


Step = list[tuple[int, float]]
LAPS = st.lists(st.tuples(st.integers(0, 30), st.floats(0.0001, 0.02)), min_size=1, max_size=60)


def laps(*seconds: float) -> Step:
    return list(enumerate(seconds))


def test_places_are_chosen_so_that_the_work_between_two_is_at_most_a_micro_step() -> None:
    assert choose([laps(0.002, 0.002, 0.002, 0.001, 0.004)], 0.005) == {0, 2, 4}


def test_a_place_with_more_work_than_a_micro_step_and_the_next_place_are_chosen() -> None:
    assert choose([laps(0.001, 0.030, 0.002, 0.001)], 0.005) == {0, 1, 2}


def test_a_place_with_almost_no_work_after_a_long_micro_step_is_not_chosen() -> None:
    assert choose([laps(0.004, 0.0001, 0.004, 0.0, 0.004)], 0.001) == {0, 2, 4}


def test_one_slow_step_does_not_change_the_choice() -> None:
    quick, slow = laps(0.001, 0.001, 0.001), laps(0.001, 0.9, 0.001)
    assert choose([quick, slow, quick], 0.005) == {0}


def test_the_length_of_a_micro_step_is_the_work_up_to_the_next_chosen_place() -> None:
    quick, slow = laps(0.001, 0.002, 0.004, 0.001), laps(0.001, 0.9, 0.004, 0.001)
    result = micro_steps([quick, slow, quick], frozenset({0, 2, "never reached"}))
    assert result == pytest.approx({0: 0.003, 2: 0.005})


@given(steps=st.lists(LAPS, min_size=1, max_size=5))
def test_no_micro_step_is_longer_than_the_limit_or_the_longest_lap(steps: list[Step]) -> None:
    limit = 0.005
    chosen = choose(steps, limit)
    longest = max(seconds for step in steps for _, seconds in step)
    assert max(micro_steps(steps, chosen).values()) <= max(limit, 1.05 * longest) + 1e-9
    assert all(step[0][0] in chosen for step in steps)


@given(steps=st.lists(LAPS, min_size=1, max_size=5))
def test_longer_micro_steps_never_need_more_places_in_one_step(steps: list[Step]) -> None:
    unique = [list({place: (place, lap) for place, lap in step}.values()) for step in steps[:1]]
    assert len(choose(unique, 0.010)) <= len(choose(unique, 0.005))
