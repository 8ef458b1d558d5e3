"""Submit to first pod bound, and to all bound: a PyTorchJob of two pods on an idle cluster.

The real training-operator creates the pods and the real kube-scheduler binds them, once in a
namespace that kfext manages and once in an unmanaged one; all processes run in both cases.
Repeats alternate. Times, in ms, are from before the POST to the events in the driver's own watches.
The cluster is 200 fake nodes; operator and scheduler run with raised request limits, which makes
plain Kubernetes faster, and so harder to match. A gang that waits at the gate is bound only after
its last pod exists; plain Kubernetes does not wait for that pod.

The second table divides the time of the managed job into stages.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from statistics import median
from typing import Any

from e2e.bench.bed import Bench, with_client
from e2e.bench.crowd import job_body, pod_names
from e2e.bench.report import ALL_BOUND_RATIO, FIRST_BIND_RATIO, spread, table
from e2e.bench.watching import Seen, watching
from kfext.errors import NotFound
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.kinds.registered import KINDS
from kfext.names import MANAGED

_PODS = 2
_CALM_SECONDS = 2.0
_NAMESPACES = {"plain": "bench-plain", "kfext": "bench-managed"}
_STAGES = {
    "answered": "POST answered (job webhook)",
    "resumed": "job planned and resumed (kfext)",
    "created": "last pod created (operator, pod webhook)",
    "ungated": "last pod without a gate (kfext)",
    "bound": "last pod bound (kube-scheduler)",
}

Times = Mapping[str, float]
"""Milliseconds since the submit, by event."""


def measure(bench: Bench, *, quick: bool) -> str:
    runs = with_client(bench, lambda client: _run_all(client, repeats=4 if quick else 20))
    plain, kfext = runs["plain"], runs["kfext"]
    ratios = {
        event: median(run[event] for run in kfext) / median(run[event] for run in plain)
        for event in ("first bound", "bound")
    }
    return "\n\n".join(
        [
            table(
                f"Submit to bound, PyTorchJob of {_PODS} pods, idle cluster; {len(kfext)} repeats",
                ("namespace", "first bound ms", "all bound ms", "ratio, first", "ratio, all"),
                [
                    ("unmanaged", *_bound_times(plain), "1", "1"),
                    (
                        "managed",
                        *_bound_times(kfext),
                        f"{ratios['first bound']:.2f} "
                        f"{FIRST_BIND_RATIO.judge(ratios['first bound'])}",
                        f"{ratios['bound']:.2f} {ALL_BOUND_RATIO.judge(ratios['bound'])}",
                    ),
                ],
            ),
            table(
                "Where the time goes, milliseconds since the submit",
                ("event", "unmanaged", "managed"),
                [
                    (words, _stage(plain, stage), _stage(kfext, stage))
                    for stage, words in _STAGES.items()
                ],
            ),
        ]
    )


def _bound_times(runs: list[Times]) -> tuple[str, str]:
    return (
        spread([run["first bound"] for run in runs], digits=0),
        spread([run["bound"] for run in runs], digits=0),
    )


def _stage(runs: list[Times], stage: str) -> str:
    """Return a cell of the second table, empty for an event that does not occur there."""
    return spread([run[stage] for run in runs], digits=0) if stage in runs[0] else ""


async def _run_all(client: Client, *, repeats: int) -> dict[str, list[Times]]:
    for arm, namespace in _NAMESPACES.items():
        labels = {MANAGED: "true"} if arm == "kfext" else {}
        body: dict[str, Any] = {"metadata": {"name": namespace, "labels": labels}}
        await client.create(paths.namespaces(), body)
    await asyncio.sleep(_CALM_SECONDS)  # for service accounts, and watches that receive them
    runs: dict[str, list[Times]] = {arm: [] for arm in _NAMESPACES}
    for repeat in range(-1, repeats):  # repeat -1 is a warm-up
        for arm, namespace in _NAMESPACES.items():
            run = await _run_job(client, namespace, f"job-{repeat + 1}", held=arm == "kfext")
            if repeat >= 0:
                runs[arm].append(run)
    return runs


async def _run_job(client: Client, namespace: str, name: str, *, held: bool) -> Times:
    body = job_body(name, _PODS, held=False)
    body["spec"]["runPolicy"] = {}
    jobs, pods = paths.jobs(KINDS["PyTorchJob"], namespace), paths.pods(namespace)
    names = pod_names(name, _PODS)
    async with watching(client, jobs, pods) as seen:
        submitted = time.monotonic()
        await client.create(jobs, body)
        answered = time.monotonic()
        await seen.until(lambda: seen.bound.keys() >= set(names), what=f"{name} to be bound")
        moments = {"answered": answered, **_moments(seen, names)}
        if held:
            moments["resumed"] = seen.resumed[name]
            moments["ungated"] = max(seen.ungated[pod] for pod in names)
        await client.delete(f"{jobs}/{name}")
        for pod in names:
            with suppress(NotFound):  # the garbage collector was faster
                await client.delete(paths.pods(namespace, pod), grace=0)
        await seen.until(lambda: seen.gone >= {name, *names}, what=f"{name} to be gone")
    await asyncio.sleep(_CALM_SECONDS)
    return {event: 1e3 * (moment - submitted) for event, moment in moments.items()}


def _moments(seen: Seen, pods: list[str]) -> dict[str, float]:
    return {
        "created": max(seen.added[pod] for pod in pods),
        "first bound": min(seen.bound[pod] for pod in pods),
        "bound": max(seen.bound[pod] for pod in pods),
    }
