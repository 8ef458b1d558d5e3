"""A thousand queued jobs that do not fit: the time until each has a reason, and the cost of that.

Earlier pods use every GPU of the cluster, so a job would fit the cluster only if it were empty.
Jobs of 4-16 pods, one GPU each, are submitted at once, then one at a time. Times are from before
the POST until the driver's watch has a TrainingPlan in phase Queued with a reason, and a message
with that job's number of pods.

Once no TrainingPlan has been written for some seconds, the driver does nothing for a minute. Then
small pods end, one after the other; still no job fits, but kfext has to check.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import orjson

from e2e.bench import crowd
from e2e.bench.bed import ScaleBench, scale_cluster, with_client
from e2e.bench.crowd import job_body
from e2e.bench.report import (
    IDLE_CPU,
    IDLE_WRITES,
    WHY_NOT,
    WHY_NOT_AT_ONCE,
    Target,
    quantile,
    table,
)
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds.registered import KINDS
from kfext.names import QUEUED

_NAMESPACE, _OTHERS = "bench-idle", "bench-others"
_GPUS = 8
_SIZES = (4, 16)
_PATIENCE_SECONDS = 180.0
_QUIET_SECONDS = 5.0
_SMALL = {"cpu": "100m", "memory": "64Mi"}


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the measurement.

    `singles`: the number of jobs submitted one at a time; `ends`: the number of small pods that
    end; `seconds`: how long nothing happens.
    """

    nodes: int
    jobs: int
    singles: int
    ends: int
    seconds: float


_FULL = Size(nodes=1000, jobs=1000, singles=20, ends=100, seconds=60.0)
_QUICK = Size(nodes=200, jobs=200, singles=5, ends=20, seconds=20.0)


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds from submit to message, of jobs submitted `at_once` and `singly`; and the cost.

    `at_once_cpu`: CPU seconds of the controller for the jobs submitted at once. `calm_after`:
    seconds from the last submit to the last write of a TrainingPlan. `writes`, `cpu_percent`: while
    nothing happens. `end_cpu`: CPU seconds per end of a small pod. `memory`: in MiB.
    """

    at_once: list[float]
    singly: list[float]
    at_once_cpu: float
    calm_after: float
    writes: Mapping[str, int]
    cpu_percent: float
    end_cpu: float
    memory: float


def measure(*, quick: bool) -> str:
    size = _QUICK if quick else _FULL
    with scale_cluster("idle") as bench:
        result = with_client(bench, lambda client: _all(bench, client, size))
    return "\n\n".join([_answers_table(size, result), _cost_table(size, result)])


def _answers_table(size: Size, result: Result) -> str:
    return table(
        f'Submit to a truthful "why not", {size.nodes} nodes without a free GPU',
        ("submitted", "p50 s", "p99 s", "max s", "target, p99"),
        [
            (f"{size.jobs} at once", *_quantiles(result.at_once, WHY_NOT_AT_ONCE)),
            (f"one at a time, {size.singles}", *_quantiles(result.singly, WHY_NOT)),
        ],
    )


def _quantiles(seconds: list[float], target: Target) -> tuple[str, ...]:
    p99 = quantile(seconds, 0.99)
    figures = (quantile(seconds, 0.5), p99, max(seconds))
    return (*(f"{figure:.2f}" for figure in figures), target.judge(p99))


def _cost_table(size: Size, result: Result) -> str:
    total = sum(result.writes.values())
    writes_by_resource = ", ".join(
        f"{count} {name}" for name, count in sorted(result.writes.items())
    )
    rows = [
        (f"CPU s until {size.jobs} jobs had a reason", f"{result.at_once_cpu:.1f}", ""),
        ("last submit to last write, s", f"{result.calm_after:.1f}", ""),
        (
            f"writes in {size.seconds:.0f} s, the Lease apart",
            f"{total} {writes_by_resource}".strip(),
            IDLE_WRITES.judge(total),
        ),
        (
            f"CPU over {size.seconds:.0f} s, %",
            f"{result.cpu_percent:.2f}",
            IDLE_CPU.judge(result.cpu_percent),
        ),
        ("CPU ms per end of a pod that makes no room", f"{1e3 * result.end_cpu:.1f}", ""),
        ("memory, MiB", f"{result.memory:.0f}", ""),
    ]
    return table(f"{size.jobs} queued jobs that do not fit", ("figure", "value", "target"), rows)


async def _all(bench: ScaleBench, client: Client, size: Size) -> Result:
    for namespace in (_NAMESPACE, _OTHERS):
        await crowd.create_namespace(client, namespace)
    await crowd.create_nodes(client, size.nodes, gpus=_GPUS)
    await crowd.create_pods(client, _occupants(size))
    await asyncio.sleep(_QUIET_SECONDS)
    cpu = bench.controller_cpu()
    async with _listening(client) as answers:
        draw = random.Random(0)
        bodies = (_body(f"job-{number:04}", draw) for number in range(size.jobs))
        submitted = await _submit(client, bodies)
        await answers.until(submitted)
        at_once = answers.seconds(submitted)
        await answers.until_quiet()
        at_once_cpu = bench.controller_cpu() - cpu
        calm_after = answers.last_event_at - max(submitted.values())
        writes, cpu_percent = await _do_nothing(bench, size.seconds)
        singly = []
        for number in range(size.singles):
            submitted_job = await _submit(client, [_body(f"single-{number}", draw)])
            await answers.until(submitted_job)
            singly += answers.seconds(submitted_job)
            await asyncio.sleep(1.5)
        return Result(
            at_once=at_once,
            singly=singly,
            at_once_cpu=at_once_cpu,
            calm_after=calm_after,
            writes=writes,
            cpu_percent=cpu_percent,
            end_cpu=await _end_small_pods(bench, client, size.ends),
            memory=bench.memory(),
        )


def _occupants(size: Size) -> Iterator[dict[str, Any]]:
    """Yield a pod for each node that uses its GPUs, and the small pods that will end."""
    for number in range(size.nodes):
        requests = {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": str(_GPUS)}
        yield crowd.bound_pod(
            _OTHERS, f"big-{number}", node=crowd.node_name(number), requests=requests
        )
    for number in range(size.ends):
        yield crowd.bound_pod(_OTHERS, f"small-{number}", node=crowd.node_name(0), requests=_SMALL)


def _body(name: str, draw: random.Random) -> dict[str, Any]:
    return job_body(name, draw.randint(*_SIZES), held=True)


async def _submit(client: Client, bodies: Any) -> dict[str, float]:
    """Submit jobs; return the time of each submission, in monotonic seconds."""
    sent: dict[str, float] = {}

    async def create(body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        sent[name] = time.monotonic()
        await client.create(paths.jobs(KINDS["PyTorchJob"], _NAMESPACE), body)

    await crowd.in_flight(create(body) for body in bodies)
    return sent


async def _do_nothing(bench: ScaleBench, seconds: float) -> tuple[dict[str, int], float]:
    """Wait, and return the controller's writes meanwhile, and its use of a CPU in percent."""
    before, cpu, began = bench.counted_writes(), bench.controller_cpu(), time.monotonic()
    await asyncio.sleep(seconds)
    used = bench.controller_cpu() - cpu
    share = 100 * used / (time.monotonic() - began)
    written = {name: count - before.get(name, 0) for name, count in bench.counted_writes().items()}
    return {name: count for name, count in written.items() if count}, share


async def _end_small_pods(bench: ScaleBench, client: Client, count: int) -> float:
    """Delete small pods one after the other; return the controller's CPU seconds per pod."""
    cpu = bench.controller_cpu()
    for number in range(count):
        await client.delete(paths.pods(_OTHERS, f"small-{number}"), grace=0)
        await asyncio.sleep(0.2)
    await asyncio.sleep(2.0)
    return (bench.controller_cpu() - cpu) / count


class _Answers:
    """When the TrainingPlan of each job first had a reason, in monotonic seconds."""

    def __init__(self) -> None:
        self.last_event_at = time.monotonic()
        self._answered_at: dict[str, float] = {}
        self._news = asyncio.Event()

    def read(self, line: bytes) -> None:
        self.last_event_at = now = time.monotonic()
        plan = orjson.loads(line)["object"]
        status = plan.get("status") or {}
        pods = f"{status.get('workers')} pods"
        complete = status.get("reason") and pods in status.get("message", "")
        if status.get("phase") == QUEUED and complete:
            self._answered_at.setdefault(plan["spec"]["job"]["name"], now)
        self._news.set()

    def seconds(self, submitted: Mapping[str, float]) -> list[float]:
        return [self._answered_at[name] - sent for name, sent in submitted.items()]

    async def until(self, submitted: Mapping[str, float]) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not submitted.keys() <= self._answered_at.keys():
                self._news.clear()
                await self._news.wait()

    async def until_quiet(self) -> None:
        with suppress(TimeoutError):
            while True:
                self._news.clear()
                async with asyncio.timeout(_QUIET_SECONDS):
                    await self._news.wait()


@asynccontextmanager
async def _listening(client: Client) -> AsyncIterator[_Answers]:
    """Watch the TrainingPlans of the benchmark's namespace during a `with` block."""
    answers = _Answers()
    path = paths.plans(_NAMESPACE)
    listed = orjson.loads(await client.read(path, limit="1"))
    version = listed["metadata"]["resourceVersion"]

    async def follow() -> None:
        rest = b""
        stream = client.watch(
            path, resource_version=version, server_seconds=900, silence_seconds=600
        )
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                answers.read(line)

    following = asyncio.create_task(follow())
    try:
        yield answers
    finally:
        following.cancel()
