"""A run of an arm: submits gangs at once, times them by the driver's watch, and deletes them.

A second kind of run measures the time until a user can read why a gang does not start. The gang
needs one node more than the cluster has, while each of its pods fits a node. The time is from
before the POST to the first line of the driver's watch with the reason. Pods of the gang that are
bound meanwhile hold GPUs in vain; these GPUs are counted.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from e2e.bench.peers.arms import Arm
from e2e.bench.peers.jobs import gang, train_job
from e2e.bench.watching import Seen, watching
from e2e.testbed import fakenodes, process
from e2e.testbed.cluster import Testbed
from kfext.errors import NotFound, Unavailable
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds.registered import KINDS

Object = dict[str, Any]
_PATIENCE_SECONDS = 300.0
_CALM_SECONDS = 2.0
_POLL_SECONDS = 0.2
_IN_FLIGHT = 64
_TICK = os.sysconf("SC_CLK_TCK")
_REASON_SECONDS = 60.0
_HELD_AFTER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Run:
    """The results of `gangs` gangs; times are in seconds since the first submission.

    `waits`: for each gang, seconds from its last pod created to its last pod ungated. `nodes`: the
    mean number of nodes per gang. CPU seconds, until two seconds after the end: `own_cpu` of the
    arm's own processes, `by_program` of each program of the testbed.
    """

    gangs: int
    created: float
    ungated: float
    bound: float
    waits: tuple[float, ...]
    nodes: float
    own_cpu: float
    by_program: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Gangs a second, from the first submission to the last pod bound."""
        return self.gangs / self.bound

    @property
    def all_cpu(self) -> float:
        return sum(self.by_program.values())


async def run_gangs(
    client: Client, arm: Arm, *, name: str, gangs: int, pods: int, kind: str
) -> Run:
    """Submit gangs at once, wait until all of their pods are bound, and delete them."""
    names = [f"{name}-{number:03}" for number in range(gangs)]
    build = {"PyTorchJob": gang, "TrainJob": train_job}[kind]
    bodies = [arm.job(build(job, pods)) for job in names]
    before = _cpu(arm.testbed)
    async with watching(client, paths.pods(arm.namespace)) as seen:
        submitted = time.monotonic()
        await _submit(client, arm, kind, bodies)
        try:
            await seen.until(
                lambda: len(seen.bound) >= gangs * pods,
                what=f"{gangs * pods} pods of {arm.name} to be bound",
                seconds=_PATIENCE_SECONDS,
            )
        except TimeoutError as error:
            state = f"{len(seen.added)} created, {len(seen.bound)} bound\n{arm.tail()}"
            raise TimeoutError(f"{error}: {state}") from None
        await asyncio.sleep(_CALM_SECONDS)
    used: dict[str, float] = {}
    for pid, (program, seconds) in _cpu(arm.testbed).items():
        increase = seconds - before.get(pid, (program, 0.0))[1]
        used[program] = used.get(program, 0.0) + increase
    run = _run(seen, names, submitted=submitted, used=used, program=arm.program)
    await clear(client, arm)
    return run


async def _submit(client: Client, arm: Arm, kind: str, bodies: Sequence[Object]) -> None:
    """Create jobs, each after the group object that the arm may need for it."""
    jobs = paths.jobs(KINDS[kind], arm.namespace)
    await _in_flight(
        client.create(collection, body)
        for job in bodies
        for collection, body in (
            *([(arm.groups, arm.group(job))] if arm.groups else ()),
            (jobs, job),
        )
    )


def _run(
    seen: Seen, names: Sequence[str], *, submitted: float, used: Mapping[str, float], program: str
) -> Run:
    gang_pods = [[pod for pod in seen.added if pod.startswith(f"{name}-")] for name in names]
    waits = [
        max(seen.ungated[pod] for pod in pods_of_gang)
        - max(seen.added[pod] for pod in pods_of_gang)
        for pods_of_gang in gang_pods
    ]
    return Run(
        gangs=len(names),
        created=max(seen.added.values()) - submitted,
        ungated=max(seen.ungated.values()) - submitted,
        bound=max(seen.bound.values()) - submitted,
        waits=tuple(waits),
        nodes=sum(len({seen.nodes[pod] for pod in pods_of_gang}) for pods_of_gang in gang_pods)
        / len(names),
        own_cpu=used.get(program, 0.0),
        by_program=used,
    )


async def clear(client: Client, arm: Arm) -> None:
    """Delete all jobs of an arm, and wait until all of their objects are deleted."""
    # Jobs first: the operator would recreate the pods of an existing job.
    for kind in ("PyTorchJob", "TrainJob"):
        with suppress(NotFound):  # Trainer is not installed
            await _remove(client, paths.jobs(KINDS[kind], arm.namespace))
    await _remove(client, paths.pods(arm.namespace))
    await _remove(client, paths.Namespaced("services")(arm.namespace))
    if arm.groups:
        await _remove(client, arm.groups)
    await _until(lambda: client.list_all(arm.explains), what=f"{arm.explains} to be empty")
    await asyncio.sleep(_CALM_SECONDS)


async def _remove(client: Client, collection: str) -> None:
    """Delete all objects of a collection, without grace, until it is empty."""

    async def delete(name: str) -> None:
        with suppress(NotFound, Unavailable):  # already deleted, or retried in the next round
            await client.delete(f"{collection}/{name}", grace=0)

    async def deleted() -> list[str]:
        present = [job["metadata"]["name"] for job in await client.list_all(collection)]
        await _in_flight(delete(name) for name in present)
        return present

    await _until(deleted, what=f"{collection} to be empty")


async def _until(remaining: Callable[[], Awaitable[Sequence[object]]], *, what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while objects := await remaining():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_PATIENCE_SECONDS:.0f} s for {what}: {len(objects)} left")
        await asyncio.sleep(_POLL_SECONDS)


async def _in_flight(requests: Iterable[Awaitable[object]]) -> None:
    """Send requests, 64 at once, which is the client's number of connections."""
    limit = asyncio.Semaphore(_IN_FLIGHT)

    async def send(request: Awaitable[object]) -> None:
        async with limit:
            await request

    await asyncio.gather(*map(send, requests))


def _cpu(testbed: Testbed) -> dict[int, tuple[str, float]]:
    """Return the program and the CPU seconds so far of each process of the testbed, by its id."""
    used = {}
    for pid in process.marked(testbed.name):
        folder = Path("/proc", str(pid))
        with suppress(OSError):  # ended meanwhile
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            arguments = (folder / "cmdline").read_bytes().decode().split("\0")
            # The first argument of a script's process is the interpreter.
            names = [Path(word).name for word in arguments[:2]]
            program = names[1] if names[0].startswith("python") else names[0]
            used[pid] = (program, (int(stat[11]) + int(stat[12])) / _TICK)
    return used


@dataclass(frozen=True, slots=True)
class Answer:
    """The seconds until the reason could be read, the reason, and the GPUs held 2 s later."""

    seconds: float
    reason: str
    held: int


async def run_unschedulable(client: Client, arm: Arm, *, name: str, nodes: int) -> Answer:
    """Submit a gang of `nodes + 1` pods that need a whole node each; wait for the reason."""
    gpus = int(fakenodes.CAPACITY["nvidia.com/gpu"])
    body = arm.job(gang(name, nodes + 1, gpus=gpus))
    version = msgspec.json.decode(await client.read(arm.explains, limit="1"))["metadata"]
    first_reason = asyncio.create_task(_watch_reason(client, arm, str(version["resourceVersion"])))
    try:
        async with asyncio.timeout(_REASON_SECONDS):
            submitted = time.monotonic()
            await _submit(client, arm, "PyTorchJob", [body])
            answered, reason = await first_reason
    except TimeoutError:
        raise TimeoutError(
            f"{arm.name} did not say why {name} does not start in {_REASON_SECONDS:.0f} s"
        ) from None
    finally:
        first_reason.cancel()
    await asyncio.sleep(_HELD_AFTER_SECONDS)
    pods = await client.list_all(paths.pods(arm.namespace))
    await clear(client, arm)
    bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
    return Answer(answered - submitted, reason, gpus * bound)


async def _watch_reason(client: Client, arm: Arm, version: str) -> tuple[float, str]:
    """Return the time of the first reason, in monotonic seconds, and the reason."""
    while True:  # a busy API server may end a watch at any time; nothing is lost by that
        rest = b""
        stream = client.watch(
            arm.explains, resource_version=version, server_seconds=600, silence_seconds=120
        )
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            now = time.monotonic()
            for line in lines:
                changed = msgspec.json.decode(line)["object"]
                version = changed["metadata"]["resourceVersion"]
                if reason := arm.reason(changed):
                    return now, reason
