"""A page on the recorded cluster; a test changes it as the cluster would change."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kfext.cli.gpus import card_view
from kfext.cli.ui_server import serve
from kfext.cli.ui_state import JobView, Source, State, job_view, note, parse_capacity, state_of
from kfext.model.node import Node, parse_node
from kfext.model.timestamps import written_time
from tests.browser.record import RECORDED

Raw = dict[str, Any]
SHARED = "node-8"
"""The node with shared GPUs."""


@dataclass
class Shown:
    """The objects of the API server: `plans` by uid, `nodes` by name. `at`: in epoch seconds."""

    at: float
    plans: dict[str, Raw]
    nodes: dict[str, Raw] = field(default_factory=dict)
    cards: list[Raw] = field(default_factory=list)
    capacity: str = ""
    notes: list[str] = field(default_factory=list)
    heard: float | None = None
    explained: list[str] = field(default_factory=lambda: ["PyTorchJob vision/x: Placed", "  log"])
    _views: dict[str, tuple[str, JobView]] = field(default_factory=dict)

    def change(self, uid: str, **status: Any) -> None:
        """Change the status of a TrainingPlan."""
        plan = self.plans[uid]
        metadata = plan["metadata"]
        version = str(int(metadata["resourceVersion"]) + 1)
        self.plans[uid] = {
            **plan,
            "metadata": {**metadata, "resourceVersion": version},
            "status": {**plan["status"], **status},
        }

    def uid_of(self, name: str) -> str:
        """Return the uid of the job with a name."""
        return next(uid for uid, raw in self.plans.items() if raw["spec"]["job"]["name"] == name)

    def source(self) -> Source:
        """Return the source of the page."""
        return Source(self._ready, self.jobs, self.state, self.explain)

    async def _ready(self) -> None:
        """Return at once."""

    def jobs(self) -> Iterable[JobView]:
        """Return all jobs; a job that has not changed is the same object."""
        for uid, raw in self.plans.items():
            version = raw["metadata"]["resourceVersion"]
            if self._views.get(uid, ("", None))[0] != version:
                self._views[uid] = version, job_view(raw, now=self.at)
        self._views = {uid: self._views[uid] for uid in self.plans}
        return [view for _, view in self._views.values()]

    def state(self) -> State:
        """Return the state of this moment."""
        nodes: list[Node] = [parse_node(raw) for raw in self.nodes.values()]
        return state_of(
            self.jobs(),
            nodes=nodes,
            capacity=parse_capacity({"capacity": self.capacity}),
            cards=[card_view(raw) for raw in self.cards],
            notes=[note(words) for words in self.notes],
            scope="",
            at=self.at,
            heard=self.at if self.heard is None else self.heard,
        )

    async def explain(self, job: JobView) -> list[str]:
        """Return lines as `kubectl kfext explain` prints them."""
        return self.explained


def read_recording() -> Shown:
    """Return the recorded cluster, with a node of shared GPUs."""
    with gzip.open(RECORDED, "rt") as file:
        content = json.load(file)
    plans = {raw["spec"]["job"]["uid"]: raw for raw in content["plans"]}
    nodes = {raw["metadata"]["name"]: raw for raw in content["nodes"]}
    shown = Shown(content["at"], plans, nodes, capacity=content["capacity"])
    _share(shown, SHARED)
    return shown


def _share(shown: Shown, name: str) -> None:
    """Add a node with two GPUs, and two jobs that share the first."""
    has = {"cpu": 64_000, "nvidia.com/gpu": 2}
    shown.nodes[name] = {"metadata": {"name": name}, "status": {"allocatable": has | {"cpu": "64"}}}
    capacity = json.loads(shown.capacity)
    capacity["nodes"][name] = {"allocatable": has, "free": has | {"nvidia.com/gpu": 1}}
    shown.capacity = json.dumps(capacity)
    sharers = []
    for job, priority, percent in (("serve-1", "high", 60), ("tune-2", "low", 40)):
        created = shown.at - 900
        entry = {"time": written_time(created), "what": "Placed", "workers": 1, "nodes": [name]}
        history = [{**entry, "why": f"1 pod is on {name}"}]
        where = {name: 1}
        shown.plans[job] = plan(job, "ads", uid=job, created=created, places=where, history=history)
        pod = {"podUID": job, "namespace": "ads", "pod": f"{job}-worker-0"}
        measured = {"lossPermille": 21} if priority == "high" else {"harvestPermille": 412}
        sharers.append({**pod, "priority": priority, "sharePercent": percent, **measured})
    status = {"healthy": True, "card": "GPU-1", "memoryMiB": 81920, "sharers": sharers}
    shown.cards.append({"spec": {"node": name, "slot": 0}, "status": status})


def plan(
    name: str,
    namespace: str = "team",
    *,
    uid: str = "",
    created: float = 0.0,
    places: Mapping[str, int] | None = None,
    **status: Any,
) -> Raw:
    """Return a TrainingPlan, by default in phase Placed; `status`: fields of its status."""
    where = [{"node": node, "pods": pods} for node, pods in (places or {}).items()]
    return {
        "metadata": {
            "namespace": namespace,
            "resourceVersion": "1",
            "creationTimestamp": written_time(created),
        },
        "spec": {"job": {"kind": "PyTorchJob", "name": name, "uid": uid or name}},
        "status": {"phase": "Placed", "workers": 1, "places": where, **status},
    }


@asynccontextmanager
async def serve_page(shown: Shown) -> AsyncIterator[str]:
    """Serve a page; yield its address."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(shown.source(), port=0, greet=address.set_result))
    try:
        yield await address
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
