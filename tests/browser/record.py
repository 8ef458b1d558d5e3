"""The recording for tests in a browser: what the real planner shows in a simulated cluster.

    python -m tests.browser.record     # writes recorded.json.gz beside this file

64 GPUs on 8 nodes, and jobs of five teams that request more, after an hour and a half.
"""

import asyncio
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import structlog

from kfext.controller.job_display import JobDisplay
from kfext.controller.training_plan import TrainingPlanStatus, body_of, encode_status
from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.core.queue.capacity_record import capacity_record
from kfext.kube.client import Client
from kfext.kube.events import EventRecorder
from kfext.model.job import TrainingJob
from kfext.model.moment import Moment
from kfext.model.timestamps import written_time
from kfext.sim.cluster import Cluster, World
from kfext.sim.gpus import gpus
from kfext.sim.jobs import JobSpec, Saving
from kfext.sim.nodes import NodeSize
from kfext.state.forecast.forecaster import Forecaster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Report

RECORDED = Path(__file__).with_name("recorded.json.gz")
TEAMS = {
    "bert": "nlp",
    "imagenet": "vision",
    "cifar10": "vision",
    "deepspeech2": "speech",
    "yolov3": "robotics",
    "ncf": "ads",
}
LOAD, SEED, SECOND = 1.6, 3, 5400
NODE = NodeSize(cpu=96_000, gpus=8)


class _Events:
    """A recorder of events that stores none."""

    def record(self, *_: Any, **__: Any) -> None:
        pass


class _Writer(TrainingPlanWriter):
    """A writer that keeps the TrainingPlans instead of sending them."""

    def _want(self, job: TrainingJob, status: TrainingPlanStatus) -> None:
        self._wanted[job.uid] = (job, status)

    def plans(self, now: float) -> Iterator[dict[str, Any]]:
        """Yield the TrainingPlans as the API server has them."""
        for uid, (job, status) in self._wanted.items():
            written = encode_status(status, self._transitions.setdefault(uid, {}), now=now)
            raw = body_of(job) | {"status": written | self._history(job).encode()}
            created = written_time(job.created)
            raw["metadata"] |= {"creationTimestamp": created, "resourceVersion": "1"}
            yield raw


def _world() -> World:
    """Jobs on GPUs, with names and namespaces as people choose them; some may be moved."""
    drawn = gpus(SEED, load=LOAD)
    jobs = [_name_job(spec, may_move=number % 2 == 0) for number, spec in enumerate(drawn.jobs)]
    return World(dict.fromkeys(drawn.nodes, NODE), tuple(jobs))


def _name_job(spec: JobSpec, *, may_move: bool) -> JobSpec:
    model = spec.trains.partition("-")[0]
    name = f"{model}-{re.sub(r'[^0-9]', '', spec.name)}"
    renamed = replace(spec, name=name, namespace=TEAMS[model], cpu=8000, gpus=1)
    if spec.leaders and may_move:
        return replace(renamed, migrate="checkpointed", saving=Saving.ON_REQUEST)
    return renamed


@dataclass
class Recording:
    """A simulated cluster, and the controller's display of it."""

    cluster: Cluster
    writer: _Writer

    def __post_init__(self) -> None:
        planner = self.cluster.planner
        events = cast(EventRecorder, _Events())
        self._display = JobDisplay(planner, self.writer, events)
        self._seen: dict[str, tuple[Any, ...]] = {}
        self._finish = planner.finish
        planner.finish = self._record  # type: ignore[method-assign] # as the controller does
        self.cluster.on_second.append(self._show_changes)

    def _record(self, tracked: TrackedJob, now: Moment, **result: Any) -> Report | None:
        if result["complete"]:
            self._display.record(tracked, self.cluster.driver.written[-1].step)
        return self._finish(tracked, now, **result)

    def _show_changes(self) -> None:
        planner, driver = self.cluster.planner, self.cluster.driver
        for uid, tracked in planner.cluster.jobs.items():
            verdict = planner.queue.shown_verdict(tracked)
            now = (tracked.phase, verdict, planner.cluster.homes(uid), tracked.job.training_pods)
            if self._seen.get(uid) != now:
                self._seen[uid] = now
                self._display.show(tracked, tracked.phase, verdict)
            if planner.progress.reported(uid) is not None:
                self._display.show_progress(tracked)
        for (name, type_), shown in driver.shown.items():
            if tracked_ := planner.cluster.jobs.get(f"uid-{name}"):
                self.writer.show_companion(tracked_.job, type_, shown)

    def at(self, second: float) -> dict[str, Any]:
        """Return the objects of the API server at a second."""
        self.cluster.at(second)
        planner, now = self.cluster.planner, self.cluster.clock.wall
        forecaster = Forecaster(planner)
        list(forecaster.forecast(self.cluster.driver.moment))
        for uid, tracked in planner.cluster.jobs.items():
            self.writer.show_expected(tracked.job, forecaster.expected(uid))
        nodes = [
            {
                "metadata": {"name": name},
                "status": {"allocatable": {"cpu": f"{size.cpu}m", "nvidia.com/gpu": size.gpus}},
            }
            for name, size in self.cluster.world.nodes.items()
        ]
        reservation = planner.queue.reservations.current
        record = capacity_record(planner.cluster.ledger, reservation)
        plans = list(self.writer.plans(now))
        return {"at": now, "plans": plans, "nodes": nodes, "capacity": record}


async def record() -> dict[str, Any]:
    """Return the recording; the writer needs a running loop."""
    cluster = Cluster(_world(), SEED)
    writer = _Writer(client=cast(Client, None), wall=lambda: cluster.clock.wall)
    return Recording(cluster, writer).at(SECOND)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))  # only errors
    with gzip.open(RECORDED, "wt", compresslevel=9) as file:
        json.dump(asyncio.run(record()), file, separators=(",", ":"))
