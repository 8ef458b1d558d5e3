"""Plans per second: how fast the pure core places waiting gangs. One core, no I/O.

Measured: `core.lifecycle.next_step` for a held job, and the claims of its plan on the ledger, since
the next decision must count them. Nodes have 32 cores, 256 GiB and 8 GPUs, and are in two zones; a
quarter are tainted, and other pods claim a random half of all resources. Gangs have 8 to 16 pods,
each with one GPU (usually more GPUs than any one node has free), or with CPU and memory only; a
third of the gangs select a zone, a third tolerate the taint. After each plan the oldest gang ends.

Not measured: reading jobs from JSON (once per change of a job), writes, and a queue of jobs that do
not fit.
"""

import gc
import random
import time
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from e2e.bench.report import PLAN_RATE, quantile, spread, table
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import plan_claims
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Unsuspend
from kfext.model.job import TrainingJob, parse_job
from kfext.model.job_state import JobState
from kfext.model.node import parse_node
from kfext.model.quantity import parse_resources
from kfext.names import HELD

SIZES = (200, 1000, 5000)
_KINDS = ("GPU", "CPU")
_LIVE = 20
"""The number of kfext's gangs on the ledger at any time, beside the half that other pods claim."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repeat: the seconds of each plan, and the mean number of nodes per plan."""

    seconds: list[float]
    nodes: float

    @property
    def rate(self) -> float:
        return len(self.seconds) / sum(self.seconds)


def measure(*, quick: bool) -> str:
    repeats, count = (2, 200) if quick else (5, 1000)
    runs: dict[tuple[int, str], list[Repeat]] = {}
    for repeat in range(repeats):
        for size in SIZES:
            for kind in _KINDS:
                run = _repeat(size, kind, count=count, seed=repeat)
                runs.setdefault((size, kind), []).append(run)
    return table(
        f"Plans per second, half-full cluster, gangs of 8-16 pods; {repeats} repeats of {count}",
        ("nodes", "gangs", "plans/s", "p50 ms", "p99 ms", "nodes per plan", "target"),
        [_row(size, kind, of_case) for (size, kind), of_case in sorted(runs.items())],
    )


def _row(size: int, kind: str, runs: list[Repeat]) -> tuple[str, ...]:
    rates = [run.rate for run in runs]
    target = PLAN_RATE.get(size)
    return (
        str(size),
        kind,
        spread(rates, digits=0),
        spread([quantile(run.seconds, 0.5) * 1e3 for run in runs]),
        spread([quantile(run.seconds, 0.99) * 1e3 for run in runs]),
        spread([run.nodes for run in runs], digits=1),
        target.judge(median(rates)) if target else "",
    )


def _repeat(size: int, kind: str, *, count: int, seed: int) -> Repeat:
    draw = random.Random(seed)
    ledger = half_full(size, draw)
    jobs = [_job(number, kind, draw) for number in range(count + _LIVE)]
    live: deque[list[Hashable]] = deque()
    seconds, nodes = [], 0
    gc.collect()
    for number, job in enumerate(jobs):
        situation = Situation(job=job, pods=(), plan=None, state=JobState(), now=0.0)
        began = time.perf_counter()
        step = next_step(situation, ledger)
        if not isinstance(step, Unsuspend):
            raise RuntimeError(f"gang {number} does not fit {size} nodes: {step}")
        claims = plan_claims(replace(job, suspend=False), step.plan, ())
        for key, claim in claims.items():
            ledger.claim(key, claim)
        elapsed = time.perf_counter() - began
        live.append(list(claims))
        if number < _LIVE:  # warm-up: fills caches and the ledger
            continue
        seconds.append(elapsed)
        nodes += len(step.plan.nodes)
        for key in live.popleft():
            ledger.drop(key)
    return Repeat(seconds, nodes / count)


def half_full(size: int, draw: random.Random) -> Ledger:
    """Return a ledger on which other pods claim about half of every resource."""
    ledger = Ledger(parse_node(_node(number)) for number in range(size))
    # Each node gets four such pods on average; eight would fill it.
    requests = parse_resources({"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "1", "pods": "1"})
    for number in range(size):
        for pod in range(min(8, max(0, round(draw.gauss(4, 2))))):
            ledger.claim(("other", number, pod), Claim(f"node-{number:04}", requests))
    return ledger


def _node(number: int) -> dict[str, Any]:
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}] if number % 4 == 0 else []
    return {
        "metadata": {
            "name": f"node-{number:04}",
            "labels": {"kubernetes.io/os": "linux", "zone": "ab"[number % 2]},
        },
        "spec": {"taints": taints},
        "status": {
            "allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
        },
    }


def _job(number: int, kind: str, draw: random.Random) -> TrainingJob:
    requests = {"cpu": "2", "memory": "8Gi"}
    limits = {"nvidia.com/gpu": "1"} if kind == "GPU" else {}
    spec: dict[str, Any] = {
        "containers": [{"name": "pytorch", "resources": {"requests": requests, "limits": limits}}],
        **dict(_constraints(number)),
    }
    replicas = {"Master": 1, "Worker": draw.randint(7, 15)}
    raw = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "namespace": "bench",
            "name": f"job-{number}",
            "uid": f"uid-{number}",
            "annotations": {HELD: "true"},
        },
        "spec": {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {
                type_: {"replicas": count, "template": {"spec": spec}}
                for type_, count in replicas.items()
            },
        },
    }
    job = parse_job(raw)
    if job is None:
        raise RuntimeError("not a job")
    return job


def _constraints(number: int) -> Iterator[tuple[str, Any]]:
    if number % 3 == 1:
        yield "nodeSelector", {"zone": "ab"[number // 3 % 2]}
    if number % 3 == 2:
        yield "tolerations", [{"key": "team", "operator": "Equal", "value": "a"}]
