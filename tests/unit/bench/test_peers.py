"""The comparison with Kueue: both get equal jobs; the tables and conclusions of the report."""

from typing import Any

import pytest

from e2e.bench.peers import kueue
from e2e.bench.peers.jobs import fillers, gang, train_job
from e2e.bench.peers.measure import Workload, tables_of
from e2e.bench.peers.runs import Answer, Run
from kfext.names import KUEUE_QUEUE

_NODES, _GPUS = 450, 8


def _without_metadata(job: dict[str, Any]) -> dict[str, Any]:
    specs = job["spec"]["pytorchReplicaSpecs"]
    return {type_: specs[type_]["template"]["spec"] for type_ in specs}


def test_kueue_gets_the_same_pods_with_its_queue_and_its_topology_annotation() -> None:
    plain = gang("some", 8)
    queued = kueue.with_queue(plain)
    assert _without_metadata(queued) == _without_metadata(plain)
    assert queued["metadata"]["labels"] == {KUEUE_QUEUE: kueue.QUEUE}
    for replicas in queued["spec"]["pytorchReplicaSpecs"].values():
        assert list(replicas["template"]["metadata"]["annotations"].values()) == [
            "kubernetes.io/hostname"
        ]


def test_the_runtime_of_a_train_job_is_patched_as_the_templates_of_other_jobs_are() -> None:
    queued = kueue.with_queue(train_job("some", 8))
    (patch,) = queued["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    metadata = node["template"]["spec"]["template"]["metadata"]
    assert list(metadata["annotations"].values()) == ["kubernetes.io/hostname"]


def test_fillers_use_about_half_of_the_gpus_leave_few_nodes_empty_and_room_for_200_gangs() -> None:
    pods = list(fillers(_NODES, gpus=_GPUS, seed=7))
    assert pods == list(fillers(_NODES, gpus=_GPUS, seed=7))
    per_node: dict[str, int] = {}
    for pod in pods:
        node = pod["spec"]["nodeName"]
        per_node[node] = per_node.get(node, 0) + 1
    assert max(per_node.values()) <= _GPUS
    assert 0.45 <= len(pods) / (_NODES * _GPUS) <= 0.55
    assert _NODES - len(per_node) <= 0.1 * _NODES
    assert _NODES * _GPUS - len(pods) >= 200 * 8


def _run(**changed: Any) -> Run:
    values: dict[str, Any] = {
        "gangs": 50, "created": 5.0, "ungated": 6.0, "bound": 10.0, "waits": (1.0, 2.0),
        "nodes": 1.0, "own_cpu": 3.0,
        "by_program": {"etcd": 2.0, "kwok": 0.01, "kubelet": 17.99},
    }  # fmt: skip
    return Run(**{**values, **changed})


def _report(**kfext_values: Any) -> str:
    def workload(gangs: int) -> Workload:
        runs = {name: [_run()] for name in ("plain", "affinity", "kueue")}
        return Workload(f"{gangs} gangs", gangs, 8, runs={**runs, "kfext": [_run(**kfext_values)]})

    answers = {name: [Answer(0.5, "no room", 0)] for name in ("plain", "affinity", "kueue")}
    answers["kfext"] = [Answer(kfext_values.get("said", 0.5), "no room", 0)]
    return tables_of([workload(1), workload(50), workload(200)], answers)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "Where Kueue is better than kfext: nowhere."),
        ({"created": 5.5}, "1 PyTorchJobs of 8: created s 5.00 against 5.50"),
        ({"bound": 20.0}, "50 PyTorchJobs of 8: gangs/s 5.00 against 2.50"),
        ({"created": 4.0, "nodes": 0.5}, "Where Kueue is better than kfext: nowhere."),
        ({"bound": 12.0}, "gangs/s, kfext / plain: 0.83 (0.83-0.83) (>= 0.75: PASS)"),
        ({"bound": 20.0}, "gangs/s, kfext / Kueue: 0.50 (0.50-0.50) (>= 1.2: MISS)"),
        ({"bound": 9.0}, "gangs/s, kfext / Kueue: 1.11 (1.11-1.11) (>= 1.1: PASS)"),
        ({"by_program": {"etcd": 15.0}}, "all CPU, kfext / Kueue: 0.75 (0.75-0.75) (< 1: PASS)"),
        ({}, "all CPU, kfext / Kueue: 1.00 (1.00-1.00) (< 1: MISS)"),
    ],
)
def test_the_report_states_what_the_measurements_show(changed: dict[str, Any], line: str) -> None:
    assert line in _report(**changed)
