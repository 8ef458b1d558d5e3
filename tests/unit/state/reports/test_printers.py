"""Which pod of a job prints its progress."""

from dataclasses import replace
from typing import Any

import pytest

from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.state.mirror.cluster import Cluster
from kfext.state.reports.printers import Printers
from tests.builders import JobBuilder, job, pod

RUNS = {"phase": "Running"}


def elastic(workers: int) -> JobBuilder:
    return job().worker(workers, cpu="1").elastic(minReplicas=1, rdzvBackend="c10d").resumed()


def printers(
    builder: JobBuilder, *states: dict[str, Any]
) -> tuple[TrainingJob, Printers, list[Pod]]:
    """Return a job, its printers, and its workers, bound to a node and with these states."""
    cluster, job, made = Cluster(), builder.build(), []
    cluster.observe_job(builder.raw)
    for index, state in enumerate(states):
        worker = replace(pod(job, "worker", index, bound="a"), **state)
        cluster.observe_pod(None, worker)
        made.append(worker)
    return job, Printers(cluster), made


def name(result: Pod | None) -> str:
    return result.name if result else ""


@pytest.mark.parametrize(
    ("states", "shown", "want"),
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
            [RUNS, RUNS, {**RUNS, "deleting": True}], 2, "train-worker-0", id="it is being deleted"
        ),
        pytest.param([{"phase": "Pending"}] * 2, None, "", id="no worker runs yet"),
        pytest.param([], None, "", id="no pods"),
    ],
)
def test_the_live_printer(states: list[dict[str, Any]], shown: int | None, want: str) -> None:
    of, result, pods = printers(elastic(3), *states)
    if shown is not None:
        result.read(of.uid, pods[shown], shown=True)
    assert name(result.live(of)) == want


def test_where_the_ranks_are_fixed_only_rank_0_prints() -> None:
    fixed = job().worker(2, cpu="1").resumed()
    of, result, _ = printers(fixed, {"phase": "Pending"}, RUNS)
    assert result.live(of) is None


def test_other_workers_are_read_every_second_time_while_none_shows_progress() -> None:
    of, result, _ = printers(elastic(3), RUNS, RUNS, RUNS)
    asked = [name(result.next(of, fruitless=number)) for number in range(6)]
    assert "".join(pod_name[-1] for pod_name in asked) == "010201"


def test_other_workers_beside_a_worker_that_printed_are_read_later() -> None:
    of, result, pods = printers(elastic(3), RUNS, RUNS, RUNS)
    result.read(of.uid, pods[1], shown=True)
    asked = [name(result.next(of, fruitless=number)) for number in range(8)]
    assert "".join(pod_name[-1] for pod_name in asked) == "11101210"


def test_a_pod_that_ended_is_read_once() -> None:
    of, result, (ended,) = printers(elastic(1), {"phase": "Succeeded"})
    assert result.next(of, fruitless=0) == ended
    result.read(of.uid, ended, shown=False)
    assert result.next(of, fruitless=0) is None


def test_each_log_that_has_ended_is_read_once_though_none_showed_progress() -> None:
    of, result, pods = printers(elastic(3), *[{"phase": "Succeeded"}] * 3)
    read: list[Pod] = []
    while (pod := result.next(of, fruitless=len(read))) is not None and len(read) < 9:
        result.read(of.uid, pod, shown=False)
        read.append(pod)
    assert sorted(read, key=name) == pods


def test_a_silent_pod_is_still_read_beside_one_that_ended() -> None:
    of, result, (runs, ended) = printers(elastic(2), RUNS, {"phase": "Succeeded"})
    result.read(of.uid, ended, shown=False)
    assert [result.next(of, fruitless=number) for number in range(4)] == [runs] * 4


def test_nothing_is_known_of_a_forgotten_job() -> None:
    of, result, pods = printers(elastic(2), RUNS, {"phase": "Succeeded"})
    result.read(of.uid, pods[1], shown=True)
    result.forget(of.uid)
    assert name(result.next(of, fruitless=0)) == "train-worker-0"
