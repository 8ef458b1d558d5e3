"""The comparison: who runs when, in turns, on a cluster of its own.

The real training-operator, API server and scheduler, all with raised request limits, on 200 idle
fake nodes of 8 GPUs. A turn starts one arm (the others' processes and webhooks are gone), lets it
place one gang that does not count, and measures it; turns of the four alternate. For the third
workload there are more nodes, half of whose GPUs single pods of nobody hold, few nodes empty.

All times are seconds from the first submission, by one watch of the driver, which shares the
machine with the rest. Kueue stores and serves v1beta2 alone (no conversion), its client has 500
requests a second; that is faster than as shipped.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from e2e.bench.bed import NODES
from e2e.bench.peers import arms, runs, tables, whynot
from e2e.bench.peers.arms import Arm
from e2e.bench.peers.jobs import fillers
from e2e.bench.peers.tables import Workload
from e2e.testbed import fakenodes, lifecycle
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import say, step
from kfext.kube.client import Client

_WARM_UP_PODS = 8
_SEED = 7
_IN_FLIGHT = 16


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    repeats: int
    one: int
    many: int
    fragmented: int
    nodes: int
    fragmented_repeats: int


_FULL = Size(repeats=3, one=1, many=50, fragmented=200, nodes=450, fragmented_repeats=1)
_QUICK = Size(repeats=1, one=1, many=20, fragmented=80, nodes=NODES, fragmented_repeats=1)


def measure(*, quick: bool) -> str:
    """Return the tables, and a line that says where Kueue is better than kfext."""
    size = _QUICK if quick else _FULL
    with lifecycle.running("bench-peers", fake_nodes=NODES, fast=True) as testbed:
        all_arms = arms.all_of(testbed)
        idle = f"{NODES} idle nodes of 8 GPUs"
        one = Workload(f"One gang of 64 pods, {idle}", gangs=1, pods=64)
        many = Workload(f"{size.many} gangs of 8 pods at once, {idle}", gangs=size.many, pods=8)
        answers: dict[str, list[whynot.Answer]] = {arm.name: [] for arm in all_arms}
        for repeat in range(size.repeats):
            for arm in all_arms:
                _turn(arm, repeat, [one] * size.one + [many], answers[arm.name])
        full = _fragment(testbed, size.nodes)
        tight = Workload(
            f"{size.fragmented} gangs of 8 pods at once, {size.nodes} nodes of 8 GPUs, {full}",
            gangs=size.fragmented,
            pods=8,
        )
        for repeat in range(size.fragmented_repeats):
            for arm in all_arms:
                _turn(arm, size.repeats + repeat, [tight], None)
    return tables.of(one, many, tight, answers)


def _turn(
    arm: Arm, repeat: int, workloads: list[Workload], answers: list[whynot.Answer] | None
) -> None:
    """Measure one arm once; the results are added to the workloads and to the answers."""

    async def measured(client: Client) -> None:
        await runs.one(client, arm, name=f"r{repeat}-warm", gangs=1, pods=_WARM_UP_PODS)
        for number, workload in enumerate(workloads):
            run = await runs.one(
                client, arm, name=f"r{repeat}-{number}", gangs=workload.gangs, pods=workload.pods
            )
            workload.runs.setdefault(arm.name, []).append(run)
            say(f"    {arm.name}, {workload.gangs} x {workload.pods}: bound in {run.bound:.2f} s")
        if answers is not None:
            answers.append(await whynot.ask(client, arm, name=f"r{repeat}-vain", nodes=NODES))

    with step(f"turn {repeat + 1} of {arm.name}"), arm.running():
        _with_client(arm.testbed, measured)


def _fragment(testbed: Testbed, nodes: int) -> str:
    """Bring the cluster to so many nodes, half-full; return in words what is taken."""
    gpus = int(fakenodes.CAPACITY["nvidia.com/gpu"])
    added = [
        fakenodes.node(f"fake-{number:03}", capacity=fakenodes.CAPACITY, labels={}, taints=[])
        for number in range(NODES, nodes)
    ]
    taken = list(fillers(nodes, gpus=gpus, seed=_SEED))
    with step(f"{nodes} nodes, {len(taken)} pods on them"), ThreadPoolExecutor(_IN_FLIGHT) as pool:
        list(pool.map(lambda body: testbed.api.create("/api/v1/nodes", body), added))
        fakenodes.wait_ready(testbed, nodes)
        path = "/api/v1/namespaces/default/pods"
        list(pool.map(lambda body: testbed.api.create(path, body), taken))
    touched = len({pod["spec"]["nodeName"] for pod in taken})
    return f"{len(taken)} of {nodes * gpus} GPUs taken at random, {nodes - touched} nodes empty"


def _with_client(testbed: Testbed, work: Callable[[Client], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with await Client.connect(testbed.kubeconfig) as client:
            await work(client)

    asyncio.run(run())
