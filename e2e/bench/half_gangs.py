"""Partly bound gangs among many jobs: python -m e2e.bench.half_gangs --seed 83 --seed 97.

All jobs of a seed are submitted at once to 24 fake nodes, which cannot run all of them. No job
ends. `e2e.harness.half_gangs` watches the gangs, and defines when a gang is half bound.
"""

import json
import os
from collections.abc import Sequence

import click

from e2e.bench.bed import Bench
from e2e.bench.report import conditions
from e2e.harness.half_gangs import Account, watch
from e2e.harness.jobs import jobs_path
from e2e.harness.mixed_jobs import PRIORITY, mixed_jobs
from e2e.testbed import lifecycle
from kfext import names
from kfext.model.parameters import Placement

NODES = 24
_NAMESPACE = "crowd"
_EXTRA_SECONDS = 10.0
"""A gang may be half bound for bindTimeout plus this time."""


@click.command(help=__doc__)
@click.option("--seed", type=int, multiple=True, default=(83,), show_default=True)
@click.option("--seconds", type=float, default=240.0, show_default=True, help="Time to watch.")
@click.option("--only-modelled", is_flag=True, help="Without jobs left to plain Kubernetes.")
@click.option("--gated", is_flag=True, help="No gang is born pinned.")
def main(seed: tuple[int, ...], seconds: float, only_modelled: bool, gated: bool) -> None:
    for number in seed:
        account = crowd(number, seconds=seconds, only_modelled=only_modelled, gated=gated)
        print(json.dumps({"seed": number, **account.figures()}))
        print("\n".join(f"  {line}" for line in account.lines()), flush=True)
    print(conditions("python -m e2e.bench.half_gangs"))


def crowd(seed: int, *, seconds: float, only_modelled: bool, gated: bool) -> Account:
    """Run the jobs of a seed on a cluster of their own; return what the watch of the gangs saw."""
    with lifecycle.running(f"crowd-{os.getpid()}", fake_nodes=NODES, fast=True) as bed:
        bench = Bench(bed)
        bench.install()
        divide(bench)
        if gated:
            bench.kube.create("/apis/kfext.dev/v1alpha1/trainingpolicies", {
                "apiVersion": "kfext.dev/v1alpha1",
                "kind": "TrainingPolicy",
                "metadata": {"name": "gated"},
                "spec": {"placement": {"bornPinned": False}},
            })  # fmt: skip
        submit(bench, mixed_jobs(seed, only_modelled=only_modelled))
        limit = Placement().bind_timeout + _EXTRA_SECONDS
        account = watch(bench.kube, _NAMESPACE, seconds=seconds, limit=limit)
        for process in (bench.controller, bench.webhook):
            process.kill()
        return account


def divide(bench: Bench) -> None:
    """Label every node with one of two pools, and taint a fifth of the nodes."""
    nodes = sorted(bench.kube.items("/api/v1/nodes"), key=lambda node: node["metadata"]["name"])
    for number, node in enumerate(nodes):
        change: dict[str, object] = {"metadata": {"labels": {"pool": "ab"[number % 2]}}}
        if number % 5 == 0:
            taint = {"key": "gpu", "value": "y", "effect": "NoSchedule"}
            change["spec"] = {"taints": [*node["spec"].get("taints", []), taint]}
        bench.kube.patch(f"/api/v1/nodes/{node['metadata']['name']}", change)


def submit(bench: Bench, jobs: Sequence[dict[str, object]]) -> None:
    """Create the namespace and the priority class, then the jobs in order, without a pause."""
    bench.testbed.api.apply({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": _NAMESPACE, "labels": {names.MANAGED: "true"}},
    })  # fmt: skip
    bench.testbed.api.apply({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY},
        "value": 5,
    })  # fmt: skip
    for job in jobs:
        bench.kube.ask("POST", jobs_path(_NAMESPACE, str(job["kind"])), job)


if __name__ == "__main__":
    main()
