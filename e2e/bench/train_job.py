"""The same DDP training as a PyTorchJob and as a TrainJob, under plain Kubernetes and under kfext.

CPU requests = limits and both pods fit one node, so only the network between the pods differs.
Under plain Kubernetes the pods are on two nodes, with 1 Gbit/s between them.
"""

import random
import time
from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Any

import yaml

from e2e.bench.report import spread, table
from e2e.harness.install import create_namespace, install_kfext, kubectl
from e2e.harness.training import ended_well, pytorch_job, step_ms, submit, with_torchrun
from e2e.testbed import lifecycle, trainer
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.progress import step
from e2e.testbed.realnodes import nodes
from e2e.testbed.realnodes.node import shape
from kfext.model.kinds.registered import KINDS

Object = dict[str, Any]
NAME = "bench-trainjob"
_LINK, _CPU, _MEMORY = "1gbit", "250m", "700Mi"
_TRAINS = ("--model", "embedding", "--print-every", "10", "--steps")
_STEPS, _QUICK_STEPS = 200, 40
_KINDS, _WAYS = ("PyTorchJob", "TrainJob"), ("plain", "kfext")


@dataclass(frozen=True, slots=True)
class _Run:
    step_ms: float
    seconds: float
    nodes: int


def measure(*, quick: bool, repeats: int) -> str:
    """Return the table."""
    arms = [(kind, way) for kind in _KINDS for way in _WAYS]
    runs: dict[tuple[str, str], list[_Run]] = defaultdict(list)
    with lifecycle.running(NAME, real_nodes=2) as bed:
        trainer.start(bed)
        install_kfext(bed)
        for way in _WAYS:
            create_namespace(bed, way, managed=way == "kfext")
        for node in nodes(bed):
            shape(node, _LINK)
        order = random.Random(1)
        for repeat in range(repeats):
            for kind, way in order.sample(arms, len(arms)):
                with step(f"repeat {repeat + 1} of {repeats}: {kind}, {way}"):
                    steps = _QUICK_STEPS if quick else _STEPS
                    runs[kind, way].append(_run(bed, kind, way, f"ddp-{repeat}", steps))
    return _table(runs, arms)


def _run(bed: Testbed, kind: str, namespace: str, name: str, steps: int) -> _Run:
    began = time.monotonic()
    command = ["torchrun", "/jobs/train_ddp.py", *_TRAINS, str(steps)]
    if kind == "TrainJob":
        job = yaml.safe_load((REPOSITORY / "examples/trainjob.yaml").read_text())
        job["metadata"] = {"name": name}
        limits = {"cpu": _CPU, "memory": _MEMORY}
        job["spec"]["trainer"] |= {"command": command, "resourcesPerNode": {"limits": limits}}
        kubectl(bed, "apply", "-n", namespace, "-f", "-", given=yaml.safe_dump(job))
    else:
        made = pytorch_job(name, cpu=_CPU, memory=_MEMORY, arguments=tuple(command[2:]))
        submit(bed, with_torchrun(made), namespace)
    pods = ended_well(bed, namespace, kind, name)
    seconds = time.monotonic() - began
    logs = [kubectl(bed, "logs", "-n", namespace, pod["metadata"]["name"]) for pod in pods]
    time_of_step = step_ms("\n".join(logs))
    if time_of_step is None:
        raise RuntimeError(f"{kind} {name} printed no step")
    kubectl(bed, "delete", KINDS[kind].plural, name, "-n", namespace)
    homes = {pod["spec"]["nodeName"] for pod in pods}
    return _Run(time_of_step, seconds, len(homes))


def _table(runs: dict[tuple[str, str], list[_Run]], arms: list[tuple[str, str]]) -> str:
    rows = []
    for kind, way in arms:
        found, plain = runs[kind, way], runs[kind, "plain"]
        ratio = median(run.step_ms for run in found) / median(run.step_ms for run in plain)
        rows.append(
            (
                kind,
                way,
                spread([run.nodes for run in found], digits=0),
                spread([run.step_ms for run in found], digits=0),
                f"{ratio - 1:+.0%}" if way != "plain" else "",
                spread([run.seconds for run in found], digits=0),
            )
        )
    head = ("kind", "under", "nodes", "ms a step", "against plain", "seconds from submit to end")
    return table("The same DDP as PyTorchJob and as TrainJob, 1 Gbit/s between nodes", head, rows)
