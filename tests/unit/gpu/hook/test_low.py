import pytest

from kfext.gpu.hook.gate import Gate
from kfext.gpu.hook.low import LowPriorityHook
from tests.unit.gpu.hook.card import FakeCard
from tests.unit.gpu.hook.training import FakeCalls, Module, Optimizer, Parameter

_LAP = 2**-10
"""The seconds of work on the card in the forward of a module; their sums are exact."""


class CountingGate(Gate):
    """A gate that is open, and counts its passes.

    `ordered`: the length that the agent orders, in seconds. `longest`: the longest micro-steps
    shown so far, and `lengths`: the expected length at each pass, both in laps.
    """

    def __init__(self, card: FakeCard) -> None:
        self.card = card
        self.passes = self.steps = 0
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
        self.passes += 1
        self.lengths.append(seconds / _LAP)

    def abandon(self) -> None:
        self.abandoned = True

    def watch(self) -> None:
        pass


class LowJob:
    """A low-priority job with its hook; in the forward of each module the card works for a lap."""

    def __init__(self) -> None:
        self.calls, self.card = FakeCalls(), FakeCard(instant=True)
        self.gates: list[CountingGate] = []
        self.low = LowPriorityHook(self.calls, self.card, self.join)
        self.calls.all_before.append(lambda _: self.work(1))

    def join(self) -> CountingGate:
        self.gates.append(CountingGate(self.card))
        return self.gates[-1]

    def work(self, laps: float) -> None:
        self.card.clock += laps * _LAP

    def new_passes(self) -> int:
        """Return the number of passes of the last gate since this method was last called."""
        result, self.gates[-1].passes = self.gates[-1].passes, 0
        return result


@pytest.fixture
def job() -> LowJob:
    return LowJob()


def new_model(modules: int = 20) -> Module:
    return Module(*(Module() for _ in range(modules - 1)))


def test_the_gate_stands_at_every_module_while_learning_and_then_at_few(job: LowJob) -> None:
    model = new_model()
    job.calls.train(model, 7)
    assert job.new_passes() == 7 * (20 + 20 + 1)  # forward, backward, optimizer
    job.calls.train(model, 1)
    assert job.new_passes() == 20 // 5 + 1
    assert job.gates[0].longest == [5.0]
    assert job.gates[0].steps == 8


def test_the_gate_knows_the_length_of_each_micro_step_once_learned(job: LowJob) -> None:
    model = new_model()
    job.calls.train(model, 7)
    gate = job.gates[0]
    assert {*gate.lengths} == {0.0}
    gate.lengths.clear()
    job.calls.train(model, 1)
    assert gate.lengths == [5.0, 5.0, 5.0, 5.0, 0.0]  # this optimizer has no work
    gate.lengths.clear()
    job.calls.optimizer = Optimizer(Parameter())
    job.calls.train(model, 2)
    assert {*gate.lengths[5:]} == {0.0}  # the lengths of another model are unknown


def test_other_places_are_chosen_for_a_shorter_micro_step(job: LowJob) -> None:
    model = new_model()
    job.calls.train(model, 7)
    job.gates[0].ordered = 4.5 * _LAP
    job.calls.train(model, 1)
    job.new_passes()
    job.calls.train(model, 1)
    assert job.new_passes() == 4 + 1
    job.gates[0].ordered = 2 * _LAP
    job.calls.train(model, 1)
    job.new_passes()
    job.calls.train(model, 1)
    assert job.new_passes() == 10 + 1
    assert job.gates[0].longest == [5.0, 2.0]


def test_the_work_of_the_optimizer_counts_and_work_after_it_does_not(job: LowJob) -> None:
    model = new_model()
    for _ in range(7):
        job.calls.forward(model)
        job.calls.backward()
        job.calls.before_step()
        job.work(9)
        job.calls.after_step(job.calls.optimizer)
        job.work(1000)  # such as a wait for data
    assert job.gates[0].longest == [9.0]


def test_several_optimizers_of_an_iteration_do_not_restart_learning(job: LowJob) -> None:
    model = new_model()
    job.calls.train(model, 200, optimizers=3)
    assert len(job.calls.all_before) == 1  # the hook of LowJob itself
    assert len(job.gates[0].longest) == 1


def test_a_job_that_only_infers_finishes_learning_too(job: LowJob) -> None:
    model = new_model()
    for _ in range(1001):
        job.calls.forward(model)
    job.calls.outputs = []
    job.new_passes()
    job.calls.forward(model)
    assert job.new_passes() == 4


def test_the_gate_stands_before_each_replay_of_a_graph(job: LowJob) -> None:
    for _ in range(20):
        job.calls.before_replay()
        job.calls.after_replay()
        job.calls.step()
    assert job.new_passes() == 20 + 20


def test_a_graph_is_a_micro_step_of_its_own_length(job: LowJob) -> None:
    for _ in range(10):
        job.calls.before_replay()
        job.work(40)
        job.calls.after_replay()
        job.calls.step()
    assert job.gates[0].longest == [40.0]
    assert job.gates[0].lengths[-2:] == [40.0, 0.0]


def test_the_gate_does_not_stand_at_a_torchscript_module(job: LowJob) -> None:
    model = Module(*(Module(script=True) for _ in range(19)))
    job.calls.train(model, 10)
    assert job.gates[0].longest == [20.0]  # too long for a micro-step, which is shown


def test_a_module_deleted_while_learning_causes_no_error(job: LowJob) -> None:
    model = new_model()
    job.calls.train(model, 6)
    model.children = model.children[:10]
    job.calls.outputs = []
    job.calls.train(model, 1)
    job.new_passes()
    job.calls.train(model, 1)
    assert job.new_passes() > 0


def test_a_fork_that_trains_has_its_own_gate(job: LowJob) -> None:
    job.calls.train(new_model(), 1)
    job.low.leave()
    job.card.in_use = False
    job.calls.train(new_model(), 1)
    assert len(job.gates) == 1
    job.card.in_use = True
    job.calls.train(new_model(), 1)
    assert len(job.gates) == 2


def test_a_stop_abandons_the_gate_and_ends_all_passes(job: LowJob) -> None:
    model = new_model()
    job.calls.train(model, 1)
    job.low.stop()
    assert job.gates[0].abandoned
    job.new_passes()
    job.calls.forward(model)
    assert job.new_passes() == 0
