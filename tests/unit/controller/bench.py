"""A reconciler on a small cluster, with a writer and a display that record their calls."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kfext import names
from kfext.controller.metrics import Metrics
from kfext.controller.reconciler import Reconciler
from kfext.core.lifecycle.steps import Step, Unsuspend
from kfext.errors import KfextError
from kfext.model.namespace import Namespace
from kfext.model.verdict import Verdict
from kfext.state.mirror.cards import Reserve, Unreserve
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.running.policy import ConditionStatus
from kfext.state.waiting.queue import Queue
from tests.builders import JobBuilder, job, node

Answer = Callable[[TrackedJob, Step], Awaitable[bool]]


async def succeed(entry: TrackedJob, step: Step) -> bool:
    """Answer as a writer that has written all of a step."""
    return True


def refusing(error: KfextError) -> Answer:
    """Return the answer of a writer that fails with this error at every write."""

    async def answer(entry: TrackedJob, step: Step) -> bool:
        raise error

    return answer


class FakeWriter:
    """Records the steps to write. `answer`: called for each. `card_error`: raised for cards."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Step]] = []
        self.card_steps: list[Reserve | Unreserve] = []
        self.card_error: Exception | None = None
        self.answer: Answer = succeed

    async def write(self, entry: TrackedJob, step: Step) -> bool:
        self.steps.append((entry.job.uid, step))
        return await self.answer(entry, step)

    async def write_card(self, step: Reserve | Unreserve) -> None:
        self.card_steps.append(step)
        if self.card_error is not None:
            raise self.card_error


class FakeDisplay:
    """Records the reports on each job, the conditions of the companion, and written steps."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, str | None, Verdict | None]] = []
        self.resized: list[tuple[str, ConditionStatus | None]] = []
        self.recorded: list[tuple[str, str, Step]] = []

    def record(self, tracked: TrackedJob, step: Step) -> None:
        self.recorded.append((tracked.job.uid, tracked.executor_condition, step))

    def show(self, tracked: TrackedJob, phase: str | None, verdict: Verdict | None) -> None:
        self.reports.append((tracked.job.uid, phase, verdict))

    def show_companion(
        self, tracked: TrackedJob, type_: str, shown: ConditionStatus | None
    ) -> None:
        self.resized.append((tracked.job.uid, shown))


class Bench:
    """A reconciler on one node of four CPUs, ticked by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wake = asyncio.Event()
        self.planner = Planner(wake=self.wake.set)
        self.cluster = self.planner.cluster
        self.planner.settings.observe_namespace(None, Namespace("team", {names.MANAGED: "true"}))
        self.cluster.observe_node(None, node("a", cpu="4"))
        self.writer = FakeWriter()
        self.display = FakeDisplay()
        self.reports, self.resized = self.display.reports, self.display.resized
        self.reconciler = Reconciler(
            planner=self.planner,
            wake=self.wake,
            writer=self.writer,  # type: ignore[arg-type]
            display=self.display,  # type: ignore[arg-type]
            metrics=Metrics(),
            wall=lambda: self.now,
            monotonic=lambda: self.now,
        )

    def submit(self, builder: JobBuilder) -> None:
        self.cluster.observe_job(builder.raw)

    async def tick(self) -> None:
        """Run one tick with all of its writes."""
        async with asyncio.TaskGroup() as writes:
            self.reconciler.tick(writes)

    def started(self) -> list[str]:
        return [uid for uid, step in self.writer.steps if isinstance(step, Unsuspend)]


def gang(uid: str, *, cpu: str = "1", workers: int = 3, created: float = 0) -> JobBuilder:
    return job(name=uid, uid=uid).worker(workers, cpu=cpu).held().created(created)


def queue_of(bench: Bench) -> Queue:
    return bench.planner.queue


def last_verdict(bench: Bench, uid: str) -> tuple[str, str]:
    """Return the last reason and the last message of a job."""
    verdicts = [why for job, phase, why in bench.reports if job == uid and phase == names.QUEUED]
    return verdicts[-1].reason, verdicts[-1].message  # type: ignore[union-attr]


def running(uid: str, node_name: str, *, cpu: str, workers: int = 1, **more: Any) -> JobBuilder:
    """A job started under a plan, without pods so far; `deadline`: its activeDeadlineSeconds."""
    builder = gang(uid, cpu=cpu, workers=workers).resumed()
    del builder.raw["metadata"]["annotations"]["kfext.dev/held"]
    places = ",".join(["0"] * workers)
    plan = (
        f'{{"uid":"{uid}","generation":1,"nodes":["{node_name}"],'
        f'"replicas":{{"worker":[{places}]}}}}'
    )
    builder.annotated("kfext.dev/plan", plan)
    if "deadline" in more:
        builder.raw["spec"]["runPolicy"]["activeDeadlineSeconds"] = more["deadline"]
        builder.raw.setdefault("status", {})["startTime"] = "1970-01-01T00:00:01Z"
    return builder
