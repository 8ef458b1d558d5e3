"""A big cluster in use: 5,000 nodes, 50,000 bound pods, 1,000 running jobs of ten pods each.

kfext placed the jobs long ago, and their pods are bound; the other 40,000 pods belong to no job.
Everything exists before the controller starts. Measured: the time from the start of its process
until it leads; its memory then, and at the end; its CPU seconds for status changes of pods, both of
jobs and of none; and for new jobs, submitted at once, the time from the last submit until all are
planned and resumed. Half of the GPUs are free.
"""

import asyncio
import random
import time
from dataclasses import dataclass

from e2e.bench import crowd
from e2e.bench.bed import ScaleBench, scale_cluster, with_client
from e2e.bench.crowd import job_body, pod_names
from e2e.bench.report import LIVE_MEMORY, LIVE_PLAN_RATE, spread, table
from e2e.bench.watching import watching
from e2e.testbed.progress import step
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds.registered import KINDS

_NAMESPACE, _OTHERS, _NEW = "bench-live", "bench-others", "bench-new"
_GPUS = 8
_PODS_PER_JOB = 10
_SIZES = (8, 16)
_PATIENCE_SECONDS = 180.0
_CALM_SECONDS = 3.0
_OTHER = {"cpu": "500m", "memory": "1Gi"}


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the measurement. `pods` includes the pods of the jobs; `events`: status changes.

    Nothing creates the pods of the `new_jobs`, so they are fewer than kfext lets be outstanding.
    """

    nodes: int
    pods: int
    jobs: int
    starts: int
    events: int
    new_jobs: int


_FULL = Size(nodes=5000, pods=50_000, jobs=1000, starts=3, events=3000, new_jobs=36)
_QUICK = Size(nodes=1000, pods=5000, jobs=100, starts=2, events=500, new_jobs=36)


@dataclass(frozen=True, slots=True)
class Start:
    """A start of the controller: seconds and CPU seconds until it leads, and its memory in MiB."""

    seconds: float
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Planning:
    """New jobs: seconds to submit them, seconds from then until all are resumed, CPU seconds.

    `deciding` is the mean time of a decision by the controller's own histogram, in seconds.
    """

    submit: float
    planned: float
    cpu: float
    deciding: float


def measure(*, quick: bool) -> str:
    size = _QUICK if quick else _FULL
    with scale_cluster("live") as bench:
        bench.stop_controller()
        with step(f"{size.pods} pods on {size.nodes} nodes", expect="2 minutes"):
            with_client(bench, lambda client: _fill(client, size))
        starts = [_start(bench, last=number == size.starts - 1) for number in range(size.starts)]
        return with_client(bench, lambda client: _running(bench, client, size, starts))


async def _fill(client: Client, size: Size) -> None:
    for namespace in (_NAMESPACE, _OTHERS, _NEW):
        await crowd.create_namespace(client, namespace)
    await crowd.create_nodes(client, size.nodes, gpus=_GPUS)
    # Four pods per node, on half of its GPUs: a job of ten pods is on three or four nodes.
    await crowd.in_flight(
        crowd.create_live_job(
            client,
            _NAMESPACE,
            f"live-{number:04}",
            homes=[
                crowd.node_name((number * _PODS_PER_JOB + rank) // 4 % size.nodes)
                for rank in range(_PODS_PER_JOB)
            ],
        )
        for number in range(size.jobs)
    )
    others = range(size.pods - size.jobs * _PODS_PER_JOB)
    await crowd.create_pods(
        client,
        (
            crowd.bound_pod(
                _OTHERS, _other(number), node=crowd.node_name(number % size.nodes), requests=_OTHER
            )
            for number in others
        ),
    )


def _other(number: int) -> str:
    return f"web-{number % 900}-7c9f8d6b5-{number:05}"


def _start(bench: ScaleBench, *, last: bool) -> Start:
    """Start the controller and wait until it leads; stop it again unless it is the last start."""
    began = time.monotonic()
    bench.launch_controller()
    while not bench.samples().get("kfext_leading"):
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise TimeoutError(f"the controller does not lead\n{bench.tail()}")
        time.sleep(0.05)
    seconds, cpu = time.monotonic() - began, bench.controller_cpu()
    time.sleep(_CALM_SECONDS)
    start = Start(seconds, cpu, bench.memory())
    if not last:
        bench.stop_controller()
    return start


async def _running(bench: ScaleBench, client: Client, size: Size, starts: list[Start]) -> str:
    live = [name for number in range(size.jobs) for name in pod_names(f"live-{number:04}", 10)]
    draw = random.Random(0)
    job_events = await _events(bench, client, _NAMESPACE, draw.sample(live, size.events))
    chosen_others = [_other(number) for number in draw.sample(range(size.pods // 2), size.events)]
    others = await _events(bench, client, _OTHERS, chosen_others)
    planning = await _plan(bench, client, size.new_jobs)
    return _table(
        size, starts, events=(job_events, others), planning=planning, memory=bench.memory()
    )


async def _events(bench: ScaleBench, client: Client, namespace: str, pods: list[str]) -> float:
    """Change the status of pods; return the CPU seconds of the controller for each."""
    await asyncio.sleep(_CALM_SECONDS)
    cpu = bench.controller_cpu()
    await crowd.in_flight(
        client.merge_patch(
            paths.pods(namespace, name, "status"), {"status": {"message": "something changed"}}
        )
        for name in pods
    )
    await asyncio.sleep(_CALM_SECONDS)
    return (bench.controller_cpu() - cpu) / len(pods)


async def _plan(bench: ScaleBench, client: Client, count: int) -> Planning:
    draw = random.Random(0)
    bodies = [job_body(f"new-{n:04}", draw.randint(*_SIZES), held=True) for n in range(count)]
    before, cpu, began = bench.samples(), bench.controller_cpu(), time.monotonic()
    async with watching(client, paths.jobs(KINDS["PyTorchJob"], _NEW)) as seen:
        await crowd.create_jobs(client, _NEW, bodies)
        submitted = time.monotonic()
        await seen.until(
            lambda: len(seen.resumed) == count,
            what=f"{count} new jobs to be resumed",
            seconds=_PATIENCE_SECONDS,
        )
        resumed = max(seen.resumed.values())
    await asyncio.sleep(_CALM_SECONDS)
    after = bench.samples()
    deciding, decisions = (
        after[name] - before[name] for name in ("kfext_tick_seconds_sum", "kfext_decisions_total")
    )
    return Planning(
        submit=submitted - began,
        planned=max(resumed - submitted, 0.0),
        cpu=bench.controller_cpu() - cpu,
        deciding=deciding / decisions,
    )


def _table(
    size: Size,
    starts: list[Start],
    *,
    events: tuple[float, float],
    planning: Planning,
    memory: float,
) -> str:
    highest = max(memory, *(start.memory for start in starts))
    rows = [
        ("start to leading, s", spread([start.seconds for start in starts], digits=1), ""),
        ("start to leading, CPU s", spread([start.cpu for start in starts], digits=1), ""),
        ("memory after the start, MiB", spread([start.memory for start in starts], digits=0), ""),
        ("memory at the end, MiB", f"{memory:.0f}", LIVE_MEMORY.judge(highest * 2**20 / 1e6)),
        *(
            (f"status of a pod of {owner}, events per CPU s", f"{1 / cpu:.0f}", "")
            for owner, cpu in zip(("a live job", "no job"), events, strict=True)
        ),
        (
            f"{size.new_jobs} new jobs submitted to all resumed, jobs/s",
            f"{size.new_jobs / (planning.submit + planning.planned):.0f}",
            "",
        ),
        (
            "controller CPU ms per new job, all told",
            f"{1e3 * planning.cpu / size.new_jobs:.1f}",
            "",
        ),
        (
            "decisions/s by the controller's histogram",
            f"{1 / planning.deciding:.0f}",
            LIVE_PLAN_RATE.judge(1 / planning.deciding),
        ),
    ]
    title = f"{size.nodes} nodes, {size.pods} pods, {size.jobs} live jobs"
    return table(f"{title}; {len(starts)} starts", ("figure", "value", "target"), rows)
