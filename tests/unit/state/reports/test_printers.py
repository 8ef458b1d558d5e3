"""The pod that prints the progress of a job, and the pod to read next."""

from dataclasses import replace
from typing import Any

import pytest

from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.state.mirror.cluster import Cluster
from kfext.state.reports.printers import PrintingPods
from tests.builders import JobBuilder, job, pod

RUNS = {"phase": "Running"}


def elastic(workers: int) -> JobBuilder:
    return job().worker(workers, cpu="1").elastic(minReplicas=1, rdzvBackend="c10d").resumed()


def scene(
    builder: JobBuilder, *states: dict[str, Any]
) -> tuple[TrainingJob, PrintingPods, list[Pod]]:
    """Return a job, its PrintingPods, and its workers, bound to a node and with these states."""
    cluster, job, workers = Cluster(), builder.build(), []
    cluster.observe_job(builder.raw)
    for index, state in enumerate(states):
        worker = replace(pod(job, "worker", index, bound="a"), **state)
        cluster.observe_pod(None, worker)
        workers.append(worker)
    return job, PrintingPods(cluster), workers


def name(pod: Pod | None) -> str:
    return pod.name if pod else ""


@pytest.mark.parametrize(
    ("states", "showed_progress", "want"),
    [
        pytest.param([RUNS] * 3, None, "train-worker-0", id="no worker has shown progress: rank 0"),
        pytest.param([RUNS] * 3, 2, "train-worker-2", id="the worker that has shown progress"),
        pytest.param(
            [RUNS, RUNS, {"phase": "Failed"}],
            2,
            "train-worker-0",
            id="the worker that has shown progress has ended",
        ),
        pytest.param(
            [RUNS, RUNS, {**RUNS, "deleting": True}],
            2,
            "train-worker-0",
            id="that worker is being deleted",
        ),
        pytest.param([{"phase": "Pending"}] * 2, None, "", id="no worker runs yet"),
        pytest.param([], None, "", id="no pods"),
    ],
)
def test_the_running_pod_that_prints_the_progress(
    states: list[dict[str, Any]], showed_progress: int | None, want: str
) -> None:
    training_job, printing, pods = scene(elastic(3), *states)
    if showed_progress is not None:
        printing.record_read(training_job.uid, pods[showed_progress], shows_progress=True)
    assert name(printing.live(training_job)) == want


def test_if_the_ranks_are_fixed_only_rank_0_prints() -> None:
    fixed = job().worker(2, cpu="1").resumed()
    training_job, printing, _ = scene(fixed, {"phase": "Pending"}, RUNS)
    assert printing.live(training_job) is None


def test_other_workers_are_read_every_second_time_while_none_shows_progress() -> None:
    training_job, printing, _ = scene(elastic(3), RUNS, RUNS, RUNS)
    read = [name(printing.next(training_job, fruitless=number)) for number in range(6)]
    assert "".join(pod_name[-1] for pod_name in read) == "010201"


def test_other_workers_are_read_later_beside_a_worker_that_printed_progress() -> None:
    training_job, printing, pods = scene(elastic(3), RUNS, RUNS, RUNS)
    printing.record_read(training_job.uid, pods[1], shows_progress=True)
    read = [name(printing.next(training_job, fruitless=number)) for number in range(8)]
    assert "".join(pod_name[-1] for pod_name in read) == "11101210"


def test_a_pod_that_ended_is_read_once() -> None:
    training_job, printing, (ended,) = scene(elastic(1), {"phase": "Succeeded"})
    assert printing.next(training_job, fruitless=0) == ended
    printing.record_read(training_job.uid, ended, shows_progress=False)
    assert printing.next(training_job, fruitless=0) is None


def test_each_log_that_has_ended_is_read_once_though_none_showed_progress() -> None:
    training_job, printing, pods = scene(elastic(3), *[{"phase": "Succeeded"}] * 3)
    read: list[Pod] = []
    while (pod := printing.next(training_job, fruitless=len(read))) is not None and len(read) < 9:
        printing.record_read(training_job.uid, pod, shows_progress=False)
        read.append(pod)
    assert sorted(read, key=name) == pods


def test_a_silent_pod_is_still_read_beside_a_pod_that_ended() -> None:
    training_job, printing, (runs, ended) = scene(elastic(2), RUNS, {"phase": "Succeeded"})
    printing.record_read(training_job.uid, ended, shows_progress=False)
    assert [printing.next(training_job, fruitless=number) for number in range(4)] == [runs] * 4


def test_nothing_is_known_of_a_forgotten_job() -> None:
    training_job, printing, pods = scene(elastic(2), RUNS, {"phase": "Succeeded"})
    printing.record_read(training_job.uid, pods[1], shows_progress=True)
    printing.forget(training_job.uid)
    assert name(printing.next(training_job, fruitless=0)) == "train-worker-0"
