"""Which pods may print the progress of a job."""

from dataclasses import replace

import pytest

from kfext.model.pod import Pod
from kfext.state.reports.printers import printing_pods
from tests.builders import JobBuilder, job, pod

MASTERS = job().master(cpu="1").worker(2, cpu="1").resumed()
WORKERS = job().worker(3, cpu="1").resumed()


def pods(builder: JobBuilder, *replicas: tuple[str, int]) -> list[Pod]:
    job = builder.build()
    return [pod(job, type_, index, bound="a") for type_, index in replicas]


CASES: dict[str, tuple[JobBuilder, list[tuple[str, int]], list[str]]] = {
    "the master": (MASTERS, [("worker", 0), ("worker", 1), ("master", 0)], ["train-master-0"]),
    "the first worker alone": (WORKERS, [("worker", 2), ("worker", 0)], ["train-worker-0"]),
    "another worker while the first is being replaced": (
        WORKERS, [("worker", 2), ("worker", 1)], ["train-worker-1"],
    ),
    "no pod while none is bound": (WORKERS, [], []),
}  # fmt: skip


@pytest.mark.parametrize(("builder", "replicas", "want"), CASES.values(), ids=CASES)
def test_the_pods_that_print(
    builder: JobBuilder, replicas: list[tuple[str, int]], want: list[str]
) -> None:
    assert [pod.name for pod in printing_pods(builder.build(), pods(builder, *replicas))] == want


def test_a_replaced_pod_does_not_count_for_its_replica() -> None:
    job = WORKERS.build()
    old = replace(pod(job, "worker", 0, bound="a", uid="old"), created=1.0)
    new = replace(pod(job, "worker", 0, bound="b", uid="new"), created=2.0)
    assert [result.uid for result in printing_pods(job, [new, old])] == ["new"]


def test_under_torchrun_any_worker_may_print() -> None:
    elastic = WORKERS.elastic(minReplicas=1, rdzvBackend="c10d")
    job = elastic.build()
    assert job.rendezvous.dynamic
    result = printing_pods(job, pods(elastic, ("worker", 1), ("worker", 0)))
    assert [pod.name for pod in result] == ["train-worker-0", "train-worker-1"]


def test_parameter_servers_and_evaluators_do_not_print() -> None:
    training_job = job("TFJob").ps(1, cpu="1").worker(1, cpu="1").resumed()
    result = printing_pods(training_job.build(), pods(training_job, ("ps", 0), ("worker", 0)))
    assert [pod.name for pod in result] == ["train-worker-0"]
