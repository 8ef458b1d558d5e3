import gc
import weakref

import pytest

from kfext.gpu.hook.beacon import Beacon
from kfext.gpu.hook.device import Marker
from kfext.gpu.hook.high import HighPriorityHook
from tests.unit.gpu.hook.card import FakeCard
from tests.unit.gpu.hook.training import FakeCalls, Module, Optimizer, Parameter


class RecordingBeacon(Beacon):
    """A beacon that records its calls: b for begin, e for end, p for pause, s for step."""

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


class HighJob:
    """A high-priority job with its hook, and the beacons that the hook has made."""

    def __init__(self) -> None:
        self.calls, self.card = FakeCalls(), FakeCard()
        self.beacons: list[RecordingBeacon] = []
        self.high = HighPriorityHook(self.calls, self.card, self.join)

    def join(self) -> RecordingBeacon:
        self.beacons.append(RecordingBeacon())
        return self.beacons[-1]

    def new_calls(self) -> str:
        """Return the calls of the last beacon since this method was last called."""
        result, self.beacons[-1].calls = self.beacons[-1].calls, ""
        return result


@pytest.fixture
def job() -> HighJob:
    return HighJob()


def new_model() -> Module:
    return Module(Module(), Module(Module()))


def test_each_part_of_a_step_is_announced_once_while_learning_and_after_it(job: HighJob) -> None:
    model = new_model()
    for _ in range(8):
        job.calls.train(model, 1)
        assert job.new_calls() == "bpbebse"  # forward, backward, optimizer


def test_after_some_steps_only_the_outermost_modules_are_hooked(job: HighJob) -> None:
    model = new_model()
    job.calls.train(model, 4)
    assert job.calls.all_before
    job.calls.train(model, 1)
    assert not job.calls.all_before
    assert model.before
    assert not model.children[0].before


def test_several_optimizers_of_an_iteration_start_no_new_learning(job: HighJob) -> None:
    model = new_model()
    for _ in range(200):
        job.calls.train(model, 1, optimizers=3)
    assert not job.calls.all_before


def test_the_outermost_module_of_another_model_is_hooked_after_60_steps(job: HighJob) -> None:
    first, second = new_model(), new_model()
    job.calls.train(first, 5)
    job.calls.train(second, 60)
    assert second.before
    assert not first.before
    job.new_calls()
    job.calls.train(second, 1)
    assert job.new_calls() == "bpbebse"


def test_a_module_that_backward_calls_does_not_count_as_outermost(job: HighJob) -> None:
    model = new_model()
    for _ in range(6):
        job.calls.forward(model)
        job.calls.backward(recomputed=model.children[1])
        job.calls.step()
    assert model.before
    assert not model.children[1].before


def test_the_card_is_not_shown_as_idle_before_the_end_of_backward(job: HighJob) -> None:
    model = new_model()
    job.calls.train(model, 6)
    job.new_calls()
    job.calls.forward(model)
    job.calls.backward(recomputed=model)  # the outermost module itself is checkpointed
    assert job.new_calls() == "bp" + "bb" + "e"


def test_a_failed_backward_ends_with_the_next_step(job: HighJob) -> None:
    model = new_model()
    job.calls.forward(model)
    for act in job.calls.outputs[-1].hooks:
        act()  # without an end
    job.calls.outputs, job.calls.at_backward_end = [], []
    job.calls.step()
    job.new_calls()
    job.calls.train(model, 1)
    assert job.new_calls() == "bpbebse"


@pytest.mark.parametrize("steps", [0, 20], ids=["while learning", "after learning"])
def test_a_failed_backward_ends_with_the_next_forward(job: HighJob, steps: int) -> None:
    model = new_model()
    job.calls.train(model, max(steps, 1))
    job.calls.forward(model)
    for act in job.calls.outputs[-1].hooks:
        act()  # backward begins, and raises: its end never comes
    job.calls.outputs, job.calls.at_backward_end = [], []
    job.new_calls()
    job.calls.infers = True  # from now on the program only evaluates the model
    job.calls.forward(model)
    assert job.new_calls() == "be"


def test_a_failed_forward_does_not_hide_the_next_forward(job: HighJob) -> None:
    model = new_model()
    job.calls.train(model, 1)
    job.new_calls()
    job.calls.all_before[0](model)  # without an end
    job.calls.forward(model)
    assert job.new_calls() == "b" + "bp"


def test_a_torchscript_module_is_announced_although_it_takes_no_hook(job: HighJob) -> None:
    model = Module(script=True)
    job.calls.train(model, 10)
    job.new_calls()
    job.calls.train(model, 1)
    assert job.new_calls() == "bpbebse"


def test_a_replay_of_a_graph_is_announced(job: HighJob) -> None:
    job.calls.before_replay()
    job.calls.after_replay()
    assert job.new_calls() == "be"


def test_a_model_that_the_job_drops_is_not_kept_alive(job: HighJob) -> None:
    model = new_model()
    job.calls.train(model, 3)
    gone = weakref.ref(model)
    del model
    job.calls.outputs = []
    gc.collect()
    assert gone() is None


def test_a_process_that_does_not_use_the_card_makes_no_beacon(job: HighJob) -> None:
    job.card.in_use = False
    job.calls.train(new_model(), 10)
    assert job.beacons == []


def test_a_fork_that_trains_itself_has_a_beacon_of_its_own(job: HighJob) -> None:
    job.calls.train(new_model(), 1)
    job.high.leave()
    job.card.in_use = False
    job.calls.train(new_model(), 1)  # such as a worker of a DataLoader
    assert len(job.beacons) == 1
    job.card.in_use = True
    job.calls.train(new_model(), 1)
    assert len(job.beacons) == 2
    assert job.beacons[0].calls == "bpbebse"


def test_nothing_is_hooked_after_a_stop(job: HighJob) -> None:
    job.calls.train(new_model(), 1)
    job.new_calls()
    job.high.stop()
    assert job.new_calls() == "."
    assert not job.calls.all_before


def test_a_new_optimizer_of_the_same_model_starts_no_new_learning(job: HighJob) -> None:
    model, parameter = new_model(), Parameter()
    for _ in range(20):
        job.calls.optimizer = Optimizer(parameter)
        job.calls.train(model, 10)
    assert not job.calls.all_before
    job.calls.optimizer = Optimizer(Parameter())
    job.calls.train(model, 1)
    assert job.calls.all_before


def test_after_four_forwards_without_a_backward_each_forward_is_an_end(job: HighJob) -> None:
    model = new_model()
    for _ in range(6):
        job.calls.forward(model)
        job.calls.outputs = []  # such as an evaluation that does not turn gradients off
    assert job.new_calls() == "bp" * 4 + "be" * 2
    job.calls.train(model, 1)
    job.calls.train(model, 1)
    assert job.new_calls().endswith("bpbebse")


def test_ten_forwards_before_each_backward_count_as_one_piece_of_work(job: HighJob) -> None:
    models = [new_model() for _ in range(10)]
    for _ in range(2):
        job.new_calls() if job.beacons else None
        for module in models:
            job.calls.forward(module)
        job.calls.backward()
        job.calls.step()
    result = job.new_calls()
    assert result.startswith("bp" * 10)
    assert result.count("e") == 2
