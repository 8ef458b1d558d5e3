"""A run of the stream under one arm, and the history of each job."""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import urllib3

from e2e.bench.companion.arms import DECIDING_PACKAGES, PLAIN, PLAIN_AGAIN
from e2e.bench.companion.site import Pods
from e2e.bench.stream.workload import MILLICORES, Arrival
from e2e.harness.elastic_jobs import becomes_elastic, delete_remaining, journal
from e2e.harness.jobs import PLURAL, ended, jobs_path, specs
from e2e.harness.journal import redone
from e2e.harness.training import policy
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.progress import say
from e2e.testbed.realnodes import Node
from kfext.names import JOB_NAME

Object = dict[str, Any]
_POLL_SECONDS = 1.0
_PATIENCE_SECONDS = 600.0
"""The time, after twice the length of a stream, until unfinished jobs are abandoned: two half bound
gangs that hold each other's capacity never end."""
_REQUEST_ERRORS = (ApiError, urllib3.exceptions.HTTPError)


KFEXT_WITHOUT_SCALE, KFEXT = "kfext, scale off", "kfext"
QUICK_PARAMETERS: Mapping[str, float] = {"wait": 5, "idle": 10, "rest": 15}
"""The parameters of the policy `scale` in a run of a few minutes."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to start and scale the jobs; the default is plain Kubernetes.

    `managed`: whether kfext manages the namespace. `mode`, `parameters`: the policy `scale`'s.
    """

    managed: bool = False
    mode: str = "off"
    parameters: Mapping[str, float] = field(default_factory=dict)

    @property
    def sources(self) -> Sequence[Path]:
        return (
            [REPOSITORY / "kfext" / package for package in DECIDING_PACKAGES]
            if self.managed
            else []
        )

    @property
    def scale(self) -> Object:
        return {"mode": self.mode, "parameters": dict(self.parameters)}


Arms = Mapping[str, Arm]


def arms(parameters: Mapping[str, float]) -> Arms:
    """Return plain Kubernetes twice, and kfext without the policy and with it."""
    return {
        PLAIN: Arm(),
        PLAIN_AGAIN: Arm(),
        KFEXT_WITHOUT_SCALE: Arm(managed=True),
        KFEXT: Arm(managed=True, mode="act", parameters=parameters),
    }


@dataclass(slots=True)
class Story:
    """What happened to a job. Times are seconds since the run began, or None before the event.

    `trained`: when all pods of its size first ran.
    `outcome`: its last condition, `Succeeded` or `Failed`; empty before its end.
    `sizes`: its successive numbers of replicas since it trained.
    `redone`: the number of steps that it repeated.
    """

    submitted: float
    trained: float | None = None
    ended: float | None = None
    outcome: str = ""
    sizes: list[int] | None = None
    redone: int = 0

    def record(self, body: Object, pods: Iterable[Object], *, now: float) -> None:
        size = sum(spec["replicas"] for spec in specs(body).values())
        running = sum(pod["status"].get("phase") in {"Running", "Succeeded"} for pod in pods)
        if self.trained is None and 0 < size <= running:
            self.trained, self.sizes = now, [size]
        elif self.sizes and self.sizes[-1] != size:
            self.sizes.append(size)
        if outcome := ended(body):
            self.ended, self.outcome = now, outcome
            self.trained = now if self.trained is None else self.trained

    @property
    def succeeded(self) -> bool:
        return self.outcome == "Succeeded"

    @property
    def rescales(self) -> int:
        return len(self.sizes or [0]) - 1

    def elapsed(self, until: float) -> float:
        """Return the seconds from its submission to its end; to `until` if it has not ended."""
        return (until if self.ended is None else self.ended) - self.submitted

    def wait(self, until: float) -> float:
        """Return the seconds from its submission until all of its pods first ran."""
        return (until if self.trained is None else self.trained) - self.submitted

    def run(self, until: float) -> float:
        return self.elapsed(until) - self.wait(until)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All jobs under one arm, by name. `until`: the end of the last job, or the deadline.

    In core seconds, while a job existed: `used`: by all pods, from the nodes' meters; `reserved`:
    the requests of running pods; `capacity`: the nodes' CPU.
    """

    jobs: dict[str, Story]
    until: float
    used: float
    reserved: float
    capacity: float

    def stored(self) -> Object:
        return asdict(self)

    @classmethod
    def restore(cls, stored: Object) -> Self:
        jobs = {name: Story(**story) for name, story in stored["jobs"].items()}
        return cls(**{**stored, "jobs": jobs})


def run(
    pods: Pods, arm: Arm, arrivals: Sequence[Arrival], nodes: Sequence[Node], *, minutes: float
) -> Outcome:
    """Submit the jobs at their times, and wait for the end of the last job."""
    folder = pods.bed.folder / "checkpoints" / pods.namespace
    try:
        with policy(pods.bed, pods.namespace, companion={"scale": arm.scale}):
            if arm.managed:
                act = arm.mode == "act"
                until(
                    lambda: becomes_elastic(pods.bed, pods.namespace) == act,
                    what="the webhook knows the policy",
                )
            return _Run(pods, list(arrivals), nodes, minutes=minutes, folder=folder).follow()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Run:
    """A run in progress."""

    def __init__(
        self,
        pods: Pods,
        arrivals: list[Arrival],
        nodes: Sequence[Node],
        *,
        minutes: float,
        folder: Path,
    ) -> None:
        self._pods, self._arrivals = pods, arrivals
        self._nodes, self._minutes, self._folder = nodes, minutes, folder
        self._stories: dict[str, Story] = {}
        self._used = self._reserved = self._capacity = 0.0
        self._began = time.monotonic()

    def follow(self) -> Outcome:
        deadline = 120 * self._minutes + _PATIENCE_SECONDS
        seen, cpu = self._now(), self._cpu()
        while (now := self._now()) < deadline and (self._arrivals or self._unfinished()):
            busy = bool(self._unfinished())
            self._submit_due(now)
            running = 0
            with suppress(*_REQUEST_ERRORS):  # the next poll may succeed
                running = self._poll()
            then, before = seen, cpu
            seen, cpu = self._now(), self._cpu()
            if busy:
                self._add_usage(seen - then, cpu - before, running)
            time.sleep(max(0.0, _POLL_SECONDS - (self._now() - now)))
        for name, story in self._stories.items():
            story.redone = redone(journal(self._folder / name))
        return Outcome(self._stories, self._now(), self._used, self._reserved, self._capacity)

    def _add_usage(self, seconds: float, cpu: float, running: int) -> None:
        """Add the usage and the capacity of some seconds in which there was a job."""
        self._used += cpu
        self._reserved += seconds * running * MILLICORES / 1000
        self._capacity += seconds * sum(node.millicores for node in self._nodes) / 1000

    def _submit_due(self, now: float) -> None:
        while self._arrivals and self._arrivals[0].seconds <= now:
            job = self._arrivals.pop(0).job
            body = job.manifest(minutes=self._minutes, folder=self._folder)
            self._pods.bed.api.create(jobs_path(self._pods.namespace, job.kind), body)
            self._stories[job.name] = Story(self._now())
            say(f"    {self._now():4.0f} s: {job.name} submitted")

    def _poll(self) -> int:
        jobs = {
            body["metadata"]["name"]: body
            for kind in PLURAL
            for body in self._pods.bed.api.get(jobs_path(self._pods.namespace, kind))["items"]
        }
        bodies = [pod for pod in self._pods.bodies() if JOB_NAME in pod["metadata"]["labels"]]
        for name, story in self._stories.items():
            job_pods = [pod for pod in bodies if pod["metadata"]["labels"][JOB_NAME] == name]
            if story.ended is None:
                story.record(jobs[name], job_pods, now=self._now())
                if story.ended is not None:
                    say(f"    {story.ended:4.0f} s: {name} {story.outcome}")
            if story.ended is not None:
                delete_remaining(self._pods.bed, self._pods.namespace, name, job_pods)
        return sum(pod["status"].get("phase") == "Running" for pod in bodies)

    def _unfinished(self) -> list[str]:
        return [name for name, story in self._stories.items() if story.ended is None]

    def _cpu(self) -> float:
        return sum(node.cpu_seconds() for node in self._nodes)

    def _now(self) -> float:
        return time.monotonic() - self._began
