"""The simulation itself: the cost of a change of pods, and the cores of each job."""

import math
from dataclasses import replace

import pytest

from kfext.model.pod import ReplicaKey
from kfext.sim.gpus import GpuPace
from kfext.sim.jobs import JobSpec, Saving, Style
from kfext.sim.kubelets import by_weight
from kfext.sim.training import Doing
from tests.unit.sim.bed import MASTER, SERVERS, STATIC, TORCHRUN, Bed


@pytest.mark.parametrize("spec", [TORCHRUN, SERVERS, STATIC, MASTER], ids=lambda spec: spec.style)
def test_a_job_alone_takes_its_start_and_its_steps(spec: JobSpec) -> None:
    bed = Bed(spec)
    bed.run()
    (ended,) = bed.ended().values()
    workers = spec.workers + spec.leaders
    assert ended.trained == math.ceil(spec.steps / workers)
    assert spec.starts < ended.began < spec.starts + spec.meets + 5
    assert ended.paused == 0


@pytest.mark.parametrize(
    ("spec", "lost"),
    [
        pytest.param(
            TORCHRUN, True, id="workers that restart lose everything without a checkpoint"
        ),
        pytest.param(
            replace(TORCHRUN, saving=Saving.PERIODIC, every=11),
            False,
            id="with checkpoints they lose the work since the last",
        ),
        pytest.param(SERVERS, False, id="workers of servers lose nothing"),
    ],
)
@pytest.mark.parametrize("to", [1, 3], ids=["fewer", "more"])
def test_the_cost_of_a_change_of_size(spec: JobSpec, to: int, *, lost: bool) -> None:
    bed = Bed(spec).at(100)
    before = bed.job().training.done
    assert before > 100
    bed.scale(to)
    bed.at(200)
    training = bed.job().training
    assert (training.doing, training.workers) == (Doing.TRAINS, to)
    assert (training.lost > 100) is lost
    assert (training.lost > 0) is (spec.style is Style.TORCHRUN)
    bed.run()
    assert bed.over
    assert not bed.operator.failed


def test_a_suspended_job_continues_from_its_last_checkpoint() -> None:
    bed = Bed(replace(STATIC, saving=Saving.PERIODIC, every=50)).at(200)
    bed.suspend()
    bed.at(230)
    training = bed.job().training
    assert training.doing is Doing.IDLE
    assert training.done == training.saved > 0
    bed.suspend(suspend=False)
    bed.run()
    assert bed.over
    assert not bed.operator.failed


def test_a_static_tfjob_fails_if_one_of_its_pods_ends_early() -> None:
    bed = Bed(STATIC).at(100)
    bed.kubelets.delete(bed.job().pods[ReplicaKey("worker", 1)])
    bed.run()
    assert bed.operator.failed


def test_a_deleted_pod_is_recreated_and_placed_where_it_was() -> None:
    bed = Bed(TORCHRUN, a=2000, b=1000).at(100)
    key = ReplicaKey("worker", 1)
    first = bed.job().pods[key].pod
    bed.kubelets.delete(bed.job().pods[key])
    bed.at(200)
    second = bed.job().pods[key].pod
    assert second.uid != first.uid
    assert second.node_name == first.node_name
    assert bed.job().training.workers == 2


def test_gpus_on_two_nodes_train_more_slowly_than_on_one() -> None:
    spec = replace(MASTER, workers=3, pace=GpuPace("yolov3", 64), steps=30)
    together, apart = Bed(spec, a=4000), Bed(spec, a=2000, b=2000)
    times = [bed.run().ended()["train"].trained for bed in (together, apart)]
    assert times == [math.ceil(30 * spec.pace.seconds(4, apart=apart)) for apart in (False, True)]
    assert times[1] > 1.1 * times[0]


@pytest.mark.parametrize(
    ("saving", "answered"),
    [
        pytest.param(Saving.ON_REQUEST, True, id="a job that listens saves its work and answers"),
        pytest.param(Saving.NEVER, False, id="a job that does not listen continues"),
    ],
)
def test_the_answer_to_a_request_for_a_checkpoint(saving: Saving, *, answered: bool) -> None:
    bed = Bed(replace(TORCHRUN, saving=saving)).at(100)
    bed.ask(7)
    bed.at(110)
    assert (bed.job().training.saved > 100) is answered


def test_the_output_of_a_job_is_read() -> None:
    spec = replace(TORCHRUN, saving=Saving.PERIODIC, every=100)
    bed = Bed(spec).at(100)
    reported = bed.planner.progress.reported(spec.uid)
    assert reported is not None
    assert (reported.progress.metric, reported.progress.total) == ("loss", 2000)
    assert reported.progress.rate == pytest.approx(2.0, rel=0.1)


def test_waiting_jobs_start_in_order_as_capacity_is_freed() -> None:
    names = ("first", "second", "third")
    rigid = replace(MASTER, workers=3, steps=400)
    bed = Bed(*(replace(rigid, name=name, arrives=5.0 + at) for at, name in enumerate(names)),
              a=4000)  # fmt: skip
    bed.run()
    began = [live.training.began or 0.0 for live in bed.jobs]
    assert began == sorted(began)
    assert began[1] > (bed.jobs[0].ended or 0.0)


def test_a_job_uses_the_cores_that_its_neighbours_leave() -> None:
    greedy = replace(MASTER, workers=1, uses=4000, steps=1000)
    alone = Bed(greedy, a=4000)
    both = Bed(greedy, replace(greedy, name="other"), a=4000)
    alone.run()
    both.run()
    (job,) = alone.ended().values()
    assert both.ended()["train"].trained > 1.3 * job.trained


@pytest.mark.parametrize(
    ("weights", "most", "want"),
    [
        pytest.param([1, 1], [9, 9], [5.0, 5.0], id="equal weights get the same"),
        pytest.param([1, 3], [9, 9], [2.5, 7.5], id="the rest is shared by weight"),
        pytest.param([1, 1], [2, 9], [2.0, 8.0], id="a job gets what the other cannot use"),
        pytest.param([1, 1], [2, 3], [2.0, 3.0], id="no job gets more than it can use"),
    ],
)
def test_cores_by_weight(weights: list[int], most: list[int], want: list[float]) -> None:
    assert by_weight(weights, most, size=10) == want
