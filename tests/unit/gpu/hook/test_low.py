import pytest

from kfext.gpu.hook.gate import Gate
from kfext.gpu.hook.low import LowPriorityHook
from tests.unit.gpu.hook.card import FakeCard
from tests.unit.gpu.hook.training import FakeCalls, Module, Optimizer, Parameter

_LAP = 2**-10
"""Seconds of card work in the forward of a module; their sums are exact."""


class Counted(Gate):
    """A gate that is open, and counts the passes."""

    def __init__(self, card: FakeCard) -> None:
        self.card = card
        self.passed = self.steps = 0
        self.ordered = 5 * _LAP
        self.longest: list[float] = []
        self.lengths: list[float] = []
        self.abandoned = False

    def micro_step(self) -> float:
        return self.ordered

    def show_longest(self, longest: float) -> None:
        self.longest.append(longest / _LAP)

    def step(self) -> None:
        self.steps += 1

    def enter(self, seconds: float = 0.0) -> None:
        self.passed += 1
        self.lengths.append(seconds / _LAP)

    def abandon(self) -> None:
        self.abandoned = True

    def watch(self) -> None:
        pass


class Trial:
    """A low-priority job on a card that works in the forward of each module."""

    def __init__(self) -> None:
        self.calls, self.card = FakeCalls(), FakeCard(instant=True)
        self.gates: list[Counted] = []
        self.low = LowPriorityHook(self.calls, self.card, self.join)
        self.calls.all_before.append(lambda _: self.work(1))

    def join(self) -> Counted:
        self.gates.append(Counted(self.card))
        return self.gates[-1]

    def work(self, laps: float) -> None:
        self.card.clock += laps * _LAP

    def passed(self) -> int:
        """Return the number of passes of the gate since the last time."""
        result, self.gates[-1].passed = self.gates[-1].passed, 0
        return result


@pytest.fixture
def trial() -> Trial:
    return Trial()


def model(modules: int = 20) -> Module:
    return Module(*(Module() for _ in range(modules - 1)))


def test_the_gate_is_at_every_module_first_and_then_at_few(trial: Trial) -> None:
    trained = model()
    trial.calls.train(trained, 7)
    assert trial.passed() == 7 * (20 + 20 + 1)  # forward, backward, optimizer
    trial.calls.train(trained, 1)
    assert trial.passed() == 20 // 5 + 1
    assert trial.gates[0].longest == [5.0]
    assert trial.gates[0].steps == 8


def test_the_gate_knows_the_length_of_each_micro_step_once_learned(trial: Trial) -> None:
    trained = model()
    trial.calls.train(trained, 7)
    gate = trial.gates[0]
    assert {*gate.lengths} == {0.0}
    gate.lengths.clear()
    trial.calls.train(trained, 1)
    assert gate.lengths == [5.0, 5.0, 5.0, 5.0, 0.0]  # the optimizer has no work here
    gate.lengths.clear()
    trial.calls.optimizer = Optimizer(Parameter())
    trial.calls.train(trained, 2)
    assert {*gate.lengths[5:]} == {0.0}  # nothing is known of another model


def test_other_places_are_chosen_for_a_shorter_micro_step(trial: Trial) -> None:
    trained = model()
    trial.calls.train(trained, 7)
    trial.gates[0].ordered = 4.5 * _LAP
    trial.calls.train(trained, 1)
    trial.passed()
    trial.calls.train(trained, 1)
    assert trial.passed() == 4 + 1
    trial.gates[0].ordered = 2 * _LAP
    trial.calls.train(trained, 1)
    trial.passed()
    trial.calls.train(trained, 1)
    assert trial.passed() == 10 + 1
    assert trial.gates[0].longest == [5.0, 2.0]


def test_the_work_of_the_optimizer_counts_and_later_work_does_not(trial: Trial) -> None:
    trained = model()
    for _ in range(7):
        trial.calls.forward(trained)
        trial.calls.backward()
        trial.calls.before_step()
        trial.work(9)
        trial.calls.after_step(trial.calls.optimizer)
        trial.work(1000)  # such as a wait for data
    assert trial.gates[0].longest == [9.0]


def test_several_optimizers_of_an_iteration_do_not_make_it_learn_again(trial: Trial) -> None:
    trained = model()
    trial.calls.train(trained, 200, optimizers=3)
    assert len(trial.calls.all_before) == 1  # the trial's own hook
    assert len(trial.gates[0].longest) == 1


def test_a_job_that_only_infers_finishes_learning_too(trial: Trial) -> None:
    trained = model()
    for _ in range(1001):
        trial.calls.forward(trained)
    trial.calls.outputs = []
    trial.passed()
    trial.calls.forward(trained)
    assert trial.passed() == 4


def test_the_gate_is_before_each_replay_of_a_graph(trial: Trial) -> None:
    for _ in range(20):
        trial.calls.before_replay()
        trial.calls.after_replay()
        trial.calls.step()
    assert trial.passed() == 20 + 20


def test_a_graph_is_a_micro_step_of_its_own_length(trial: Trial) -> None:
    for _ in range(10):
        trial.calls.before_replay()
        trial.work(40)
        trial.calls.after_replay()
        trial.calls.step()
    assert trial.gates[0].longest == [40.0]
    assert trial.gates[0].lengths[-2:] == [40.0, 0.0]


def test_the_gate_is_not_at_a_module_of_torchscript(trial: Trial) -> None:
    trained = Module(*(Module(script=True) for _ in range(19)))
    trial.calls.train(trained, 10)
    assert trial.gates[0].longest == [20.0]  # which is no micro-step, and is shown


def test_a_deleted_module_is_left_out(trial: Trial) -> None:
    trained = model()
    trial.calls.train(trained, 6)
    trained.children = trained.children[:10]
    trial.calls.outputs = []
    trial.calls.train(trained, 1)
    trial.passed()
    trial.calls.train(trained, 1)
    assert trial.passed() > 0


def test_a_fork_that_trains_has_its_own_gate(trial: Trial) -> None:
    trial.calls.train(model(), 1)
    trial.low.leave()
    trial.card.uses = False
    trial.calls.train(model(), 1)
    assert len(trial.gates) == 1
    trial.card.uses = True
    trial.calls.train(model(), 1)
    assert len(trial.gates) == 2


def test_after_the_end_the_page_shows_that_the_job_does_not_give_way(trial: Trial) -> None:
    trained = model()
    trial.calls.train(trained, 1)
    trial.low.stop()
    assert trial.gates[0].abandoned
    trial.passed()
    trial.calls.forward(trained)
    assert trial.passed() == 0
