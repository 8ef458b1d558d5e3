import gc
import weakref

import pytest

from kfext.gpu.hook.beacon import Beacon
from kfext.gpu.hook.device import Marker
from kfext.gpu.hook.high import HighPriorityHook
from tests.unit.gpu.hook.card import FakeCard
from tests.unit.gpu.hook.training import FakeCalls, Module, Optimizer, Parameter


class Written(Beacon):
    """A beacon that records its calls by their first letters."""

    def __init__(self) -> None:
        self.calls = ""

    def begin(self) -> int:
        self.calls += "b"
        return len(self.calls)

    def end(self, marker: Marker, begun: int | None = None) -> None:
        self.calls += "e"

    def pause(self, marker: Marker) -> None:
        self.calls += "p"

    def step(self) -> None:
        self.calls += "s"

    def stop(self) -> None:
        self.calls += "."


class Trial:
    """A high-priority job, and the beacons that its process has made."""

    def __init__(self) -> None:
        self.calls, self.card = FakeCalls(), FakeCard()
        self.beacons: list[Written] = []
        self.high = HighPriorityHook(self.calls, self.card, self.join)

    def join(self) -> Written:
        self.beacons.append(Written())
        return self.beacons[-1]

    def written(self) -> str:
        """Return the calls since the last time."""
        result, self.beacons[-1].calls = self.beacons[-1].calls, ""
        return result


@pytest.fixture
def trial() -> Trial:
    return Trial()


def model() -> Module:
    return Module(Module(), Module(Module()))


def test_a_step_is_announced_as_a_whole_before_and_after_learning(trial: Trial) -> None:
    trained = model()
    for _ in range(8):
        trial.calls.train(trained, 1)
        assert trial.written() == "bpbebse"  # forward, backward, optimizer


def test_after_some_steps_only_the_outermost_modules_are_hooked(trial: Trial) -> None:
    trained = model()
    trial.calls.train(trained, 4)
    assert trial.calls.all_before
    trial.calls.train(trained, 1)
    assert not trial.calls.all_before
    assert trained.before
    assert not trained.children[0].before


def test_several_optimizers_of_an_iteration_start_no_new_learning(trial: Trial) -> None:
    trained = model()
    for _ in range(200):
        trial.calls.train(trained, 1, optimizers=3)
    assert not trial.calls.all_before


def test_another_model_is_found_after_a_while(trial: Trial) -> None:
    first, second = model(), model()
    trial.calls.train(first, 5)
    trial.calls.train(second, 60)
    assert second.before
    assert not first.before
    trial.written()
    trial.calls.train(second, 1)
    assert trial.written() == "bpbebse"


def test_a_module_that_runs_again_within_backward_does_not_count_as_outermost(trial: Trial) -> None:
    trained = model()
    for _ in range(6):
        trial.calls.forward(trained)
        trial.calls.backward(again=trained.children[1])
        trial.calls.step()
    assert trained.before
    assert not trained.children[1].before


def test_the_card_is_not_shown_as_idle_before_the_end_of_backward(trial: Trial) -> None:
    trained = model()
    trial.calls.train(trained, 6)
    trial.written()
    trial.calls.forward(trained)
    trial.calls.backward(again=trained)  # the outermost module itself is checkpointed
    assert trial.written() == "bp" + "bb" + "e"


def test_a_backward_that_raised_ends_with_the_next_step(trial: Trial) -> None:
    trained = model()
    trial.calls.forward(trained)
    for act in trial.calls.outputs[-1].hooks:
        act()  # without an end
    trial.calls.outputs, trial.calls.final = [], []
    trial.calls.step()
    trial.written()
    trial.calls.train(trained, 1)
    assert trial.written() == "bpbebse"


@pytest.mark.parametrize("steps", [0, 20], ids=["while learning", "once settled"])
def test_a_backward_that_raised_ends_with_the_next_forward(trial: Trial, steps: int) -> None:
    trained = model()
    trial.calls.train(trained, max(steps, 1))
    trial.calls.forward(trained)
    for act in trial.calls.outputs[-1].hooks:
        act()  # backward begins, and raises: its end never comes
    trial.calls.outputs, trial.calls.final = [], []
    trial.written()
    trial.calls.infers = True  # it is evaluated alone from now on
    trial.calls.forward(trained)
    assert trial.written() == "be"


def test_a_forward_that_raised_does_not_hide_the_next_forward(trial: Trial) -> None:
    trained = model()
    trial.calls.train(trained, 1)
    trial.written()
    trial.calls.all_before[0](trained)  # without an end
    trial.calls.forward(trained)
    assert trial.written() == "b" + "bp"


def test_a_module_of_torchscript_is_announced_although_it_takes_no_hook(trial: Trial) -> None:
    trained = Module(script=True)
    trial.calls.train(trained, 10)
    trial.written()
    trial.calls.train(trained, 1)
    assert trial.written() == "bpbebse"


def test_a_replay_of_a_graph_is_announced(trial: Trial) -> None:
    trial.calls.before_replay()
    trial.calls.after_replay()
    assert trial.written() == "be"


def test_a_model_that_the_job_drops_is_not_kept_alive(trial: Trial) -> None:
    trained = model()
    trial.calls.train(trained, 3)
    gone = weakref.ref(trained)
    del trained
    trial.calls.outputs = []
    gc.collect()
    assert gone() is None


def test_a_process_that_does_not_use_the_card_makes_no_beacon(trial: Trial) -> None:
    trial.card.uses = False
    trial.calls.train(model(), 10)
    assert trial.beacons == []


def test_a_fork_that_trains_itself_has_a_beacon_of_its_own(trial: Trial) -> None:
    trial.calls.train(model(), 1)
    trial.high.leave()
    trial.card.uses = False
    trial.calls.train(model(), 1)  # such as a worker of a DataLoader
    assert len(trial.beacons) == 1
    trial.card.uses = True
    trial.calls.train(model(), 1)
    assert len(trial.beacons) == 2
    assert trial.beacons[0].calls == "bpbebse"


def test_nothing_is_hooked_after_the_end(trial: Trial) -> None:
    trial.calls.train(model(), 1)
    trial.written()
    trial.high.stop()
    assert trial.written() == "."
    assert not trial.calls.all_before


def test_a_new_optimizer_of_the_same_model_starts_no_new_learning(trial: Trial) -> None:
    trained, parameter = model(), Parameter()
    for _ in range(20):
        trial.calls.optimizer = Optimizer(parameter)
        trial.calls.train(trained, 10)
    assert not trial.calls.all_before
    trial.calls.optimizer = Optimizer(Parameter())
    trial.calls.train(trained, 1)
    assert trial.calls.all_before


def test_forwards_without_a_backward_soon_count_as_ends_again(trial: Trial) -> None:
    trained = model()
    for _ in range(6):
        trial.calls.forward(trained)
        trial.calls.outputs = []  # such as an evaluation that does not turn gradients off
    assert trial.written() == "bp" * 4 + "be" * 2
    trial.calls.train(trained, 1)
    trial.calls.train(trained, 1)
    assert trial.written().endswith("bpbebse")


def test_many_forwards_before_a_backward_are_one_piece_of_work(trial: Trial) -> None:
    many = [model() for _ in range(10)]
    for _ in range(2):
        trial.written() if trial.beacons else None
        for module in many:
            trial.calls.forward(module)
        trial.calls.backward()
        trial.calls.step()
    result = trial.written()
    assert result.startswith("bp" * 10)
    assert result.count("e") == 2
