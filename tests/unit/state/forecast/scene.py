"""A planner with jobs that run and wait on one node of four CPUs, for forecasts."""

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
    """`left`: the shown remaining seconds of each running job, by uid."""

    def __init__(self, *jobs: JobBuilder, cpu: str = "4", pods: int = 110, **left: float) -> None:
        self.now = Moment(wall=NOW, monotonic=500.0)
        self.planner = Planner()
        for name in ("team", "secret"):
            space = Namespace(name, {names.MANAGED: "true"})
            self.planner.settings.observe_namespace(None, space)
        self.planner.cluster.observe_node(None, node("a", cpu=cpu, pods=pods))
        self.left = {uid.replace("_", "-"): seconds for uid, seconds in left.items()}
        self.show()
        for made in jobs:
            self.planner.cluster.observe_job(made.raw)
            built = made.build()
            if not (built.suspend or built.finished):
                for pod in members(built, bound="a", phase="Running"):
                    self.planner.cluster.observe_pod(None, pod)
        self.forecaster = Forecaster(self.planner)

    def show(self, **left: float) -> None:
        """Show the remaining time of running jobs; the other jobs as before."""
        self.left |= left
        at = self.now.wall
        shown = {uid: Reported(Progress(step=1, left=s, at=at)) for uid, s in self.left.items()}
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
    """A job that came an hour ago, so that it is not expected to come again."""
    created = more.pop("created", NOW - 3600)
    builder = job(name=uid, uid=uid).worker(workers, **{"cpu": "1", **more})
    return builder.held().created(created)


def started(uid: str) -> JobBuilder:
    """A job that waited, once kfext has started it."""
    made = waits(uid).resumed().version(2)
    del made.raw["metadata"]["annotations"][names.HELD]
    return made


def runs(uid: str, workers: int = 1, **more: Any) -> JobBuilder:
    made = running(uid, "a", cpu="1", workers=workers, **more)
    return made.created(NOW - 7200)


def ended(uid: str, *, seconds: float) -> JobBuilder:
    """A job that took this long, and ended two hours ago."""
    made = waits(uid, created=0).resumed().condition("Succeeded", since=1 + seconds)
    made.raw["status"]["startTime"] = "1970-01-01T00:00:01Z"
    return made


def elsewhere(builder: JobBuilder) -> JobBuilder:
    builder.raw["metadata"]["namespace"] = "secret"
    return builder
