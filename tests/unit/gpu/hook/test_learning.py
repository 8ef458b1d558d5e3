from kfext.gpu.hook.learning import Learning
from tests.unit.gpu.hook.training import Parameter


class Trial:
    """What a Learning has said, and a training to say it about."""

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
            self.learning.passed()
            for _ in range(optimizers):
                self.learning.stepped()

    def train_unseen(self, steps: int) -> None:
        for _ in range(steps):
            self.learning.stepped()


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


def test_a_job_that_makes_no_steps_has_passed_enough_places_some_time() -> None:
    trial = Trial(most=50)
    for _ in range(500):
        trial.learning.passed()
    assert trial.said == ["settle"]


def test_new_parameters_are_another_model_also_beside_modules_that_are_known() -> None:
    trial, folds = Trial(), [Parameter() for _ in range(5)]
    for parameter in folds:
        for _ in range(100):
            trial.learning.passed()
            trial.learning.meet(parameter)
            trial.learning.stepped()
    assert trial.said == ["settle", *["learn", "settle"] * 4]


def test_a_second_model_that_is_met_while_learning_begins_nothing_anew() -> None:
    trial, pair = Trial(), [Parameter(), Parameter()]
    for _ in range(100):
        for parameter in pair:
            trial.learning.passed()
            trial.learning.meet(parameter)
            trial.learning.stepped()
    assert trial.said == ["settle"]


def test_of_parameters_that_are_gone_nothing_is_kept() -> None:
    trial = Trial()
    for _ in range(100):
        trial.learning.meet(Parameter())
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


def test_a_training_whose_places_are_never_seen_again_begins_anew_ever_more_seldom() -> None:
    trial = Trial()
    for _ in range(10_000):
        if not trial.learning.settled:
            trial.train(3)
        trial.train_unseen(1)
    assert trial.said.count("learn") == 7
