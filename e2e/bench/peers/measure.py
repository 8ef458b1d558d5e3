"""The comparison: runs the arms in turn on a cluster of its own, and builds the tables.

The training-operator, API server and scheduler are real, with raised request limits; there are 200
idle fake nodes of 8 GPUs. A turn starts an arm without the processes and webhooks of the others,
lets it place a gang as a warm-up, and measures it; turns of the five arms alternate. From the third
workload on there are more nodes, and single pods without a job use half of the GPUs and most nodes.

All times are seconds since the first submission, from a watch of the driver, which runs on the same
machine.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from e2e.bench.bed import NODES
from e2e.bench.peers import arms, runs
from e2e.bench.peers.arms import Arm
from e2e.bench.peers.jobs import fillers
from e2e.bench.peers.kueue import VERSION
from e2e.bench.peers.runs import Answer, Run
from e2e.bench.report import (
    CPU_TO_KUEUE,
    GANGS_TO_KUEUE,
    GANGS_TO_PLAIN,
    WHY_NOT,
    quantile,
    spread,
    table,
)
from e2e.testbed import fakenodes, lifecycle, trainer
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import say, step
from kfext.kube.client import Client

_GATING = ("kueue", "kfext")
_GANG_ARMS = ("plain", *_GATING)
"""The arms for TrainJobs, and for the fragmented cluster."""
_TITLES = {
    "plain": "plain Kubernetes",
    "affinity": "pod affinity, preferred",
    "native": "kube-scheduler's gangs",
    "kueue": f"Kueue {VERSION}, TAS",
    "kfext": "kfext",
}
_WARM_UP_PODS = 8
_MIN_CPU = 0.1
"""A program that used fewer CPU seconds than this under every arm has no line of its own."""
_SEED = 7
_IN_FLIGHT = 16


@dataclass(frozen=True, slots=True)
class Workload:
    """Gangs of `pods` pods of a kind, submitted at once, and the runs of each arm so far."""

    title: str
    gangs: int
    pods: int
    kind: str = "PyTorchJob"
    runs: dict[str, list[Run]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Figure:
    """A column. `better`: 1 if larger is better, -1 if smaller is.

    `gated`: whether only the arms in `_GATING` have the value.
    """

    head: str
    of: Callable[[Run], float]
    digits: int = 2
    better: int = -1
    gated: bool = False


_FIGURES = (
    _Figure("created s", lambda run: run.created),
    _Figure("ungated s", lambda run: run.ungated, gated=True),
    _Figure("bound s", lambda run: run.bound),
    _Figure("created to ungated p50 s", lambda run: quantile(run.waits, 0.5), gated=True),
    _Figure("p99 s", lambda run: quantile(run.waits, 0.99), gated=True),
    _Figure("gangs/s", lambda run: run.rate, better=1),
    _Figure("nodes per job", lambda run: run.nodes),
    _Figure("own CPU s", lambda run: run.own_cpu, gated=True),
    _Figure("all CPU s", lambda run: run.all_cpu, digits=1),
)


def tables_of(workloads: Sequence[Workload], answers: Mapping[str, Sequence[Answer]]) -> str:
    """Return the report: the tables, the targets, and where Kueue is better."""
    targets = [
        f"- {workload.gangs} {workload.kind}s of {workload.pods}, {line}"
        for workload in workloads
        for line in _target_lines(workload)
    ]
    return "\n\n".join(
        [
            *map(_workload_tables, workloads),
            _why_not(answers),
            "Targets, medians of the pairs of runs:\n\n" + "\n".join(targets),
            _better_columns(workloads, answers),
        ]
    )


def _target_lines(workload: Workload) -> Iterator[str]:
    """Yield kfext's targets in a workload: its ratios to plain Kubernetes and to Kueue."""
    plain = _ratios(workload, "plain", lambda run: run.rate)
    target = f" ({GANGS_TO_PLAIN.judge(median(plain))})" if workload.gangs > 1 else ""
    yield f"gangs/s, kfext / plain: {spread(plain)}{target}."
    kueue = _ratios(workload, "kueue", lambda run: run.rate)
    bound = GANGS_TO_KUEUE.get(workload.gangs) if workload.kind == "PyTorchJob" else None
    target = f" ({bound.judge(median(kueue))})" if bound else ""
    yield f"gangs/s, kfext / Kueue: {spread(kueue)}{target}."
    cpu = _ratios(workload, "kueue", lambda run: run.all_cpu)
    yield f"all CPU, kfext / Kueue: {spread(cpu)} ({CPU_TO_KUEUE.judge(median(cpu))})."


def _workload_tables(workload: Workload) -> str:
    repeats = len(next(iter(workload.runs.values())))
    rows = [
        (
            _TITLES[name],
            *(
                spread([figure.of(run) for run in arm_runs], digits=figure.digits)
                if name in _GATING or not figure.gated
                else "-"
                for figure in _FIGURES
            ),
        )
        for name, arm_runs in workload.runs.items()
    ]
    heads = ("who", *(figure.head for figure in _FIGURES))
    plural = "s" if repeats > 1 else ""
    figures = table(f"{workload.title}; {repeats} repeat{plural}", heads, rows)
    return f"{figures}\n\n{_programs(workload)}"


def _programs(workload: Workload) -> str:
    """Return a table of the CPU seconds of each program of the testbed under each arm."""
    by_arm = workload.runs
    programs = {name for arm_runs in by_arm.values() for run in arm_runs for name in run.by_program}
    used = {
        program: [median(run.by_program.get(program, 0.0) for run in r) for r in by_arm.values()]
        for program in programs
    }
    rows = [
        (program, *(f"{seconds:.1f}" for seconds in used[program]))
        for program in sorted(used, key=lambda name: -max(used[name]))
        if max(used[program]) >= _MIN_CPU
    ]
    return table("CPU s by program, medians", ("program", *by_arm), rows)


def _why_not(answers: Mapping[str, Sequence[Answer]]) -> str:
    rows = []
    for name, arm_answers in answers.items():
        seconds = [answer.seconds for answer in arm_answers]
        target = f" {WHY_NOT.judge(median(seconds))}" if name == "kfext" else ""
        held = spread([answer.held for answer in arm_answers], digits=0)
        rows.append((_TITLES[name], spread(seconds) + target, held, arm_answers[-1].reason))
    return table(
        "The reason of a gang that needs one node more than the cluster has",
        ("who", "seconds until the reason", "GPUs held in vain 2 s later", "reason"),
        rows,
    )


def _ratios(workload: Workload, rival: str, figure: Callable[[Run], float]) -> list[float]:
    """Return kfext's value divided by the rival's in the same repeat, for each repeat."""
    pairs = zip(workload.runs["kfext"], workload.runs[rival], strict=True)
    return [figure(kfext) / figure(other) for kfext, other in pairs]


def _better_columns(workloads: Sequence[Workload], answers: Mapping[str, Sequence[Answer]]) -> str:
    """Return a sentence with the columns in which Kueue's median is better than kfext's."""
    better = []
    for workload in workloads:
        for figure in _FIGURES:
            kueue, kfext = (median(map(figure.of, workload.runs[name])) for name in _GATING)
            if figure.better * (kueue - kfext) > 0:
                figures = f"{kueue:.{figure.digits}f} against {kfext:.{figure.digits}f}"
                gangs = f"{workload.gangs} {workload.kind}s of {workload.pods}"
                better.append(f"{gangs}: {figure.head} {figures}")
    kueue, kfext = (median(answer.seconds for answer in answers[name]) for name in _GATING)
    if kueue < kfext:
        better.append(f"seconds until the reason is said {kueue:.2f} against {kfext:.2f}")
    return "Where Kueue is better than kfext: " + ("; ".join(better) or "nowhere") + "."


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the measurement: repeats, the gangs of each workload, and the final nodes."""

    repeats: int
    single: int
    many: int
    fragmented: int
    nodes: int


_FULL = Size(repeats=5, single=1, many=50, fragmented=200, nodes=450)
_QUICK = Size(repeats=1, single=1, many=20, fragmented=80, nodes=NODES)


def measure(*, quick: bool) -> str:
    size = _QUICK if quick else _FULL
    with lifecycle.running(
        "bench-peers", fake_nodes=NODES, fast=True, native_gangs=True
    ) as testbed:
        all_arms = arms.all_of(testbed)
        idle = f"{NODES} idle nodes of 8 GPUs"
        single = Workload(f"One gang of 64 pods, {idle}", gangs=1, pods=64)
        many = Workload(f"{size.many} gangs of 8 pods at once, {idle}", gangs=size.many, pods=8)
        answers: dict[str, list[runs.Answer]] = {arm.name: [] for arm in all_arms}
        for repeat in range(size.repeats):
            for arm in all_arms:
                _turn(arm, repeat, [single] * size.single + [many], answers[arm.name])
        say(tables_of([single, many], answers))  # printed now, because the rest may fail
        full = _fragment(testbed, size.nodes)
        tight = Workload(
            f"{size.fragmented} gangs of 8 pods at once, {size.nodes} nodes of 8 GPUs, {full}",
            gangs=size.fragmented,
            pods=8,
        )
        for repeat in range(size.repeats):
            for arm in all_arms:
                if arm.name in _GANG_ARMS:
                    _turn(arm, size.repeats + repeat, [tight], None)
        say(_workload_tables(tight))
        trains = _train_jobs(testbed, all_arms, size, f"{size.nodes} nodes of 8 GPUs, {full}")
    return tables_of([single, many, tight, trains], answers)


def _train_jobs(testbed: Testbed, all_arms: Sequence[Arm], size: Size, nodes: str) -> Workload:
    """Measure TrainJobs, as many as the gangs of the second workload, with Trainer running."""
    title = f"{size.many} TrainJobs of 8 pods at once, {nodes}"
    workload = Workload(title, gangs=size.many, pods=8, kind="TrainJob")
    trainer.start(testbed)
    for repeat in range(size.repeats):
        for arm in all_arms:
            if arm.name in _GANG_ARMS:
                _turn(arm, 2 * size.repeats + repeat, [workload], None)
    trainer.stop(testbed)
    return workload


def _turn(
    arm: Arm, repeat: int, workloads: list[Workload], answers: list[runs.Answer] | None
) -> None:
    """Measure an arm once; add its runs to the workloads, and its answer to `answers`, if any."""

    async def measure_arm(client: Client) -> None:
        kind = workloads[0].kind
        await runs.run_gangs(
            client, arm, name=f"r{repeat}-warm", gangs=1, pods=_WARM_UP_PODS, kind=kind
        )
        for number, workload in enumerate(workloads):
            run = await runs.run_gangs(
                client,
                arm,
                name=f"r{repeat}-{number}",
                gangs=workload.gangs,
                pods=workload.pods,
                kind=workload.kind,
            )
            workload.runs.setdefault(arm.name, []).append(run)
            say(f"    {arm.name}, {workload.gangs} x {workload.pods}: bound in {run.bound:.2f} s")
        if answers is not None:
            answers.append(
                await runs.run_unschedulable(client, arm, name=f"r{repeat}-vain", nodes=NODES)
            )

    with step(f"turn {repeat + 1} of {arm.name}"), arm.running():
        _with_client(arm.testbed, measure_arm)


def _fragment(testbed: Testbed, nodes: int) -> str:
    """Grow the cluster to `nodes` nodes and use half of its GPUs; return a description."""
    gpus = int(fakenodes.CAPACITY["nvidia.com/gpu"])
    added = [
        fakenodes.node(f"fake-{number:03}", capacity=fakenodes.CAPACITY, labels={}, taints=[])
        for number in range(NODES, nodes)
    ]
    pods = list(fillers(nodes, gpus=gpus, seed=_SEED))
    with step(f"{nodes} nodes, {len(pods)} pods on them"), ThreadPoolExecutor(_IN_FLIGHT) as pool:
        list(pool.map(lambda body: testbed.api.create("/api/v1/nodes", body), added))
        fakenodes.wait_ready(testbed, nodes)
        path = "/api/v1/namespaces/default/pods"
        list(pool.map(lambda body: testbed.api.create(path, body), pods))
    used_nodes = len({pod["spec"]["nodeName"] for pod in pods})
    return f"{len(pods)} of {nodes * gpus} GPUs used at random, {nodes - used_nodes} nodes empty"


def _with_client(testbed: Testbed, work: Callable[[Client], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with await Client.connect(testbed.kubeconfig) as client:
            await work(client)

    asyncio.run(run())
