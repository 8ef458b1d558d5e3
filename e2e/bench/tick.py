"""The longest turn of the controller's loop, on a large full cluster with a long queue. No I/O.

Measured: `Planner.tick` until nothing is left to decide. Between two ticks the controller lets the
Lease, the watches and the writes run, so the longest tick is the longest time that nothing else is
done; the Lease is lost after 10 s. The cluster has 5,000 nodes and 50,000 pods: of training jobs
and of others, and of two priorities. 1,000 jobs of 200 shapes wait, all for longer than
`reserveAfter`, half of them for one node and with a class that preempts, half for many nodes.
Others hold all GPUs, so for none there is a place, now or by preemption, or a reservation. First
all are new to the planner, as after a start; then a pod ends, and it looks at all of them again.

Seconds are those of the CPU, so that a busy machine does not count. Not measured: reading objects
from JSON, and writing anything.
"""

import gc
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

from e2e.bench.report import spread, table
from e2e.bench.targets import LONGEST_TICK
from kfext import names
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.node import parse_node
from kfext.model.pod import Pod
from kfext.model.priority import PriorityClass
from kfext.state.planner import Planner

_NODES, _PODS_EACH, _JOBS, _SHAPES = 5000, 10, 1000, 200
_WALL = 100_000.0
_HIGH = "high"
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Round:
    """CPU seconds of each tick until nothing was left to decide."""

    ticks: list[float]


def measure(*, quick: bool) -> str:
    """Return the table."""
    repeats = 1 if quick else 3
    runs = [_run() for _ in range(repeats)]
    rows = []
    for number, what in enumerate(("all jobs are new", "one pod ends")):
        rounds = [run[number] for run in runs]
        longest = [max(one.ticks) for one in rounds]
        total = [sum(one.ticks) for one in rounds]
        rows.append(
            (
                what,
                str(round(median(len(one.ticks) for one in rounds))),
                spread(longest),
                spread(total),
                LONGEST_TICK.judge(median(longest)),
            )
        )
    return table(
        f"The longest tick: {_NODES} nodes, {_NODES * _PODS_EACH} pods, {_JOBS} queued jobs of "
        f"{_SHAPES} shapes; {repeats} repeats",
        ("after", "ticks", "longest CPU s", "all CPU s", "target"),
        rows,
    )


def _run() -> tuple[Round, Round]:
    planner, pods = _full_cluster()
    for number in range(_JOBS):
        planner.cluster.observe_job(_job(number))
    gc.collect()
    first = _until_calm(planner)
    planner.cluster.observe_pod(pods[0], None)
    return first, _until_calm(planner)


def _until_calm(planner: Planner) -> Round:
    ticks = []
    for _ in range(10_000):
        began = time.process_time()
        tick = planner.tick(Moment(wall=_WALL, monotonic=_WALL))
        ticks.append(time.process_time() - began)
        if tick.steps or tick.failures:
            raise RuntimeError(f"nothing fits, and still: {tick.steps} {tick.failures}")
        if not tick.remainder:
            return Round(ticks)
    raise RuntimeError("the planner never comes to an end")


def _full_cluster() -> tuple[Planner, list[Pod]]:
    planner = Planner()
    planner.settings.observe_namespace(None, Namespace("bench", {names.MANAGED: "true"}))
    planner.queue.observe_class(None, PriorityClass(_HIGH, 1000))
    allocatable = {"cpu": "64", "memory": "512Gi", _GPU: "8", "pods": "110"}
    pods = []
    for number in range(_NODES):
        name = f"node-{number:04}"
        metadata = {"name": name, "labels": {"zone": "ab"[number % 2]}}
        planner.cluster.observe_node(
            None, parse_node({"metadata": metadata, "status": {"allocatable": allocatable}})
        )
        for index in range(_PODS_EACH):
            pods.append(_pod(number, index, name))
            planner.cluster.observe_pod(None, pods[-1])
    return planner, pods


def _pod(number: int, index: int, node: str) -> Pod:
    """Return one of the ten pods of a node; the last has all of its GPUs."""
    last = index == _PODS_EACH - 1
    return Pod(
        namespace="bench",
        name=f"pod-{number}-{index}",
        uid=f"pod-{number}-{index}",
        owner_uid="" if index % 2 else f"runs-{number}",
        node_name=node,
        phase="Running",
        requests={"cpu": 6400, "memory": 2**30, "pods": 1, **({_GPU: 8} if last else {})},
        priority=2000 if last or index % 4 == 0 else 0,
    )


def _job(number: int) -> dict[str, Any]:
    """Return a queued job; those of a shape differ in their age only."""
    shape = number % _SHAPES
    alone = shape % 2 == 1
    replicas = 1 + shape % 8 if alone else 8 + shape
    gpus = 8 // replicas if alone else 1 + shape % 8
    requests = {"cpu": f"{1000 + shape}m", "memory": "8Gi"}
    container = {
        "name": "pytorch",
        "resources": {"requests": requests, "limits": {_GPU: str(gpus)}},
    }
    spec = {"containers": [container], **({"priorityClassName": _HIGH} if alone else {})}
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(number))
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "namespace": "bench",
            "name": f"job-{number}",
            "uid": f"uid-{number}",
            "resourceVersion": "1",
            "creationTimestamp": created,
            "annotations": {
                names.HELD: "true",
                names.COLOCATION: "required" if alone else "preferred",
            },
        },
        "spec": {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {"Worker": {"replicas": replicas, "template": {"spec": spec}}},
        },
    }
