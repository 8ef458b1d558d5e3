"""A thousand jobs of 4-16 pods on 1,000 nodes, queued at once, until all pods are ungated.

The driver submits the jobs as the job webhook would return them. Once kfext has resumed a job, the
driver creates its pods, as operator and pod webhook would: pinned, or gated for kfext to pin them
gang by gang. Only then does kfext continue with the queue, since it limits the number of pods that
the operator has yet to create. Nothing binds the pods. A pod uses one of a node's 16 GPUs and 2 of
its 32 CPUs; together they use about two thirds. Wall times are from the last submit, CPU seconds
from before the first.

Only the controller's CPU seconds have a target: wall times include the API server, which stores
10,000 pods and the patches on the same cores, and the driver, which creates the pods.
"""

import asyncio
import json
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from e2e.bench import crowd
from e2e.bench.bed import ScaleBench, scale_cluster, with_client
from e2e.bench.crowd import job_body
from e2e.bench.report import QUEUE_CPU, spread, table
from e2e.bench.watching import Seen, watching
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds.registered import KINDS

Object = dict[str, Any]

_GPUS = 16
_SIZES = (4, 16)
_PATIENCE_SECONDS = 240.0
_CALM_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the measurement."""

    nodes: int
    jobs: int
    repeats: int


_FULL = Size(nodes=1000, jobs=1000, repeats=2)
_QUICK = Size(nodes=300, jobs=200, repeats=1)


@dataclass(frozen=True, slots=True)
class Run:
    """A repeat. `writes`: the controller's, by resource; `memory`: MiB before and after.

    `submit`: the driver's seconds to submit the jobs; `planned`, `created` and `ungated`: seconds
    from then until the last job was resumed, and the last pod created and ungated. `born_pinned`:
    the fraction of the pods that were never gated.
    """

    pods: int
    submit: float
    planned: float
    created: float
    ungated: float
    cpu: float
    memory: tuple[float, float]
    writes: Mapping[str, int]
    nodes_per_job: float
    born_pinned: float


def measure(*, quick: bool) -> str:
    size = _QUICK if quick else _FULL
    with scale_cluster("queue") as bench:
        runs = with_client(bench, lambda client: _run_all(bench, client, size))
    return "\n\n".join([_times_table(size, runs), _costs_table(size, runs)])


def _times_table(size: Size, runs: list[Run]) -> str:
    rows = [
        (f"{size.jobs} jobs submitted", spread([run.submit for run in runs], digits=1), ""),
        ("all planned and resumed", spread([run.planned for run in runs], digits=1),
         spread([size.jobs / run.planned for run in runs], digits=0) + " jobs/s"),
        (f"{runs[0].pods} pods created (driver)", spread([run.created for run in runs], digits=1),
         spread([run.pods / run.created for run in runs], digits=0) + " pods/s"),
        ("all without a gate", spread([run.ungated for run in runs], digits=1),
         spread([run.pods / run.ungated for run in runs], digits=0) + " pods/s"),
        ("last created to last without a gate",
         spread([run.ungated - run.created for run in runs], digits=2), ""),
    ]  # fmt: skip
    return table(
        f"{size.jobs} jobs of {_SIZES[0]}-{_SIZES[1]} pods queued at once, {size.nodes} nodes; "
        f"{len(runs)} repeats",
        ("from the last submit to", "wall s", "rate"),
        rows,
    )


def _costs_table(size: Size, runs: list[Run]) -> str:
    per_pod = [run.writes.get("pods", 0) / run.pods for run in runs]
    resources = sorted({name for run in runs for name in run.writes} - {"pods"})
    rows = [
        ("controller CPU s, first submit to all released", spread([run.cpu for run in runs]),
         QUEUE_CPU.judge(median(run.cpu for run in runs))),
        ("writes per pod", spread(per_pod), ""),
        *((f"writes per job: {resource}",
           spread([run.writes.get(resource, 0) / size.jobs for run in runs]), "")
          for resource in resources),
        ("memory before, MiB", spread([run.memory[0] for run in runs], digits=0), ""),
        ("memory after, MiB", spread([run.memory[1] for run in runs], digits=0), ""),
        ("nodes per job", spread([run.nodes_per_job for run in runs]), ""),
        ("born pinned, %", spread([100 * run.born_pinned for run in runs], digits=0), ""),
    ]  # fmt: skip
    return table("Cost for the controller", ("figure", "value", "target"), rows)


async def _run_all(bench: ScaleBench, client: Client, size: Size) -> list[Run]:
    await crowd.create_nodes(client, size.nodes, gpus=_GPUS)
    runs = []
    for repeat in range(size.repeats):
        namespace = f"bench-queue-{repeat}"
        await crowd.create_namespace(client, namespace)
        await asyncio.sleep(_CALM_SECONDS)
        runs.append(await _run_queue(bench, client, namespace, size.jobs))
        await crowd.clear(client, namespace)
    return runs


async def _run_queue(bench: ScaleBench, client: Client, namespace: str, count: int) -> Run:
    before, memory = bench.counted_writes(), bench.memory()
    cpu, began = bench.controller_cpu(), time.monotonic()
    async with (
        watching(client, paths.jobs(KINDS["PyTorchJob"], namespace)) as jobs,
        watching(client, paths.pods(namespace)) as pods,
    ):
        stored = await crowd.create_jobs(client, namespace, _bodies(count))
        submitted = time.monotonic()
        affinities, born_pinned = await _play_operator(client, jobs, stored)
        number = sum(map(crowd.size_of, stored))
        await pods.until(
            lambda: len(pods.ungated) == number,
            what=f"{number} pods to be ungated",
            seconds=_PATIENCE_SECONDS,
        )
    await asyncio.sleep(_CALM_SECONDS)  # until TrainingPlans and events are written
    written = {name: total - before.get(name, 0) for name, total in bench.counted_writes().items()}
    return Run(
        pods=number,
        submit=submitted - began,
        planned=max(jobs.resumed.values()) - submitted,
        created=max(pods.added.values()) - submitted,
        ungated=max(pods.ungated.values()) - submitted,
        cpu=bench.controller_cpu() - cpu,
        memory=(memory, bench.memory()),
        writes={name: total for name, total in written.items() if total},
        nodes_per_job=fmean(map(_nodes, affinities)),
        born_pinned=born_pinned / number,
    )


async def _play_operator(
    client: Client, seen: Seen, jobs: list[Object]
) -> tuple[list[Object], int]:
    """Create the pods of each job once it is resumed.

    Return the affinities of the templates, and the number of pods that were never gated.
    """
    waiting = {job["metadata"]["name"]: job for job in jobs}
    affinities: list[Object] = []
    born_pinned = 0
    limit = asyncio.Semaphore(crowd.IN_FLIGHT)

    async def create(pod: Object) -> None:
        async with limit:
            await client.create(paths.pods(pod["metadata"]["namespace"]), pod)

    async with asyncio.TaskGroup() as creating:
        while waiting:
            done = len(affinities)
            await seen.until(
                lambda: len(seen.resumed) > done,  # noqa: B023 - called before the next turn
                what=f"more than {done} of {len(jobs)} jobs to be resumed",
                seconds=_PATIENCE_SECONDS,
            )
            for name in waiting.keys() & seen.resumed.keys():
                specs = json.loads(seen.specs[name])
                affinities.append(specs["Worker"]["template"]["spec"]["affinity"])
                for pod in crowd.admitted_pods(waiting.pop(name), specs):
                    born_pinned += "schedulingGates" not in pod["spec"]
                    creating.create_task(create(pod))
    return affinities, born_pinned


def _bodies(count: int) -> Iterator[Object]:
    draw = random.Random(0)
    for number in range(count):
        yield job_body(f"job-{number:04}", draw.randint(*_SIZES), held=True)


def _nodes(affinity: Object) -> int:
    """Return the number of planned nodes of a job, which its templates prefer."""
    return len(affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"])
