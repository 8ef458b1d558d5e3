"""What reading the logs of 1,000 running jobs costs, against the same jobs with `metrics: off`.

API server, kube-scheduler, training-operator and kfext are real; every job has one pod. The nodes
are fake, and so are the logs: kwok is the kubelet of all nodes and answers `pods/log` from one file
for all pods (its ClusterLogs), which grows by five lines a second. A job is read every half
minute at most, so that each read finds as many new lines as it asks for, which is what costs most.
What a real kubelet takes to read a log of its own is not measured here.

Measured over the same time with reading off, on, and off again: requests for logs as the API server
counts them; the CPU of API server, controller and kwok; the controller's writes; memory. How old
what kfext knows is follows from the step that it last saw of each job.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import urllib3

from e2e.bench.bed import ScaleBench, cpu_seconds, with_client
from e2e.bench.crowd import create_jobs
from e2e.bench.report import table
from e2e.harness.fake_kubelet import LINES_PER_SECOND, GrowingLog, growing
from e2e.harness.jobs import workers
from e2e.testbed import fakenodes, lifecycle
from e2e.testbed.progress import step
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.names import MANAGED, METRICS

_NAMESPACE = "bench-polling"
_PATIENCE_SECONDS = 600.0
_CALM_SECONDS = 15.0
"""After reading was turned on or off; jobs are checked every ten seconds."""
_PROCESSES = ("kube-apiserver", "kwok")
_LOG_REQUESTS = re.compile(r'^apiserver_request_total\{[^}]*subresource="log"[^}]*\} (\S+)$', re.M)
_STEPS = re.compile(r"^kfext_job_step\{[^}]*\} (\S+)$", re.M)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured; the time is of each of the three parts."""

    jobs: int
    nodes: int
    seconds: float
    samples: int


_FULL = Size(jobs=1000, nodes=200, seconds=150, samples=20)
_QUICK = Size(jobs=50, nodes=20, seconds=30, samples=5)


@dataclass(frozen=True, slots=True)
class Counted:
    """What has been counted until a moment: requests, writes, and CPU seconds by process."""

    at: float
    logs: float
    writes: float
    cpu: dict[str, float]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a part came to, a second; memory is the controller's at its end, in MiB.

    `ready`: seconds until what was turned on or off had come to every job.
    """

    logs: float
    writes: float
    cpu: dict[str, float]
    memory: float
    ready: float

    @classmethod
    def between(cls, before: Counted, after: Counted, *, memory: float, ready: float) -> "Cost":
        """Return the mean of all that lies between."""
        seconds = after.at - before.at
        return cls(
            logs=(after.logs - before.logs) / seconds,
            writes=(after.writes - before.writes) / seconds,
            cpu={name: (cpu - before.cpu[name]) / seconds for name, cpu in after.cpu.items()},
            memory=memory,
            ready=ready,
        )


def measure(*, quick: bool) -> str:
    """Return the table."""
    size = _QUICK if quick else _FULL
    with lifecycle.running(_NAMESPACE, fast=True) as bed, growing(bed.folder / "pods.log") as log:
        fakenodes.start(bed, size.nodes, log=log.path)
        fakenodes.wait_ready(bed, size.nodes)
        bench = ScaleBench(bed)
        bench.install()
        return with_client(bench, lambda client: _all(bench, client, log, size))


async def _all(bench: ScaleBench, client: Client, log: GrowingLog, size: Size) -> str:
    with step(f"{size.jobs} jobs, submitted to running", expect="2 minutes"):
        await _submit(client, size.jobs)
    costs = [await _part(bench, client, size, reading=False)]
    costs.append(await _part(bench, client, size, reading=True))
    ages = await _ages(bench, log, size)
    costs.append(await _part(bench, client, size, reading=False))
    return cost_table(size, costs, ages)


async def _submit(client: Client, count: int) -> None:
    labels, annotations = {MANAGED: "true"}, {METRICS: "off"}
    metadata = {"name": _NAMESPACE, "labels": labels, "annotations": annotations}
    await client.create(paths.namespaces(), {"metadata": metadata})
    await asyncio.sleep(_CALM_SECONDS)  # its account is made, the webhooks know it
    each = {"cpu": "1", "memory": "1Gi"}
    bodies = (workers(f"job-{number:04}", 1, each=each) for number in range(count))
    await create_jobs(client, _NAMESPACE, bodies)
    began = time.monotonic()
    while True:
        pods = await client.list_all(paths.pods(_NAMESPACE))
        running = sum(pod.get("status", {}).get("phase") == "Running" for pod in pods)
        if running == count:
            return
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise TimeoutError(f"{running} of {count} jobs run")
        await asyncio.sleep(2)


async def _turn(client: Client, *, reading: bool) -> None:
    """Turn reading on or off, and wait until that has come to every job."""
    value = None if reading else "off"
    body = {"metadata": {"annotations": {METRICS: value}}}
    await client.merge_patch(paths.namespaces(_NAMESPACE), body)
    await asyncio.sleep(_CALM_SECONDS)


async def _until(condition: Callable[[], bool], *, what: str) -> None:
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise TimeoutError(f"waited {_PATIENCE_SECONDS:.0f} s for {what}")
        await asyncio.sleep(1)


async def _part(bench: ScaleBench, client: Client, size: Size, *, reading: bool) -> Cost:
    began = time.monotonic()
    await _turn(client, reading=reading)
    if reading:
        with step("every log is read once", expect="a minute"):
            await _until(lambda: len(_steps(bench)) == size.jobs, what="every log to be read")
    with step(f"reading {'on' if reading else 'off'}", expect=f"{size.seconds:.0f} seconds"):
        ready, before = time.monotonic() - began, _count(bench)
        await asyncio.sleep(size.seconds)
        return Cost.between(before, _count(bench), memory=bench.memory(), ready=ready)


def _count(bench: ScaleBench) -> Counted:
    bed = bench.testbed
    return Counted(
        at=time.monotonic(),
        logs=log_requests(bed.api.get("/metrics")),
        writes=sum(bench.counted_writes().values()),
        cpu={
            "controller": bench.controller_cpu(),
            **{name: cpu_seconds(bed.pid(name)) for name in _PROCESSES},
        },
    )


def log_requests(page: str) -> float:
    """Return how many requests for logs the API server has answered, by its metrics."""
    return sum(map(float, _LOG_REQUESTS.findall(page)))


def _steps(bench: ScaleBench) -> list[float]:
    """Return the last step that is known of each job."""
    page = urllib3.request("GET", bench.controller.metrics_url, timeout=5).data.decode()
    return [float(value) for value in _STEPS.findall(page)]


async def _ages(bench: ScaleBench, log: GrowingLog, size: Size) -> list[float]:
    """Return the age of what is known of each job, in seconds, at several moments."""
    found: list[float] = []
    for _ in range(size.samples):
        steps = _steps(bench)
        found += [(log.lines - step) / LINES_PER_SECOND for step in steps]
        await asyncio.sleep(3)
    return found


def cost_table(size: Size, costs: Sequence[Cost], ages: Sequence[float]) -> str:
    """Return the table: reading off, on and off again."""
    off, on, again = costs
    idle = {name: (off.cpu[name] + again.cpu[name]) / 2 for name in on.cpu}
    rows = [
        _row("requests for logs a second (API server)", [cost.logs for cost in costs]),
        ("turned on to every log read once, s", "", f"{on.ready:.0f}", ""),
        ("seconds between two reads of a job", "", f"{size.jobs / on.logs:.0f}", ""),
        ("age of what is known of a job, mean s", "", f"{fmean(ages):.0f}", ""),
        ("age of what is known of a job, longest s", "", f"{max(ages):.0f}", ""),
        _row("writes of the controller a second (TrainingPlans)", [cost.writes for cost in costs]),
        *(_row(f"cores used by {name}", [cost.cpu[name] for cost in costs], 3) for name in on.cpu),
        (
            "CPU ms of the controller for a read, all told",
            "",
            f"{1e3 * (on.cpu['controller'] - idle['controller']) / on.logs:.1f}",
            "",
        ),
        _row("memory of the controller, MiB", [cost.memory for cost in costs], 0),
    ]
    title = f"{size.jobs} running jobs, logs faked by kwok (ClusterLogs); {size.seconds:.0f} s each"
    return table(title, ("figure", "metrics: off", "metrics: auto", "off again"), rows)


def _row(name: str, figures: Sequence[float], digits: int = 2) -> tuple[str, ...]:
    return (name, *(f"{figure:.{digits}f}" for figure in figures))
