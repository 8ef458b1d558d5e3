"""Last pod created to last pod ungated: kfext's controller against a bare client.

The driver replaces the operator, which is stopped. It creates the job; once kfext has planned and
resumed it, the driver creates all of its pods, 64 requests in flight: gated, owned by the job, with
the operator's labels and the job's template. So the time of creation does not count. Then either
kfext or `bare_client` pins and ungates the pods; kfext is stopped (SIGSTOP) for the bare client.
kube-scheduler binds the pods meanwhile, in both arms. Each pod has one GPU, so 64 pods need eight
nodes. Repeats alternate between the arms; the gang of 512, which is slow to create, has fewer.

Times are from the driver's own watch: from ADDED of a gang's last pod until its last pod is ungated
or bound; p50 and p99 are over the pods of all repeats.
Pods have the same size in both arms; the bare client knows their nodes in advance, and must receive
all of them in a watch like kfext. Connections are open in both, except in the last row, where kfext
has closed them after 70 s without a request. Writes are counted by the controller until 2 s after
the end.
"""

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from e2e.bench import bare_client
from e2e.bench.bed import Bench, with_client
from e2e.bench.crowd import affinity_of, in_flight, job_body, pod_body, pod_names
from e2e.bench.report import GANG_POD_WRITES, GANG_RATIO, quantile, spread, table
from e2e.bench.watching import Seen, watching
from e2e.testbed import training_operator
from kfext.errors import NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds.registered import KINDS
from kfext.names import MANAGED

SIZES = (8, 64, 512)
_REPEATS = {8: 10, 64: 10, 512: 4}
_QUICK_REPEATS = {8: 3, 64: 3, 512: 1}
_COLD_SIZE = 64
_COLD_REPEATS = 2
_NAMESPACE = "bench-gang"
_GPUS = 8
_IN_FLIGHT = 64
_CALM_SECONDS = 2.0
_COLD_SECONDS = 70.0


@dataclass(frozen=True, slots=True)
class Run:
    """A gang: milliseconds from ADDED of its last pod until each pod was ungated, and was bound.

    `writes`: the controller's writes by resource; `cpu`: the CPU milliseconds it used for the job.
    """

    ungated: tuple[float, ...]
    bound: tuple[float, ...]
    writes: Mapping[str, int] = field(default_factory=dict)
    cpu: float = 0.0


def measure(bench: Bench, *, quick: bool) -> str:
    bench.testbed.stop_process("training-operator")
    try:
        repeats, cold = (_QUICK_REPEATS, 0) if quick else (_REPEATS, _COLD_REPEATS)
        # The driver replaces the webhooks, so that they do not compete for the CPU.
        bench.remove_webhooks()
        runs = with_client(bench, lambda client: _all(bench, client, repeats=repeats, cold=cold))
    finally:
        bench.testbed.restart_process("training-operator")
        training_operator.wait_ready(bench.testbed)
        bench.ensure()
    rows = [_row(size, arm, arm_runs, runs) for (size, arm), arm_runs in sorted(runs.items())]
    return table(
        "Last pod created to last pod ungated, and to last pod bound",
        (
            *("pods", "who", "repeats", "ungated ms", "p50 / p99", "bound ms", "p50 / p99"),
            *("writes per pod", "other writes", "CPU ms", "speed, bare client = 1", "target"),
        ),
        rows,
    )


def _row(
    size: int, arm: str, arm_runs: list[Run], runs: dict[tuple[int, str], list[Run]]
) -> tuple[str, ...]:
    bare = runs[size, "bare client"]
    if arm_runs is bare:
        return (str(size), arm, *_times(bare), "1", "0", "", "1", "")
    ratio = median(_last(bare)) / median(_last(arm_runs))
    pairs = [
        bare_time / other for bare_time, other in zip(_last(bare), _last(arm_runs), strict=False)
    ]
    per_pod = [run.writes.get("pods", 0) / size for run in arm_runs]
    others = [sum(run.writes.values()) - run.writes.get("pods", 0) for run in arm_runs]
    judged = size == 64 and arm == "kfext"
    return (
        str(size),
        arm,
        *_times(arm_runs),
        f"{spread(per_pod)} {GANG_POD_WRITES.judge(median(per_pod))}",
        spread(others, digits=0),
        spread([run.cpu for run in arm_runs], digits=0),
        f"{ratio:.2f} (pairs {min(pairs):.2f}-{max(pairs):.2f})",
        GANG_RATIO.judge(ratio) if judged else "",
    )


def _last(runs: list[Run]) -> list[float]:
    return [max(run.ungated) for run in runs]


def _times(runs: list[Run]) -> tuple[str, ...]:
    cells = [str(len(runs))]
    for gangs in ([run.ungated for run in runs], [run.bound for run in runs]):
        pods = [pod for gang in gangs for pod in gang]
        cells.append(spread([max(gang) for gang in gangs], digits=0))
        cells.append(f"{quantile(pods, 0.5):.0f} / {quantile(pods, 0.99):.0f}")
    return tuple(cells)


async def _all(
    bench: Bench, client: Client, *, repeats: Mapping[int, int], cold: int
) -> dict[tuple[int, str], list[Run]]:
    await client.create(
        paths.namespaces(), {"metadata": {"name": _NAMESPACE, "labels": {MANAGED: "true"}}}
    )
    runs: dict[tuple[int, str], list[Run]] = {}
    for repeat in range(-1, max(repeats.values())):  # repeat -1 warms up
        for size in (size for size in SIZES if repeat < repeats[size]):
            for arm, submit in (("kfext", _by_kfext), ("bare client", _by_bare_client)):
                run = await submit(bench, client, f"{arm.split()[0]}-{size}-{repeat + 1}", size)
                if repeat >= 0:
                    runs.setdefault((size, arm), []).append(run)
    for repeat in range(cold):
        await asyncio.sleep(_COLD_SECONDS)
        run = await _by_kfext(bench, client, f"cold-{repeat}", _COLD_SIZE)
        runs.setdefault((_COLD_SIZE, "kfext, cold"), []).append(run)
    return runs


async def _by_kfext(bench: Bench, client: Client, name: str, size: int) -> Run:
    before, cpu_before = bench.requests(), bench.controller_cpu()
    async with watching(client, paths.pods(_NAMESPACE), _jobs()) as seen:
        job = await client.create(_jobs(), job_body(name, size, held=True))
        await seen.until(lambda: name in seen.resumed, what=f"{name} to be resumed")
        # Templates prefer no nodes if a job uses more nodes than kfext lists.
        template = json.loads(seen.specs[name])["Worker"]["template"]
        affinity = template["spec"].get("affinity", {})
        run = await _create_and_time(client, seen, job, size=size, affinity=affinity)
    await asyncio.sleep(_CALM_SECONDS)
    cpu = 1e3 * (bench.controller_cpu() - cpu_before)
    writes: dict[str, int] = {}
    for (verb, resource), count in bench.requests().items():
        added = count - before.get((verb, resource), 0)
        if verb in {"create", "patch", "delete", "apply"} and resource != "leases" and added:
            writes[resource] = writes.get(resource, 0) + added
    await _clear(client, job, size)
    return replace(run, writes=writes, cpu=cpu)


async def _by_bare_client(bench: Bench, client: Client, name: str, size: int) -> Run:
    nodes = [f"fake-{number:03}" for number in range(-(-size // _GPUS))]
    homes = {pod: nodes[number // _GPUS] for number, pod in enumerate(pod_names(name, size))}
    # Suspended, but not by kfext, so that kfext ignores it after SIGCONT.
    job = await client.create(_jobs(), job_body(name, size, held=False))
    os.kill(bench.controller_pid, signal.SIGSTOP)
    try:
        async with (
            watching(client, paths.pods(_NAMESPACE)) as seen,
            bare_client.running(bench.testbed, namespace=_NAMESPACE, homes=homes),
        ):
            run = await _create_and_time(client, seen, job, size=size, affinity=affinity_of(nodes))
    finally:
        os.kill(bench.controller_pid, signal.SIGCONT)
    await _clear(client, job, size)
    if bench.controller.pid is None:  # it was stopped for longer than its Lease lasts
        await asyncio.to_thread(bench.restart_killed_controller)
    return run


async def _create_and_time(
    client: Client, seen: Seen, job: dict[str, Any], *, size: int, affinity: dict[str, Any]
) -> Run:
    bodies = [pod_body(job, number, affinity=affinity) for number in range(size)]
    names = {body["metadata"]["name"] for body in bodies}
    create = (client.create(paths.pods(_NAMESPACE), body) for body in bodies)
    await in_flight(create, _IN_FLIGHT)
    await seen.until(lambda: names <= seen.bound.keys(), what=f"{size} pods to be bound")
    last = max(seen.added[name] for name in names)
    return Run(
        ungated=tuple(1e3 * (seen.ungated[name] - last) for name in names),
        bound=tuple(1e3 * (seen.bound[name] - last) for name in names),
    )


async def _clear(client: Client, job: dict[str, Any], size: int) -> None:
    """Delete a job and its pods, and wait until all processes are idle."""
    name = job["metadata"]["name"]
    await client.delete(f"{_jobs()}/{name}")

    async def delete(pod: str) -> None:
        with suppress(NotFound):  # the garbage collector was faster
            await client.delete(paths.pods(_NAMESPACE, pod), grace=0)

    await in_flight(map(delete, pod_names(name, size)))
    await asyncio.sleep(_CALM_SECONDS)


def _jobs() -> str:
    return paths.jobs(KINDS["PyTorchJob"], _NAMESPACE)
