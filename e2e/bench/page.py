"""The page of `kubectl kfext ui` on a large cluster, in Debian's Chromium.

A real API server has a thousand TrainingPlans with a history and a curve, a thousand nodes of
realistic size, and the capacity record; no controller runs. The command is a process of its own.
Measured: the bytes of the page; the time from opening its address until it is drawn; the time of a
redraw with layout of each view; the bytes of the state; and the memory of the command.
"""

import asyncio
import gzip
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from playwright.async_api import Page, async_playwright

from e2e.bench.report import Target, spread, table
from e2e.harness.install import kubectl
from e2e.testbed import browser, lifecycle, paths
from e2e.testbed.cluster import Testbed
from kfext import names
from kfext.kube import paths as api
from kfext.kube.client import Client
from kfext.model.timestamps import written_time

_JOBS, _NODES, _GPUS = 1000, 1000, 8
_TEAMS = 10
_AT_ONCE = 32
_OPENINGS, _REDRAWS = 5, 5
_NODE_BYTES = 12_000
_VIEWS = ("cluster", "queue", "timeline")
_TARGETS = {
    "page, bytes": Target("<=", 100_000),
    "page, gzip": Target("<=", 30_000),
    "drawn after opening, ms": Target("<=", 1000),
    "state, bytes": Target("<=", 1_000_000),
    "memory of the command, MB": Target("<=", 150),
    **{f"redraw of {view}, ms": Target("<=", 150) for view in _VIEWS},
}
_REDRAW = """async (times) => {
  const { page } = await import("/base.js"), taken = [];
  for (let i = 0; i < times; i += 1) {
    const began = performance.now();
    page.redraw();
    document.body.offsetHeight;
    taken.push(performance.now() - began);
    await new Promise((done) => setTimeout(done, 50));
  }
  return taken;
}"""

Figures = dict[str, list[float]]


def measure(*, quick: bool) -> str:
    with lifecycle.running("bench-page", fast=True) as bed:
        kubectl(bed, "apply", "--server-side", "-k", str(paths.REPOSITORY / "crds"))
        figures = asyncio.run(_figures(bed, jobs=100 if quick else _JOBS))
    rows = [
        (name, spread(values, digits=0), _TARGETS[name].judge(median(values)))
        for name, values in figures.items()
    ]
    return table(
        f"The page with {_JOBS} jobs and {_NODES} nodes", ("figure", "value", "bound"), rows
    )


async def _figures(bed: Testbed, *, jobs: int) -> Figures:
    async with await Client.connect(bed.kubeconfig) as client:
        await _fill(client, jobs)
    page = [item.read_bytes() for item in files("kfext.cli").joinpath("page").iterdir()]
    figures: Figures = {
        "page, bytes": [sum(map(len, page))],
        "page, gzip": [sum(len(gzip.compress(part)) for part in page)],
    }
    async with _command(bed) as (process, address), async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=browser.chromium(), args=["--no-sandbox"]
        )
        shown_page = await chromium.new_page(viewport={"width": 1440, "height": 900})
        drawn = [await _open(shown_page, address) for _ in range(_OPENINGS)]
        figures["drawn after opening, ms"] = drawn
        for view in _VIEWS:
            await shown_page.evaluate("(view) => { location.hash = view; }", view)
            await shown_page.wait_for_timeout(2000)  # histories arrive
            figures[f"redraw of {view}, ms"] = await shown_page.evaluate(_REDRAW, _REDRAWS)
        state = "async () => JSON.stringify((await import('/base.js')).page.state).length"
        figures["state, bytes"] = [await shown_page.evaluate(state)]
        figures["memory of the command, MB"] = [_resident(process.pid)]
        await chromium.close()
    return figures


def _resident(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) / 1000


async def _open(page: Page, address: str) -> float:
    await page.goto(address)
    await page.locator("#map").wait_for()
    return float(await page.evaluate("document.body.dataset.drawn"))


@asynccontextmanager
async def _command(bed: Testbed) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run the command; yield its process and the address that it prints."""
    command = [sys.executable, "-c", "from kfext.cli.main import main; main()", "ui", "--port=0"]
    process = await asyncio.create_subprocess_exec(
        *command, "--no-open", f"--kubeconfig={bed.kubeconfig}", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        yield process, line.split()[-1]
    finally:
        process.terminate()
        await process.wait()


# --- the objects of the cluster -----------------------------------------------------------------


async def _fill(client: Client, jobs: int) -> None:
    for team in range(_TEAMS):
        await client.create(api.namespaces(), {"metadata": {"name": f"team-{team}"}})
    await client.create(api.namespaces(), {"metadata": {"name": names.NAMESPACE}})
    record = {"data": {"capacity": json.dumps(_capacity(jobs))}}
    metadata = {"name": names.CAPACITY_RECORD, "namespace": names.NAMESPACE}
    await client.create(api.config_maps(names.NAMESPACE), {"metadata": metadata, **record})
    limit = asyncio.Semaphore(_AT_ONCE)

    async def create(path: str, body: dict[str, Any], status: dict[str, Any]) -> None:
        async with limit:
            await client.create(path, body)
            await client.merge_patch(
                f"{path}/{body['metadata']['name']}/status", {"status": status}
            )

    everything = [*_nodes(), *_plans(jobs)]
    await asyncio.gather(*(create(*arguments) for arguments in everything))


def _nodes() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    amounts = {"cpu": "96", "memory": "768Gi", "pods": "110", "nvidia.com/gpu": str(_GPUS)}
    images = [{"names": [f"registry/{'i' * 80}:{n}"], "sizeBytes": 1} for n in range(100)]
    status = {"allocatable": amounts, "capacity": amounts, "images": images[: _NODE_BYTES // 120]}
    for number in range(_NODES):
        metadata = {
            "name": f"node-{number}",
            "labels": {"kubernetes.io/hostname": f"node-{number}"},
        }
        yield api.nodes(), {"metadata": metadata}, status


def _capacity(jobs: int) -> dict[str, Any]:
    free = {f"node-{number}": 0 if number < jobs * 4 // 5 else _GPUS for number in range(_NODES)}
    amounts = {"cpu": 96_000, "nvidia.com/gpu": _GPUS}
    nodes = {
        n: {"allocatable": amounts, "free": amounts | {"nvidia.com/gpu": f}}
        for n, f in free.items()
    }
    return {"nodes": nodes, "reservation": None}


def _plans(jobs: int) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield TrainingPlans: four in five run on a node, the others wait."""
    now = 1_790_000_000
    for number in range(jobs):
        namespace, name = f"team-{number % _TEAMS}", f"train-{number}"
        job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": name}
        runs, node = number % 5 < 4, f"node-{number - number // 5}"
        entry = {
            "workers": _GPUS,
            "nodes": [node] if runs else [],
            "moreNodes": 0,
            "why": "why " * 15,
        }
        phases = ("Queued", "Planned", "Placed", "Scaled", "Scaled", "Placed")
        history = [
            {**entry, "what": what, "time": written_time(now + 60 * index)}
            for index, what in enumerate(phases if runs else phases[:1])
        ]
        curve = ";".join(f"{now + 30 * n},{10 * n},{1 / (n + 1):.4g}" for n in range(64))
        progress = {"metric": "loss", "value": 0.5, "step": 640, "totalSteps": 1000 + number}
        status: dict[str, Any] = {
            "phase": "Placed" if runs else "Queued",
            "workers": _GPUS,
            "requests": {"cpu": "8", "nvidia.com/gpu": "1"},
            "reason": "Placed" if runs else "NoRoom",
            "message": "8 pods need 8 nvidia.com/gpu together; 4 nvidia.com/gpu short",
            "history": history,
        }
        if runs:
            status |= {"places": [{"node": node, "pods": _GPUS}], "nodes": [node], "curve": curve}
            status["progress"] = {**progress, "secondsLeft": 600, "stepsPerSecond": 2.0}
        else:
            status["ahead"] = number // 5
        metadata = {"name": f"pytorchjob-{name}", "namespace": namespace}
        body = {
            "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
            "kind": "TrainingPlan",
            "metadata": metadata,
            "spec": {"job": job},
        }
        yield api.plans(namespace), body, status
