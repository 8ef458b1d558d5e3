"""A run of all jobs under one arm, and the history of each job."""

import json
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import urllib3

from e2e.bench.cluster.workload import Arm, Arrival, Job
from e2e.harness.elastic_jobs import becomes_elastic, delete_remaining, journal
from e2e.harness.install import create_namespace, kubectl
from e2e.harness.jobs import PLURAL, ended, jobs_path, specs
from e2e.harness.training import policy
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import say
from e2e.testbed.realnodes import Node
from kfext import names

Object = dict[str, Any]
_POLL_SECONDS = 1.0
_REQUEST_ERRORS = (ApiError, urllib3.exceptions.HTTPError)
_JOB_LABEL = "training.kubeflow.org/job-name"


@dataclass(slots=True)
class Story:
    """What happened to a job under an arm; times are seconds since the arm began.

    A time is None before its event. `started`: when the first pod ran; `whole`: when all pods ran.
    `homes`: the node of each pod. `cpu_seconds`: by pod uid. `running`: the current number of
    running pods. `stepping`: by uid, for each pod that existed at the first step in the job's
    journal: seconds and CPU seconds at that step, and at the last poll.
    """

    job: Job
    submitted: float
    started: float | None = None
    whole: float | None = None
    ended: float | None = None
    outcome: str = ""
    homes: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    running: int = 0
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    stepping: dict[str, list[float]] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)

    def record(self, body: Object, pods: Iterable[Object], *, now: float) -> None:
        running = 0
        for pod in pods:
            metadata, status = pod["metadata"], pod["status"]
            if node := pod["spec"].get("nodeName"):
                self.homes[metadata["name"]] = node
            running += status.get("phase") in ("Running", "Succeeded")
            counts = [status["restartCount"] for status in status.get("containerStatuses", [])]
            self.restarts = max([self.restarts, *counts])
        if running and self.started is None:
            self.started = now
        size = sum(spec["replicas"] for spec in specs(body).values())
        if running == size and self.whole is None:
            self.whole = now
        self.running = running
        if outcome := ended(body):
            self.ended, self.outcome, self.running = now, outcome, 0

    def record_cpu(
        self, pods: Iterable[Object], nodes: dict[str, Node], *, steps: bool, now: float
    ) -> None:
        """Record the CPU time of each pod with a cgroup. `steps`: whether the job made a step."""
        for pod in pods:
            node = nodes.get(pod["spec"].get("nodeName", ""))
            uid = pod["metadata"]["uid"]
            if node and (used := node.pod_cpu_seconds(uid)) is not None:
                self.cpu_seconds[uid] = used
                if not steps:
                    self.stepping[uid] = [now, used, now, used]
                elif uid in self.stepping:
                    self.stepping[uid][2:] = [now, used]

    def highest_cpu_fraction(self) -> float:
        """Return the largest fraction of its CPU that a pod has used since the job's first step."""
        fractions = [
            (used - before) / (last - first) * 1000 / self.job.millicores
            for first, before, last, used in self.stepping.values()
            if last > first
        ]
        return max(fractions, default=0.0)

    @property
    def trained(self) -> bool:
        return self.outcome == "Succeeded"

    def training(self, until: float) -> float:
        """Return the seconds from its first running pod to its end; to `until` if it runs."""
        return self._end(until) - (until if self.started is None else self.started)

    def elapsed(self, until: float) -> float:
        """Return the seconds from its submission to its end; to `until` if it runs."""
        return self._end(until) - self.submitted

    def held_by_partial_gang(self, until: float) -> float:
        """Return the seconds in which some of its pods ran and others had not started."""
        if self.started is None:
            return 0.0
        return (self._end(until) if self.whole is None else self.whole) - self.started

    def _end(self, until: float) -> float:
        return until if self.ended is None else self.ended


@dataclass(slots=True)
class Outcome:
    """All jobs under one arm. `until`: the end of the last job, or the deadline, in seconds.

    The CPU use, `reserved` (the requests of running pods) and capacity, all in core seconds, and
    `wire_bytes` (all links, both directions) count only while there is a job.
    """

    arm: Arm
    stories: list[Story] = field(default_factory=list)
    until: float = 0.0
    cpu_seconds: float = 0.0
    reserved: float = 0.0
    capacity: float = 0.0
    wire_bytes: int = 0

    def stored(self) -> Object:
        stories = [{**asdict(story), "job": story.job.name} for story in self.stories]
        return {**asdict(self), "arm": self.arm.name, "stories": stories}

    @classmethod
    def restore(cls, stored: Object, arm: Arm, jobs: Iterable[Job]) -> Self:
        """Return the outcome that `stored` returned; `jobs`: the jobs that it names."""
        by_name = {job.name: job for job in jobs}
        stories = [Story(**{**story, "job": by_name[story["job"]]}) for story in stored["stories"]]
        return cls(**{**stored, "arm": arm, "stories": stories})


def run(
    bed: Testbed,
    arm: Arm,
    arrivals: Sequence[Arrival],
    nodes: Sequence[Node],
    *,
    minutes: float,
    network: str = "",
) -> Outcome:
    """Submit the jobs at their times, watch them until their end, and empty the nodes.

    After twice the time of the last arrival and ten minutes, unfinished jobs are abandoned.
    """
    namespace = f"bench-{arm.name}"
    create_namespace(bed, namespace, managed=arm.managed)
    if network:
        kubectl(bed, "annotate", "namespace", namespace, f"{names.NETWORK}={network}")
    folder = bed.folder / "checkpoints" / namespace
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if arm.scale is not None:
            scale = dict(arm.scale)
            stack.enter_context(policy(bed, namespace, companion={"scale": scale}))
            act = scale["mode"] == "act"
            until(
                lambda: becomes_elastic(bed, namespace) == act, what="the webhook knows the policy"
            )
        outcome = _Run(bed, arm, list(arrivals), nodes, minutes=minutes, folder=folder).follow()
        kubectl(bed, "delete", "namespace", namespace, "--timeout=180s")
    return outcome


class _Run:
    """One arm while it runs."""

    def __init__(
        self,
        bed: Testbed,
        arm: Arm,
        arrivals: list[Arrival],
        nodes: Sequence[Node],
        *,
        minutes: float,
        folder: Path,
    ) -> None:
        self._bed, self._arrivals, self._minutes = bed, arrivals, minutes
        self._folder = folder
        self._nodes = {node.name: node for node in nodes}
        self._namespace = f"bench-{arm.name}"
        self._outcome = Outcome(arm)
        self._began = time.monotonic()
        self._meters = self._read_meters()

    def follow(self) -> Outcome:
        last = max(arrival.seconds for arrival in self._arrivals)
        deadline = 2 * max(60 * self._minutes, last) + 600
        while (now := self._now()) < deadline and (self._arrivals or self._unfinished()):
            busy = bool(self._unfinished())
            self._submit_due(now)
            with suppress(*_REQUEST_ERRORS):  # the next poll may succeed
                self._poll()
            self._add_meters(count=busy)
            time.sleep(max(0.0, _POLL_SECONDS - (self._now() - now)))
        self._outcome.until = self._now()
        for story in self._outcome.stories:
            story.totals = self._totals(story)
        return self._outcome

    def _submit_due(self, now: float) -> None:
        while self._arrivals and self._arrivals[0].seconds <= now:
            job = self._arrivals.pop(0).job
            scheduler = self._outcome.arm.scheduler
            body = job.manifest(minutes=self._minutes, scheduler=scheduler, folder=self._folder)
            self._bed.api.create(jobs_path(self._namespace, job.kind), body)
            self._outcome.stories.append(Story(job, self._now()))
            say(f"    {self._now():4.0f} s: {job.name} submitted")

    def _poll(self) -> None:
        pods = self._bed.api.get(f"/api/v1/namespaces/{self._namespace}/pods")["items"]
        jobs = {
            body["metadata"]["name"]: body
            for kind in PLURAL
            for body in self._bed.api.get(jobs_path(self._namespace, kind))["items"]
        }
        for story in self._outcome.stories:
            name = story.job.name
            job_pods = [pod for pod in pods if pod["metadata"]["labels"].get(_JOB_LABEL) == name]
            if story.ended is None:
                story.record(jobs[name], job_pods, now=self._now())
                steps = any(line.startswith("step ") for line in journal(self._folder / name))
                story.record_cpu(job_pods, self._nodes, steps=steps, now=self._now())
                if story.ended is not None:
                    where = ", ".join(sorted(set(story.homes.values())))
                    say(f"    {story.ended:4.0f} s: {name} {story.outcome} on {where}")
            if story.ended is not None:
                delete_remaining(self._bed, self._namespace, name, job_pods)

    def _add_meters(self, *, count: bool) -> None:
        """Read the nodes' meters, and add the increase to the outcome if `count` is true."""
        before, self._meters = self._meters, self._read_meters()
        seconds, cpu, wire = (new - old for new, old in zip(self._meters, before, strict=True))
        if count:
            self._outcome.cpu_seconds += cpu
            millicores = sum(
                story.running * story.job.millicores for story in self._outcome.stories
            )
            self._outcome.reserved += seconds * millicores / 1000
            self._outcome.wire_bytes += int(wire)
            cores = sum(node.millicores for node in self._nodes.values()) / 1000
            self._outcome.capacity += seconds * cores

    def _read_meters(self) -> tuple[float, float, float]:
        nodes = self._nodes.values()
        cpu = sum(node.cpu_seconds() for node in nodes)
        return time.monotonic(), cpu, float(sum(node.bytes_on_wire() for node in nodes))

    def _totals(self, story: Story) -> dict[str, float]:
        """Return the totals that the job printed at its end; empty if it did not end."""
        path = f"/api/v1/namespaces/{self._namespace}/pods/{story.job.first_pod}/log?tailLines=5"
        try:
            lines = str(self._bed.api.get(path)).splitlines()
        except _REQUEST_ERRORS:
            return {}
        printed = [line[start:] for line in lines if (start := line.find('{"steps"')) >= 0]
        totals: dict[str, float] = json.loads(printed[-1]) if printed else {}
        return totals

    def _unfinished(self) -> list[Story]:
        return [story for story in self._outcome.stories if story.ended is None]

    def _now(self) -> float:
        return time.monotonic() - self._began
