"""A planner with running and waiting jobs on one node of four CPUs, for tests of forecasts."""

from typing import Any

from kfext import names
from kfext.core.lifecycle.steps import SaveState
from kfext.core.progress.reported import Progress, Reported
from kfext.core.queue.expected import ExpectedStart
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.state.forecast.forecaster import Forecaster
from kfext.state.planner.planner import Planner
from tests.builders import JobBuilder, job, node
from tests.builders import pods as members
from tests.unit.controller.bench import running

NOW = 10_000.0


class Scene:
    """A planner and its forecaster. `left`: the shown remaining seconds of running jobs, by uid."""

    def __init__(self, *jobs: JobBuilder, cpu: str = "4", pods: int = 110, **left: float) -> None:
        self.now = Moment(wall=NOW, monotonic=500.0)
        self.planner = Planner()
        for name in ("team", "secret"):
            space = Namespace(name, {names.MANAGED: "true"})
            self.planner.settings.observe_namespace(None, space)
        self.planner.cluster.observe_node(None, node("a", cpu=cpu, pods=pods))
        self.left = {uid.replace("_", "-"): seconds for uid, seconds in left.items()}
        self.show()
        for builder in jobs:
            self.planner.cluster.observe_job(builder.raw)
            training_job = builder.build()
            if not (training_job.suspend or training_job.finished):
                for pod in members(training_job, bound="a", phase="Running"):
                    self.planner.cluster.observe_pod(None, pod)
        self.forecaster = Forecaster(self.planner)

    def show(self, **left: float) -> None:
        """Show new remaining times of running jobs; the other jobs keep theirs."""
        self.left |= left
        at = self.now.wall
        shown = {
            uid: Reported(Progress(step=1, remaining=s, at=at)) for uid, s in self.left.items()
        }
        self.planner.progress.adopt(shown)

    def tick(self) -> None:
        remainder = 1
        while remainder:
            tick = self.planner.tick(self.now)
            remainder = tick.remainder
            for tracked, step in tick.steps:
                if isinstance(step, SaveState) and step.state != tracked.state:
                    tracked.state = step.state
                    self.planner.finish(tracked, self.now)
                    remainder = 1

    def end(self, uid: str) -> None:
        """End a job, with its pods."""
        cluster = self.planner.cluster
        for pod in cluster.pods(uid):
            cluster.observe_pod(pod, None)
        cluster.forget_job(uid)

    def after(self, seconds: float) -> None:
        self.now = Moment(self.now.wall + seconds, self.now.monotonic + seconds)
        self.tick()

    def forecast(self) -> None:
        self.tick()
        list(self.forecaster.forecast(self.now))

    def expected(self, uid: str) -> ExpectedStart | None:
        self.forecast()
        return self.forecaster.expected(uid)


def waits(uid: str, workers: int = 4, **more: Any) -> JobBuilder:
    """Return a waiting job that was created an hour ago: it is not expected to arrive again."""
    created = more.pop("created", NOW - 3600)
    builder = job(name=uid, uid=uid).worker(workers, **{"cpu": "1", **more})
    return builder.held().created(created)


def started(uid: str) -> JobBuilder:
    """Return the job of `waits` after kfext has started it."""
    builder = waits(uid).resumed().version(2)
    del builder.raw["metadata"]["annotations"][names.HELD]
    return builder


def runs(uid: str, workers: int = 1, **more: Any) -> JobBuilder:
    return running(uid, "a", cpu="1", workers=workers, **more).created(NOW - 7200)


def ended(uid: str, *, seconds: float) -> JobBuilder:
    """Return a job that ran for these seconds, long ago."""
    builder = waits(uid, created=0).resumed().condition("Succeeded", since=1 + seconds)
    builder.raw["status"]["startTime"] = "1970-01-01T00:00:01Z"
    return builder


def elsewhere(builder: JobBuilder) -> JobBuilder:
    builder.raw["metadata"]["namespace"] = "secret"
    return builder
