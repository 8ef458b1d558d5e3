"""The longest tick of the planner, on a large full cluster with a long queue. No I/O.

Measured: `Planner.tick` until nothing remains to decide. Only between ticks does the controller
renew the Lease, read the watches and write, so the longest tick is the longest time without them;
the Lease is lost after 10 s. The cluster has 5,000 nodes and 50,000 pods of two priorities, half of
them of training jobs. 1,000 jobs of 200 shapes wait, all for longer than `reserveAfter`: half need
one node and have a priority class that preempts, half need many nodes. Other pods use all GPUs, so
no job fits, now or by preemption, and none has a reservation. First all jobs are new to the
planner, as after a start; then a pod ends, and the planner decides on all of them again.

Then ten pods end per second: on nodes without a free GPU, which helps none of these jobs, or on a
node with four, which might help most of them but starts none. Every two seconds a small job that
fits joins the end of the queue. Measured with the controller's own loop: the time until the small
job starts, and the longest time between two turns of the companion.

Seconds are CPU seconds, so that other load on the machine does not count; while the loop is idle,
the clock jumps to the next event. Not measured: reading objects from JSON, and writes.
"""

import asyncio
import gc
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from structlog.testing import capture_logs

from e2e.bench.report import COMPANION_TURN, LONGEST_TICK, TAIL_START, spread, table
from kfext import names
from kfext.controller.metrics import Metrics
from kfext.controller.reconciler import Reconciler
from kfext.core.lifecycle.steps import Step, Unsuspend
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.node import parse_node
from kfext.model.pod import Pod
from kfext.model.priority import PriorityClass
from kfext.model.quantity import PODS
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner

_NODES, _PODS_EACH, _JOBS, _SHAPES = 5000, 10, 1000, 200
_WALL = 100_000.0
_ENDS, _CHURN_SECONDS, _SMALL_SECONDS = 10, 30, 2.0
_HIGH = "high"
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Round:
    """The CPU seconds of each tick until nothing remained to decide."""

    ticks: list[float]


def measure(*, quick: bool) -> str:
    repeats = 1 if quick else 3
    runs = [_run() for _ in range(repeats)]
    rows = []
    for number, what in enumerate(("all jobs are new", "one pod ends")):
        rounds = [run[number] for run in runs]
        longest = [max(round_.ticks) for round_ in rounds]
        total = [sum(round_.ticks) for round_ in rounds]
        rows.append(
            (
                what,
                str(round(median(len(round_.ticks) for round_ in rounds))),
                spread(longest),
                spread(total),
                LONGEST_TICK.judge(median(longest)),
            )
        )
    ticks = table(
        f"The longest tick: {_NODES} nodes, {_NODES * _PODS_EACH} pods, {_JOBS} queued jobs of "
        f"{_SHAPES} shapes; {repeats} repeats",
        ("after", "ticks", "longest CPU s", "all CPU s", "target"),
        rows,
    )
    return f"{ticks}\n\n{_churn_table()}"


# --- while pods end -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Churn:
    """The second measurement, and the writer of its reconciler.

    `now`: seconds since pods began to end. `waits`: the seconds from the creation of each small job
    to its start; infinity for a job that has not started. `turns`: the times of the companion's
    turns. `ticks`: the seconds of each tick.
    """

    planner: Planner
    ending: Iterator[Pod]
    now: float = 0.0
    waits: dict[str, float] = field(default_factory=dict)
    turns: list[float] = field(default_factory=lambda: [0.0])
    ticks: list[float] = field(default_factory=list)
    ended: int = 0

    async def write(self, tracked: TrackedJob, step: Step) -> bool:
        if isinstance(step, Unsuspend):
            created_at = float(tracked.job.name.removeprefix("small-"))
            self.waits[tracked.job.name] = self.now - created_at
            self.planner.cluster.forget_job(tracked.job.uid)
        return True

    def emit_events(self) -> None:
        while self.ended < self.now * _ENDS:
            self.planner.cluster.observe_pod(next(self.ending), None)
            self.ended += 1
        while len(self.waits) * _SMALL_SECONDS < self.now:
            created_at = len(self.waits) * _SMALL_SECONDS
            self.waits[f"small-{created_at}"] = math.inf
            self.planner.cluster.observe_job(_small(created_at))


def _churn_table() -> str:
    rows = []
    for what, spare in (("help no job", False), ("may help most", True)):
        with capture_logs():  # a line for each step
            churn = asyncio.run(_run_churn(spare=spare))
        waits, gaps = [*churn.waits.values()], [b - a for a, b in pairwise(churn.turns)]
        never = sum(map(math.isinf, waits))
        rows.append(
            (
                f"that {what}",
                f"{never} of {len(waits)}",
                f"{median(waits):.2f}",
                f"{max(waits):.2f} {TAIL_START.judge(max(waits))}",
                f"{max(gaps):.2f} {COMPANION_TURN.judge(max(gaps))}",
                f"{max(churn.ticks):.2f} {LONGEST_TICK.judge(max(churn.ticks))}",
                f"{sum(churn.ticks) / churn.now:.0%}",
            )
        )
    return table(
        f"A job that fits, behind all others, while {_ENDS} pods end a second ({_CHURN_SECONDS} s)",
        (
            "pods",
            "never started",
            "median s",
            "longest s",
            "companion's longest s",
            "longest tick s",
            "CPU",
        ),
        rows,
    )


class _NoDisplay:
    """A display that shows nothing."""

    def show(self, *_: object) -> None:
        """Ignore the phase of a job."""

    def show_companion(self, *_: object) -> None:
        """Ignore a condition of the companion."""


async def _run_churn(*, spare: bool) -> _Churn:
    planner, pods = _full_cluster()
    spares = [_spare_pod(number) for number in range(2 * _ENDS * _CHURN_SECONDS)]
    planner.cluster.observe_node(None, _spare_node())
    for pod in spares:
        planner.cluster.observe_pod(None, pod)
    for number in range(_JOBS):
        planner.cluster.observe_job(_job(number))
    churn = _Churn(planner, iter(spares if spare else [pod for pod in pods if not _has_gpu(pod)]))
    _until_calm(planner)
    original_steps = planner.companion.steps

    def steps(now: Moment) -> list[tuple[TrackedJob, Step]]:
        churn.turns.append(churn.now)
        return original_steps(now)

    planner.companion.steps = steps  # type: ignore[method-assign]
    reconciler = Reconciler(
        planner=planner,
        wake=asyncio.Event(),
        writer=churn,  # type: ignore[arg-type]
        display=_NoDisplay(),  # type: ignore[arg-type]
        metrics=Metrics(),
        wall=lambda: _WALL + churn.now,
        monotonic=lambda: _WALL + churn.now,
    )
    gc.collect()
    while churn.now < _CHURN_SECONDS:
        began = time.process_time()
        churn.emit_events()
        async with asyncio.TaskGroup() as writes:
            remains = reconciler.tick(writes)
        churn.ticks.append(time.process_time() - began)
        churn.now += churn.ticks[-1]
        if not remains:
            churn.now = max(churn.now, churn.ended / _ENDS)
    churn.turns.append(churn.now)
    return churn


def _has_gpu(pod: Pod) -> bool:
    return _GPU in pod.requests


def _spare_node() -> Any:
    allocatable = {"cpu": "64", "memory": "512Gi", _GPU: "4", "pods": "1000"}
    return parse_node({"metadata": {"name": "spare"}, "status": {"allocatable": allocatable}})


def _spare_pod(number: int) -> Pod:
    name, requests = f"spare-{number}", {"cpu": 10, PODS: 1}
    return Pod("other", name, name, node_name="spare", phase="Running", requests=requests)


def _small(created_at: float) -> dict[str, Any]:
    job = _job(0)
    job["metadata"] |= {
        "name": f"small-{created_at}",
        "uid": f"small-{created_at}",
        "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_WALL + created_at)),
    }
    container = {"name": "pytorch", "resources": {"requests": {"cpu": "1"}}}
    worker = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    job["spec"]["pytorchReplicaSpecs"] = {"Worker": worker}
    return job


# --- until nothing remains ------------------------------------------------------------------------


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
    raise RuntimeError("the planner never finishes")


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
    """Return pod `index` of the ten pods of a node; the last uses all GPUs of the node."""
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
    """Return a queued job; jobs of the same shape differ only in name and age."""
    shape = number % _SHAPES
    one_node = shape % 2 == 1
    replicas = 1 + shape % 8 if one_node else 8 + shape
    gpus = 8 // replicas if one_node else 1 + shape % 8
    requests = {"cpu": f"{1000 + shape}m", "memory": "8Gi"}
    container = {
        "name": "pytorch",
        "resources": {"requests": requests, "limits": {_GPU: str(gpus)}},
    }
    spec = {"containers": [container], **({"priorityClassName": _HIGH} if one_node else {})}
    created_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(number))
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "namespace": "bench",
            "name": f"job-{number}",
            "uid": f"uid-{number}",
            "resourceVersion": "1",
            "creationTimestamp": created_at,
            "annotations": {
                names.HELD: "true",
                names.COLOCATION: "required" if one_node else "preferred",
            },
        },
        "spec": {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {"Worker": {"replicas": replicas, "template": {"spec": spec}}},
        },
    }
