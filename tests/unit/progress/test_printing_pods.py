"""The pod with the progress of a job in its log."""

from dataclasses import replace

import pytest

from kfext.model.pod import Pod
from kfext.state.reports.printers import printing_pods
from tests.builders import JobBuilder, job, pod

MASTERS = job().master(cpu="1").worker(2, cpu="1").resumed()
WORKERS = job().worker(3, cpu="1").resumed()


def pods(of: JobBuilder, *replicas: tuple[str, int]) -> list[Pod]:
    made = of.build()
    return [pod(made, type_, index, bound="a") for type_, index in replicas]


CASES: dict[str, tuple[JobBuilder, list[tuple[str, int]], list[str]]] = {
    "the master": (MASTERS, [("worker", 0), ("worker", 1), ("master", 0)], ["train-master-0"]),
    "the first worker without a master": (WORKERS, [("worker", 2), ("worker", 0)], ["train-worker-0"]),
    "another worker while the first is being replaced": (
        WORKERS, [("worker", 2), ("worker", 1)], ["train-worker-1"],
    ),
    "no pod while none is bound": (WORKERS, [], []),
}  # fmt: skip


@pytest.mark.parametrize(("of", "replicas", "want"), CASES.values(), ids=CASES)
def test_which_pod_prints(of: JobBuilder, replicas: list[tuple[str, int]], want: list[str]) -> None:
    assert [pod.name for pod in printing_pods(of.build(), pods(of, *replicas))] == want


def test_a_replaced_pod_does_not_count_for_its_replica() -> None:
    made = WORKERS.build()
    old = replace(pod(made, "worker", 0, bound="a", uid="old"), created=1.0)
    new = replace(pod(made, "worker", 0, bound="b", uid="new"), created=2.0)
    assert [found.uid for found in printing_pods(made, [new, old])] == ["new"]


def test_under_torchrun_any_worker_may_print() -> None:
    elastic = WORKERS.elastic(minReplicas=1, rdzvBackend="c10d")
    made = elastic.build()
    assert made.rendezvous.dynamic
    found = printing_pods(made, pods(elastic, ("worker", 1), ("worker", 0)))
    assert [pod.name for pod in found] == ["train-worker-0", "train-worker-1"]


def test_parameter_servers_and_evaluators_do_not_print() -> None:
    of = job("TFJob").ps(1, cpu="1").worker(1, cpu="1").resumed()
    found = printing_pods(of.build(), pods(of, ("ps", 0), ("worker", 0)))
    assert [pod.name for pod in found] == ["train-worker-0"]
