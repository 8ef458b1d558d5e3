"""A gang that needs four new nodes: python -m e2e.bench new-nodes.

Karpenter adds the nodes 20 s after it has launched them. On plain Kubernetes, unschedulable pods
ask for nodes at once; kfext asks once it expects no capacity sooner. Repeats alternate.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from e2e.bench.report import NEW_NODES_LATE, NEW_NODES_POD_WRITES, spread, table
from e2e.harness.kfext_process import Kfext
from e2e.harness.new_nodes import ASKS, PODS, Scene, scene_of
from e2e.harness.space import Space
from e2e.testbed import karpenter, lifecycle

_PLAIN = "plain Kubernetes"
_NO_WAIT, _ = next(iter(ASKS.values()))
_ARMS: dict[str, tuple[Callable[[Scene], None], float]] = {_PLAIN: (_NO_WAIT, 0.0), **ASKS}


@dataclass(frozen=True, slots=True)
class Run:
    """A gang's seconds until kfext asked for nodes (`asked`), and until all pods were bound.

    `apart`: seconds from the first to the last bound pod. `created`: the number of new nodes.
    `half`: whether the gang was half bound for too long. `writes`: placeholder writes per pod.
    """

    asked: float
    whole: float
    apart: float
    created: int
    half: bool
    writes: float


def measure(*, quick: bool, repeats: int) -> str:
    runs: dict[str, list[Run]] = {arm: [] for arm in _ARMS}
    with lifecycle.running(f"bench-{os.getpid()}", fake_nodes=1, fast=True) as bed:
        karpenter.start(bed)
        with Kfext.installed(bed) as kfext:
            for number in range(1 if quick else repeats):
                for arm in _ARMS:
                    runs[arm].append(_run(kfext, arm, number))
    plain = median(run.whole for run in runs[_PLAIN])
    head = ("arm", "asked s", "whole s", "late s", "apart s", "nodes", "half", "writes a pod")
    return table(
        f"A gang of {PODS} pods on new nodes; {len(runs[_PLAIN])} repeats",
        head,
        [_row(arm, runs[arm], plain + _ARMS[arm][1]) for arm in _ARMS],
    )


def _row(arm: str, runs: Sequence[Run], due: float) -> tuple[str, ...]:
    late = median(run.whole for run in runs) - due
    writes = max(run.writes for run in runs)
    return (
        arm,
        spread([run.asked for run in runs], digits=1),
        spread([run.whole for run in runs], digits=1),
        f"{late:.1f} {NEW_NODES_LATE.judge(late)}",
        spread([run.apart for run in runs], digits=1),
        spread([run.created for run in runs], digits=0),
        str(sum(run.half for run in runs)),
        f"{writes:.2f} {NEW_NODES_POD_WRITES.judge(writes)}",
    )


def _run(kfext: Kfext, arm: str, number: int) -> Run:
    fill_cluster, _ = _ARMS[arm]
    space = Space(kfext, f"new-nodes-{number}-{list(_ARMS).index(arm)}")
    space.create(managed=arm != _PLAIN, born_pinned=True)
    with scene_of(space) as scene:
        scene.pool()
        fill_cluster(scene)
        scene.submit("gang")
        scene.whole("gang")
        scene.until(lambda look: not look.asked, "no placeholder is left")
        gang = scene.gangs["gang"]
        return Run(
            asked=0.0 if arm == _PLAIN else scene.asked_after("gang"),
            whole=scene.whole_after("gang"),
            apart=sum(gang.stretches),
            created=len(scene.created()),
            half=bool(gang.half),
            writes=scene.written() / PODS,
        )
